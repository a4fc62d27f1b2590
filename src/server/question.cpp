#include "server/question.h"

#include <algorithm>
#include <set>

#include "server/server.h"

namespace invar::server {
namespace {

template <class T, class U>
void take(T& to, const std::optional<U>& from) {
  if (from) to = T(*from);
}

std::vector<Token> read_tokens(Body& body, const char* name) {
  std::vector<Token> tokens;
  const Json* list = body.list(name);
  for (size_t i = 0; list && i < list->size(); ++i) {
    const Json& item = (*list)[i];
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX) {
      body.wrong(name, "expected token ids, found " + kind_of(item));
      return {};
    }
    tokens.push_back(item.get<Token>());
  }
  return tokens;
}

// {"token id": bias}.
void read_bias(Body& body, Question& q) {
  const Json* bias = body.object("logit_bias");
  if (!bias) return;
  for (const auto& [key, value] : bias->items()) {
    const bool id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == key.npos;
    if (!id || !value.is_number())
      return body.wrong("logit_bias",
                        "expected token ids with numbers, found \"" + key + "\": " + kind_of(value));
    q.sampling.bias.emplace_back(Token(std::stoi(key)), float(value.get<double>()));
  }
}

void read_response_format(Body& body, Question& q) {
  Body format = body.inside("response_format");
  const std::string type = format.text("type").value_or("text");
  if (type == "text") return;
  if (type == "json_object" && format.any("schema")) return read_schema(format, "schema", q);  // llama.cpp's
  if (type == "json_object") return set_structure(body, "response_format", {Structure::Kind::JsonObject}, q);
  if (type == "structural_tag")
    return set_structure(body, "response_format", {Structure::Kind::Tags, format.value()}, q);
  if (type != "json_schema")
    return format.wrong("type",
                        "expected text, json_object, json_schema or structural_tag, found \"" + type + "\"");
  Body schema = format.inside("json_schema");
  if (!schema.any("schema") && body.fine())
    return format.wrong("json_schema.schema", "expected a schema, found none", "invalid_schema");
  read_schema(schema, "schema", q);
}

// vLLM's structured_outputs, and the guided_* fields before it.
void read_guides(Body& body, const std::string& prefix, Question& q) {
  auto named = [&](const char* name) { return prefix + name; };
  auto set = [&](const char* name, Structure s) { set_structure(body, named(name), std::move(s), q); };
  constexpr std::pair<const char*, Structure::Kind> kJson[] = {{"json", Structure::Kind::Schema},
                                                               {"structural_tag", Structure::Kind::Tags}};
  for (const auto& [name, kind] : kJson) {  // as JSON, or as its text
    const Json* json = body.any(named(name).c_str());
    if (!json) continue;
    Structure s{kind, *json};
    if (json->is_string()) {
      auto parsed = parse_ordered_json(json->get<std::string>(), named(name));
      if (!parsed) return body.wrong(named(name), parsed.error().message, "invalid_schema");
      s.value = parsed.take();
    }
    set(name, std::move(s));
  }
  if (const auto regex = body.text(named("regex").c_str()))
    set("regex", {Structure::Kind::Regex, {}, *regex});
  if (body.any(named("choice").c_str())) {
    const auto choices = body.texts(named("choice").c_str());
    if (choices.empty()) return body.wrong(named("choice"), "expected at least one text, found none");
    set("choice", {Structure::Kind::Choice, choices});
  }
  if (const auto grammar = body.text(named("grammar").c_str())) {
    // Both are called EBNF by clients: rules of GBNF have "::=".
    const bool gbnf = grammar->find("::=") != grammar->npos;
    set("grammar", {gbnf ? Structure::Kind::Gbnf : Structure::Kind::Lark, {}, *grammar});
  }
  if (body.flag(named("json_object").c_str()).value_or(false))
    set("json_object", {Structure::Kind::JsonObject});
  if (const auto pattern = body.text(named("whitespace_pattern").c_str())) q.structure.whitespace = *pattern;
}

}  // namespace

