// /v1/chat/completions: what a request says, as a question.
#include <algorithm>

#include "server/ask.h"
#include "server/chat_writer.h"
#include "server/parse.h"

namespace invar::server {
namespace {

// The texts of a message: a string, or parts that are text.
std::vector<std::string> read_texts(Body& message) {
  const Json* content = message.any("content");
  if (!content) return {};
  if (content->is_string()) return {content->get<std::string>()};
  if (!content->is_array()) {
    message.wrong("content", "expected a string or a list of parts, found " + kind_of(*content));
    return {};
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < content->size() && message.fine(); ++i) {
    if ((*content)[i].is_string()) {
      texts.push_back((*content)[i].get<std::string>());
      continue;
    }
    Body part = message.item(*content, "content", i);
    const std::string type = part.text("type").value_or("text");
    if (type == "text" || type == "refusal") texts.push_back(part.needed_text(type.c_str()));
    else part.unsupported("type", "parts of type \"" + type + "\"; the model reads text");
  }
  return texts;
}

Json read_call(Body call, Body function) {
  const auto name = function.text("name");
  if (!name) function.wrong("name", "expected the name of a function, found none");
  const Json* arguments = function.any("arguments");
  if (arguments && !arguments->is_string() && !arguments->is_object())
    function.wrong("arguments", "expected a string or an object, found " + kind_of(*arguments));
  Json j = {{"type", "function"},
            {"function", {{"name", name.value_or("")}, {"arguments", arguments ? *arguments : Json("")}}}};
  if (const auto id = call.text("id")) j["id"] = *id;
  return j;
}

Json read_message(Body message) {
  constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  const std::string role = message.text("role").value_or("");
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles))
    message.wrong("role", "expected system, developer, user, assistant or tool, found \"" + role + "\"");
  Json m = {{"role", role == "function" ? "tool" : role}, {"content", content_of(role, read_texts(message))}};
  for (const char* name : {"name", "tool_call_id"})
    if (const auto text = message.text(name)) m[name] = *text;
  if (role != "assistant") return m;
  for (const char* name : {"reasoning_content", "reasoning"})
    if (const auto thought = message.text(name)) m["reasoning_content"] = *thought;
  Json calls = Json::array();
  if (const Json* list = message.list("tool_calls"))
    for (size_t i = 0; i < list->size() && message.fine(); ++i) {
      Body call = message.item(*list, "tool_calls", i);
      calls.push_back(read_call(call, call.inside("function")));
    }
  if (message.object("function_call")) {
    Body call = message.inside("function_call");
    calls.push_back(read_call(call, call));
  }
  if (!calls.empty()) m["tool_calls"] = std::move(calls);
  return m;
}

// A function in any of the places that have one.
void add_function(Body function, Conversation& c) {
  const auto name = function.text("name");
  if (!name || name->empty()) return function.wrong("name", "expected the name of a function, found none");
  c.tools.push_back(function_tool(*name, function.any("description"), function.object("parameters")));
  if (function.flag("strict").value_or(false)) c.tools.back()["function"]["strict"] = true;
}

void read_tools(Body& body, Question& q) {
  Conversation& c = *q.conversation;
  c.tools = Json::array();
  if (const Json* tools = body.list("tools"))
    for (size_t i = 0; i < tools->size() && body.fine(); ++i) {
      Body tool = body.item(*tools, "tools", i);
      const std::string type = tool.text("type").value_or("function");
      if (type == "function") add_function(tool.inside("function"), c);
      else if (type == "custom") tool.unsupported("type", "custom tools; they are in /v1/responses");
      else skip(q, type);
    }
  if (const Json* functions = body.list("functions"))
    for (size_t i = 0; i < functions->size() && body.fine(); ++i)
      add_function(body.item(*functions, "functions", i), c);
}

void read_choice(Body& body, const char* field, Question& q) {
  const Json* choice = body.any(field);
  if (!choice) return;
  if (choice->is_string()) {
    const std::string kind = choice->get<std::string>();
    if (kind == "none") q.tool_choice.kind = ToolChoice::Kind::None;
    else if (kind == "required") q.tool_choice.kind = ToolChoice::Kind::Required;
    else if (kind != "auto")
      body.wrong(field, "expected none, auto, required or a function, found \"" + kind + "\"");
    return;
  }
  Body named = body.inside(field);
  const std::string type = named.text("type").value_or("function");
  if (type == "allowed_tools") {
    Body allowed = named.inside("allowed_tools");
    if (allowed.text("mode") == "required") q.tool_choice.kind = ToolChoice::Kind::Required;
    if (const Json* tools = allowed.list("tools"))
      for (size_t i = 0; i < tools->size() && body.fine(); ++i) {
        Body function = allowed.item(*tools, "tools", i).inside("function");
        q.tool_choice.names.push_back(function.text("name").value_or(""));
      }
    return;
  }
  if (type != "function") return named.unsupported("type", "a choice of type \"" + type + "\"");
  Body function = named.any("function") ? named.inside("function") : named;
  q.tool_choice.kind = ToolChoice::Kind::Required;
  q.tool_choice.names = {function.text("name").value_or("")};
  q.tool_choice.parallel = false;
}

