// /v1/responses: what a request says, as a question.
#include <algorithm>

#include "server/ask.h"
#include "server/parse.h"

namespace invar::server {
namespace {

class Reader {
 public:
  Reader(const Json& json, const Served& served, Question& q, ResponsesForm& form,
         std::optional<ApiError>& fault)
      : body_(json, fault), served_(served), q_(q), c_(q.conversation.emplace()), form_(form) {}

  void read();

 private:
  void read_tools(Body& holder, const std::string& space);
  void add_tool(Body& tool, const std::string& space, bool custom);
  void read_choice();
  void read_named(Body& choice);
  void read_input();
  void read_item(Body item);
  void read_call(Body& item, bool custom);
  void read_reasoning(Body& item);
  void read_format();
  void refuse_what_needs_a_store();
  void echo();
  std::vector<std::string> texts_of(Body& holder, const char* name);
  std::string text_of(Body& holder, const char* name);
  std::string shown_name(const std::string& space, const std::string& name) const {
    return space.empty() ? name : space + "__" + name;
  }
  Json& assistant(bool after_text, bool after_calls);
  void add_call(const std::string& id, const std::string& name, Json arguments);

  Body body_;
  const Served& served_;
  Question& q_;
  Conversation& c_;
  ResponsesForm& form_;
};

// A string, or its parts.
std::vector<std::string> Reader::texts_of(Body& holder, const char* name) {
  const Json* content = holder.any(name);
  if (!content) return {};
  if (content->is_string()) return {content->get<std::string>()};
  if (!content->is_array()) {
    holder.wrong(name, "expected a string or a list of parts, found " + kind_of(*content));
    return {};
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < content->size() && holder.fine(); ++i) {
    Body part = holder.item(*content, name, i);
    const std::string type = part.text("type").value_or("");
    if (type == "refusal") texts.push_back(part.needed_text("refusal"));
    else if (type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
             type == "summary_text")
      texts.push_back(part.needed_text("text"));
    else part.unsupported("type", "parts of type \"" + type + "\"; the model reads text");
  }
  return texts;
}

std::string Reader::text_of(Body& holder, const char* name) {
  return content_of("", texts_of(holder, name)).get<std::string>();
}

// The turn of the model that goes on, or a new one: text and thought come before calls.
Json& Reader::assistant(bool after_text, bool after_calls) {
  const Json* last = c_.messages.empty() ? nullptr : &c_.messages.back();
  const bool goes_on = last && (*last)["role"] == "assistant" && (after_text || (*last)["content"] == "") &&
                       (after_calls || !last->contains("tool_calls"));
  if (!goes_on) c_.messages.push_back({{"role", "assistant"}, {"content", ""}});
  return c_.messages.back();
}

void Reader::read_reasoning(Body& item) {
  std::string thought = text_of(item, "content");
  if (thought.empty()) thought = from_base64(item.text("encrypted_content").value_or("")).value_or("");
  if (thought.empty()) thought = text_of(item, "summary");
  if (thought.empty()) return;
  Json& turn = assistant(false, false);
  Json& thoughts = turn["reasoning_content"];
  if (thoughts.is_null()) thoughts = std::move(thought);
  else thoughts.get_ref<std::string&>() += thought;  // in place: there may be many
}

void Reader::add_call(const std::string& id, const std::string& name, Json arguments) {
  Json& turn = assistant(true, true);
  if (!turn.contains("tool_calls")) turn["tool_calls"] = Json::array();
  turn["tool_calls"].push_back({{"id", id},
                                {"type", "function"},
                                {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void Reader::read_call(Body& item, bool custom) {
  const std::string name = shown_name(item.text("namespace").value_or(""), item.needed_text("name"));
  Json arguments =
      item.any(custom ? "input" : "arguments") ? *item.any(custom ? "input" : "arguments") : Json("");
  if (custom) arguments = {{"input", std::move(arguments)}};
  else if (!arguments.is_string() && !arguments.is_object())
    item.wrong("arguments", "expected a string, found " + kind_of(arguments));
  add_call(item.text("call_id").value_or(""), name, std::move(arguments));
}

void Reader::read_item(Body item) {
  const std::string type = item.text("type").value_or(item.any("role") ? "message" : "");
  if (type == "message") {
    const std::string role = item.text("role").value_or("");
    Json content = content_of(role, texts_of(item, "content"));
    if (role == "user" && !item.any("content"))
      item.wrong("content", "expected a string or a list of parts, found none");
    if (role == "assistant") {
      assistant(false, false)["content"] = std::move(content);
    } else if (role == "user" || role == "system" || role == "developer") {
      c_.messages.push_back({{"role", role}, {"content", std::move(content)}});
    } else {
      item.wrong("role", "expected user, assistant, system or developer, found \"" + role + "\"");
    }
  } else if (type == "reasoning") {
    read_reasoning(item);
  } else if (type == "function_call" || type == "custom_tool_call") {
    read_call(item, type == "custom_tool_call");
  } else if (type == "local_shell_call") {
    const Json* action = item.object("action");
    add_call(item.text("call_id").value_or(""), "local_shell", action ? *action : Json::object());
  } else if (type == "function_call_output" || type == "custom_tool_call_output" ||
             type == "local_shell_call_output") {
    c_.messages.push_back({{"role", "tool"},
                           {"content", text_of(item, "output")},
                           {"tool_call_id", item.text("call_id").value_or("")}});
  } else if (type == "item_reference") {
    item.unsupported("type", "references; the server keeps no items");
  } else if (type.empty()) {
    item.wrong("type", "expected the type of an item, found none");
  } else {
    skip(q_, type);
  }
}

void Reader::read_input() {
  if (const auto instructions = body_.text("instructions"); instructions && !instructions->empty())
    c_.messages.push_back({{"role", "system"}, {"content", *instructions}});
  const Json* input = body_.any("input");
  if (!input) return;
  if (input->is_string()) {
    c_.messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (size_t i = 0; i < input->size() && body_.fine(); ++i) read_item(body_.item(*input, "input", i));
  } else {
    body_.wrong("input", "expected a string or a list of items, found " + kind_of(*input));
  }
}

// The model sees a custom tool as a function with one text, and a tool of a namespace by both names.
void Reader::add_tool(Body& tool, const std::string& space, bool custom) {
  const auto name = tool.text("name");
  if (!name || name->empty()) return tool.wrong("name", "expected the name of a tool, found none");
  const std::string shown = shown_name(space, *name);
  if (custom) {
    std::string description = tool.text("description").value_or("");
    Body format = tool.inside("format");
    if (const auto grammar = format.text("definition"))
      description +=
          "\n\nThe input follows this grammar (" + format.text("syntax").value_or("lark") + "):\n" + *grammar;
    const Json about = description;
    const Json parameters = {{"type", "object"},
                             {"properties", {{"input", {{"type", "string"}}}}},
                             {"required", Json::array({"input"})}};
    c_.tools.push_back(function_tool(shown, &about, &parameters));
  } else {
    c_.tools.push_back(function_tool(shown, tool.any("description"), tool.object("parameters")));
    if (tool.flag("strict").value_or(false)) c_.tools.back()["function"]["strict"] = true;
  }
  if (custom || !space.empty()) form_.tools[shown] = {*name, space, custom};
}

void Reader::read_tools(Body& holder, const std::string& space) {
  const Json* tools = holder.list("tools");
  for (size_t i = 0; tools && i < tools->size() && holder.fine(); ++i) {
    Body tool = holder.item(*tools, "tools", i);
    const std::string type = tool.text("type").value_or("");
    if (type == "function" || type == "custom") add_tool(tool, space, type == "custom");
    else if (type == "namespace" && space.empty()) read_tools(tool, tool.text("name").value_or(""));
    else skip(q_, type);
  }
}

// One tool that the choice names.
void Reader::read_named(Body& choice) {
  const std::string type = choice.text("type").value_or("function");
  if (type != "function" && type != "custom") return;
  q_.tool_choice.names.push_back(
      shown_name(choice.text("namespace").value_or(""), choice.text("name").value_or("")));
}

void Reader::read_choice() {
  const Json* choice = body_.any("tool_choice");
  if (!choice) return;
  ToolChoice& t = q_.tool_choice;
  std::string kind;
  if (choice->is_string()) {
    kind = choice->get<std::string>();
  } else {
    Body named = body_.inside("tool_choice");
    if (named.text("type") == "allowed_tools") {
      kind = named.text("mode").value_or("auto");
      const Json* tools = named.list("tools");
      for (size_t i = 0; tools && i < tools->size() && named.fine(); ++i) {
        Body tool = named.item(*tools, "tools", i);
        read_named(tool);
      }
    } else {
      read_named(named);
      kind = t.names.empty() ? "auto" : "required";
      t.parallel = t.names.empty();
    }
  }
  if (kind == "none") t.kind = ToolChoice::Kind::None;
  else if (kind == "required") t.kind = ToolChoice::Kind::Required;
  else if (kind != "auto")
    body_.wrong("tool_choice", "expected none, auto, required or a tool, found \"" + kind + "\"");
}

void Reader::read_format() {
  Body text = body_.inside("text");
  Body format = text.inside("format");
  const std::string type = format.text("type").value_or("text");
  if (type == "json_object") return set_structure(text, "format", {Structure::Kind::JsonObject}, q_);
  if (type == "json_schema") {
    if (!format.any("schema")) format.wrong("schema", "expected a schema, found none", "invalid_schema");
    return read_schema(format, "schema", q_);
  }
  if (type != "text")
    format.wrong("type", "expected text, json_object or json_schema, found \"" + type + "\"");
}

void Reader::refuse_what_needs_a_store() {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (body_.any(name)) body_.unsupported(name, "the server keeps no responses");
  if (body_.flag("background").value_or(false))
    body_.unsupported("background", "the server keeps no responses");
}

// What the response repeats of the request.
void Reader::echo() {
  auto given = [&](const char* name, Json otherwise) {
    return body_.any(name) ? *body_.any(name) : otherwise;
  };
  Json& e = form_.echo;
  e["instructions"] = given("instructions", nullptr);
  e["max_output_tokens"] = given("max_output_tokens", nullptr);
  e["max_tool_calls"] = nullptr;
  e["parallel_tool_calls"] = q_.tool_choice.parallel;
  e["previous_response_id"] = nullptr;
  e["prompt_cache_key"] = given("prompt_cache_key", nullptr);
  Body reasoning = body_.inside("reasoning");
  e["reasoning"] = {{"effort", reasoning.any("effort") ? *reasoning.any("effort") : Json()},
                    {"summary", reasoning.any("summary") ? *reasoning.any("summary") : Json()}};
  e["service_tier"] = "default";
  e["store"] = false;
  e["temperature"] = q_.sampling.temperature;
  e["text"] = given("text", {{"format", {{"type", "text"}}}});
  e["tool_choice"] = given("tool_choice", "auto");
  e["tools"] = given("tools", Json::array());
  e["top_logprobs"] = std::max(q_.logprobs, 0);
  e["top_p"] = q_.sampling.top_p;
  e["truncation"] = given("truncation", "disabled");
  e["user"] = given("user", nullptr);
  e["metadata"] = given("metadata", Json::object());
}

void Reader::read() {
  q_.model = body_.text("model").value_or("");
  refuse_what_needs_a_store();
  c_.tools = Json::array();
  read_tools(body_, {});
  read_choice();
  check_tools(body_, q_, served_.options);
  q_.tool_choice.parallel &= body_.flag("parallel_tool_calls").value_or(true);
  read_input();
  Body reasoning = body_.inside("reasoning");
  read_effort(reasoning, "effort", q_);
  read_thinking(body_, q_);
  read_format();
  read_sampling(body_, q_);
  read_stops(body_, q_, served_.options);
  read_hints(body_, q_);
  const std::string truncation = body_.text("truncation").value_or("disabled");
  if (truncation != "auto" && truncation != "disabled")
    body_.wrong("truncation", "expected auto or disabled, found \"" + truncation + "\"");
  c_.drop_oldest = truncation == "auto";
  q_.stream = body_.flag("stream").value_or(false);
  q_.max_tokens = body_.integer("max_output_tokens", 1);
  if (!q_.max_tokens && served_.options.default_max_tokens >= 0)
    q_.max_tokens = served_.options.default_max_tokens;
  const auto include = body_.texts("include");
  auto includes = [&](const char* name) {
    return std::find(include.begin(), include.end(), name) != include.end();
  };
  form_.encrypted = includes("reasoning.encrypted_content");
  const auto top = body_.integer("top_logprobs", 0, served_.options.most_logprobs);
  if (includes("message.output_text.logprobs") || top.value_or(0) > 0) q_.logprobs = int(top.value_or(0));
  form_.logprobs = q_.logprobs;
  echo();
}

}  // namespace

std::optional<ApiError> read_responses(const Json& json, const Served& served, Question& q,
                                       ResponsesForm& form) {
  std::optional<ApiError> fault;
  Reader(json, served, q, form, fault).read();
  return fault;
}

void add_responses(Router& router, Served& served) {
  router.add("POST", "/v1/responses", On::Text,
             [&served](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
               const auto json = read_body(request, *reply);
               if (!json) return;
               Question q = new_question(served);
               ResponsesForm form;
               if (auto fault = read_responses(*json, served, q, form))
                 return void(refuse(*reply, request, *fault));
               log_skipped(q, *reply);
               auto writer = responses_writer(std::move(form), served.chat.tokenizer());
               ask(served, request, reply, std::move(q), std::move(writer));
             });
}

}  // namespace invar::server