void read_sampling(Body& body, Question& q) {
  SamplingParams& p = q.sampling;
  take(p.temperature, body.number("temperature"));
  take(p.top_p, body.number("top_p"));
  take(p.min_p, body.number("min_p"));
  if (const auto k = body.integer("top_k", -1, INT32_MAX)) p.top_k = int(std::max<int64_t>(*k, 0));
  take(p.repetition, body.number("repetition_penalty"));
  take(p.repetition, body.number("repeat_penalty"));
  take(p.presence, body.number("presence_penalty"));
  take(p.frequency, body.number("frequency_penalty"));
  read_bias(body, q);
  if (const auto seed = body.integer("seed"); seed && *seed != -1) q.seed = uint64_t(*seed);
  if (body.any("samplers")) body.unsupported("samplers", "the order of the samplers is fixed");
}

void read_stops(Body& body, Question& q, const ApiOptions& options) {
  q.stops = body.texts("stop");
  if (q.stops.size() > size_t(options.most_stops))
    body.wrong("stop", "expected at most " + std::to_string(options.most_stops) + " texts, found " +
                           std::to_string(q.stops.size()));
  q.stop_tokens = read_tokens(body, "stop_token_ids");
  q.include_stop = body.flag("include_stop_str_in_output").value_or(false);
  q.ignore_eos = body.flag("ignore_eos").value_or(false);
  q.min_tokens = body.integer("min_tokens", 0).value_or(0);
  q.show_control = !body.flag("skip_special_tokens").value_or(true);
  if (q.show_control && q.conversation)
    body.unsupported("skip_special_tokens",
                     "control tokens are no text of a conversation; /v1/completions shows them");
}

void read_choices(Body& body, Question& q, const ApiOptions& options) {
  q.n = int(body.integer("n", 1, options.most_choices).value_or(1));
  if (const auto best = body.integer("best_of"); best && *best != q.n)
    body.unsupported("best_of", "expected the value of n");
  q.prompt_logprobs = int(body.integer("prompt_logprobs", 0, options.most_logprobs).value_or(-1));
  q.return_token_ids = body.flag("return_token_ids").value_or(false);
  q.tokens_as_ids = body.flag("return_tokens_as_token_ids").value_or(false);
  q.timings = body.flag("timings_per_token").value_or(false);
  if (body.flag("use_beam_search").value_or(false))
    body.unsupported("use_beam_search", "answers are sampled");
}

void skip(Question& q, const std::string& type) {
  constexpr size_t kMost = 16, kLongest = 64;  // of a client's words in the log
  const std::string name = type.substr(0, kLongest);
  if (q.skipped.size() < kMost && std::find(q.skipped.begin(), q.skipped.end(), name) == q.skipped.end())
    q.skipped.push_back(name);
}

void log_skipped(const Question& q, Reply& reply) {
  if (!q.skipped.empty()) reply.log({{"skipped", q.skipped}});
}

void read_stream(Body& body, Question& q) {
  q.stream = body.flag("stream").value_or(false);
  Body options = body.inside("stream_options");
  q.stream_usage = options.flag("include_usage").value_or(false);
  q.continuous_usage = options.flag("continuous_usage_stats").value_or(false);
}

void set_structure(Body& body, const std::string& field, Structure structure, Question& q) {
  if (q.structure.kind != Structure::Kind::None)
    return body.wrong(field, "expected one constraint of the answer, found also " + q.structure.field);
  structure.field = body.path_of(field);
  structure.whitespace = std::move(q.structure.whitespace);
  q.structure = std::move(structure);
}

void read_schema(Body& format, const char* field, Question& q) {
  const Json* schema = format.any(field);
  const bool strict = format.flag("strict").value_or(false);
  if (!schema) return;
  if (!schema->is_object() && !schema->is_boolean())
    return format.wrong(field, "expected a schema, found " + kind_of(*schema), "invalid_schema");
  set_structure(format, field, {Structure::Kind::Schema, *schema, {}, strict}, q);
}