// Functions from before there were tools: an answer has one call.
bool has_legacy_calls(const Json& json) {
  auto given = [&](const char* name) { return json.contains(name) && !json[name].is_null(); };
  return given("functions") && !given("tools");
}

void refuse_what_cannot_be(Body& body) {
  if (body.any("truncate_prompt_tokens"))
    body.unsupported("truncate_prompt_tokens", "a conversation is not cut; /v1/completions has it");
  for (const char* name : {"audio", "web_search_options"})
    if (body.any(name)) body.unsupported(name, "answers are text of the model");
  for (const std::string& modality : body.texts("modalities"))
    if (modality != "text") body.unsupported("modalities", "answers are text");
}

}  // namespace

std::optional<ApiError> read_chat(const Json& json, const Served& served, Question& q) {
  std::optional<ApiError> fault;
  Body body(json, fault);
  Conversation& c = q.conversation.emplace();
  q.model = body.text("model").value_or("");
  const Json* messages = body.list("messages");
  if (!messages || messages->empty()) body.wrong("messages", "expected at least one message, found none");
  for (size_t i = 0; messages && i < messages->size() && body.fine(); ++i)
    c.messages.push_back(read_message(body.item(*messages, "messages", i)));
  if (const Json* documents = body.list("documents")) c.documents = *documents;
  if (body.any("chat_template"))
    body.unsupported("chat_template", "a template is code; the server does not take any from requests");
  c.add_generation_prompt = body.flag("add_generation_prompt").value_or(true);
  c.continue_final = body.flag("continue_final_message").value_or(false);
  read_tools(body, q);
  read_choice(body, "tool_choice", q);
  read_choice(body, "function_call", q);
  check_tools(body, q, served.options);
  if (const auto parallel = body.flag("parallel_tool_calls")) q.tool_choice.parallel &= *parallel;
  if (has_legacy_calls(json)) q.tool_choice.parallel = false;
  read_effort(body, "reasoning_effort", q);
  read_thinking(body, q);
  refuse_what_cannot_be(body);
  read_sampling(body, q);
  read_stops(body, q, served.options);
  read_choices(body, q, served.options);
  read_stream(body, q);
  read_structure(body, q);
  read_hints(body, q);
  q.echo = body.flag("echo").value_or(false);
  const auto top = body.integer("top_logprobs", 0, served.options.most_logprobs);
  if (body.flag("logprobs").value_or(false)) q.logprobs = int(top.value_or(0));
  else if (top.value_or(0) > 0) body.wrong("top_logprobs", "expected logprobs to be true");
  const auto most = body.integer("max_tokens", 0), newer = body.integer("max_completion_tokens", 0),
             predict = body.integer("n_predict", -1);
  q.max_tokens = newer ? newer : most ? most : predict;
  if (q.max_tokens == -1) q.max_tokens.reset();
  if (!q.max_tokens && served.options.default_max_tokens >= 0)
    q.max_tokens = served.options.default_max_tokens;
  return fault;
}

void add_chat(Router& router, Served& served) {
  router.add("POST", "/v1/chat/completions", On::Text,
             [&served](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
               const auto json = read_body(request, *reply);
               if (!json) return;
               Question q = new_question(served);
               if (auto fault = read_chat(*json, served, q)) return void(refuse(*reply, request, *fault));
               log_skipped(q, *reply);
               ChatWriter::Options options;
               options.reasoning_field = served.options.reasoning_field;
               if (json->contains("separate_reasoning") && (*json)["separate_reasoning"] == false)
                 options.reasoning_field = "content";
               options.legacy_call = has_legacy_calls(*json);
               auto form = openai_form(q, served.chat.tokenizer(), served.model.version);
               ask(served, request, reply, std::move(q),
                   std::make_unique<ChatWriter>(std::move(form), std::move(options)));
             });
}

}  // namespace invar::server