void read_structure(Body& body, Question& q) {
  read_response_format(body, q);
  Body outputs = body.inside("structured_outputs");
  read_guides(outputs, "", q);
  read_guides(body, "guided_", q);
  if (const auto grammar = body.text("grammar"))
    set_structure(body, "grammar", {Structure::Kind::Gbnf, {}, *grammar}, q);
  read_schema(body, "json_schema", q);
  if (body.flag("grammar_lazy").value_or(false))
    body.unsupported("grammar_lazy", "grammars hold from the start");
}

void read_hints(Body& body, Question& q) {
  // vLLM's priority falls as the number rises.
  if (const auto priority = body.integer("priority", -1000000, 1000000)) q.priority = int(-*priority);
  if (const auto salt = body.text("cache_salt"); salt && !salt->empty()) q.reuse = false;
  if (!body.flag("cache_prompt").value_or(true)) q.reuse = false;
  q.affinity = body.text("prompt_cache_key").value_or("");
}

void read_effort(Body& body, const char* field, Question& q) {
  const auto effort = body.text(field);
  if (!effort) return;
  struct Level {
    const char* name;
    bool on;
    int64_t budget;
  };
  constexpr Level kLevels[] = {{"none", false, 0},     {"minimal", false, 0}, {"low", true, 1024},
                               {"medium", true, 4096}, {"high", true, 16384}, {"xhigh", true, -1},
                               {"max", true, -1}};
  for (const Level& level : kLevels)
    if (*effort == level.name) {
      q.thinking.on = level.on;
      q.thinking.budget = level.budget;
      q.thinking.effort = *effort;
      return;
    }
  body.wrong(field, "expected none, minimal, low, medium, high, xhigh or max, found \"" + *effort + "\"");
}

void read_thinking(Body& body, Question& q) {
  for (const char* name : {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget"})
    if (const auto budget = body.integer(name, -1)) {
      q.thinking.on = *budget != 0;
      q.thinking.budget = *budget;
    }
  Body variables = body.inside("chat_template_kwargs");
  if (variables.value().empty() || !q.conversation) return;
  if (const auto on = variables.flag("enable_thinking")) q.thinking.on = *on;
  q.conversation->variables = variables.value();
  q.conversation->variables.erase("enable_thinking");
}

void check_tools(Body& body, Question& q, const ApiOptions& options) {
  Conversation& c = *q.conversation;
  const size_t count = c.tools.size() + c.deferred.size(), most = size_t(options.most_tools);
  if (count > most)
    return body.wrong("tools",
                      "expected at most " + std::to_string(most) + ", found " + std::to_string(count));
  if (int64_t(json_text(c.tools).size() + json_text(c.deferred).size()) > options.most_tool_bytes)
    return body.wrong("tools", "expected at most " + std::to_string(options.most_tool_bytes) + " bytes");
  if (q.tool_choice.names.size() > most)
    return body.wrong("tool_choice", "expected at most " + std::to_string(most) + " names, found " +
                                         std::to_string(q.tool_choice.names.size()));
  std::set<std::string> names;
  for (const Json* list : {&std::as_const(c.tools), &std::as_const(c.deferred)})
    for (const Json& tool : *list) names.insert(tool["function"]["name"].get<std::string>());
  for (const std::string& name : q.tool_choice.names)
    if (!names.contains(name))
      return body.wrong("tool_choice", "expected a name of tools, found \"" + name + "\"");
  if (q.tool_choice.kind == ToolChoice::Kind::Required && names.empty())
    body.wrong("tool_choice", "expected tools to choose from, found none");
  if (c.tools.empty()) c.tools = nullptr;
}

Json function_tool(const std::string& name, const Json* description, const Json* parameters) {
  Json function = {{"name", name}};
  if (description) function["description"] = *description;
  if (parameters) function["parameters"] = *parameters;
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace invar::server
