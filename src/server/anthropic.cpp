// /v1/messages and /v1/messages/count_tokens: what a request says, as a question.
#include <map>
#include <utility>

#include "server/ask.h"
#include "server/messages_writer.h"
#include "server/parse.h"
#include "server/prompt.h"

namespace invar::server {
namespace {

constexpr const char* kBetween = "\n\n";  // a document or the like and what stands beside it

void append(std::string& text, const std::string& more) {
  if (more.empty()) return;
  if (!text.empty()) text += kBetween;
  text += more;
}

// The text of blocks: those of plain text are one, as parts are in the other APIs.
class Joined {
 public:
  void add(const std::string& more, bool plain) {
    if (more.empty()) return;
    if (!text_.empty() && !(plain && plain_)) text_ += kBetween;
    text_ += more;
    plain_ = plain;
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
  bool plain_ = true;  // the last was
};

// Of tools that the vendor runs, and thoughts that only it can read.
bool is_vendors(const std::string& type) {
  return type == "server_tool_use" || type == "mcp_tool_use" || type == "container_upload" ||
         type == "redacted_thinking" || type.ends_with("_tool_result");
}

class Reader {
 public:
  Reader(const Json& json, const Served& served, Question& q, std::optional<ApiError>& fault)
      : body_(json, fault), served_(served), q_(q), c_(q.conversation.emplace()) {}

  void read(bool counting);

 private:
  void read_tools();
  void read_choice();
  void read_system(Body& holder, const char* name);
  void read_message(Body message);
  void read_user(Body& message);
  void read_assistant(Body& message);
  void read_thinking_mode();
  void read_output();
  std::string text_of(Body& holder, const char* name);
  void add_block(Joined& text, Body& block);
  std::string block_text(Body& block);
  std::string document_text(Body& block);
  std::string result_text(Body& block);
  std::string reference_text(Body& block);
  void say(const char* role, Json content) {
    c_.messages.push_back({{"role", role}, {"content", std::move(content)}});
  }

  Body body_;
  const Served& served_;
  Question& q_;
  Conversation& c_;
  std::map<std::string, std::string> deferred_;  // the text of each, by its name
  int64_t referred_bytes_ = 0;                   // in all references so far
};

// A string, or the text of its blocks.
std::string Reader::text_of(Body& holder, const char* name) {
  const Json* content = holder.any(name);
  if (!content) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    holder.wrong(name, "expected a string or a list of blocks, found " + kind_of(*content));
    return {};
  }
  Joined text;
  for (size_t i = 0; i < content->size() && holder.fine(); ++i) {
    Body block = holder.item(*content, name, i);
    add_block(text, block);
  }
  return text.take();
}

void Reader::add_block(Joined& text, Body& block) {
  const bool plain = block.text("type") == "text";
  text.add(block_text(block), plain);
}

// Of blocks that are text in the end.
std::string Reader::block_text(Body& block) {
  const std::string type = block.text("type").value_or("");
  if (type == "text") return block.needed_text("text");
  if (type == "document") return document_text(block);
  if (type == "tool_reference") return reference_text(block);
  if (type == "search_result") {
    std::string text = block.text("title").value_or("");
    append(text, block.text("source").value_or(""));
    append(text, text_of(block, "content"));
    return text;
  }
  if (type == "image") block.unsupported("type", "images; the model reads text");
  else if (is_vendors(type)) skip(q_, type);
  else block.wrong("type", "expected text or another type of blocks, found \"" + type + "\"");
  return {};
}

std::string Reader::document_text(Body& block) {
  Body source = block.inside("source");
  const std::string type = source.text("type").value_or("");
  std::string text = block.text("title").value_or("");
  append(text, block.text("context").value_or(""));
  if (type == "text") append(text, source.needed_text("data"));
  else if (type == "content") append(text, text_of(source, "content"));
  else source.unsupported("type", "documents of type \"" + type + "\"; the model reads text");
  return text;
}

// The schema of a tool that was left out of the others, each time; all of them together are bounded as tools
// are.
std::string Reader::reference_text(Body& block) {
  const std::string name = block.needed_text("tool_name");
  const auto tool = deferred_.find(name);
  if (tool == deferred_.end()) return name;
  referred_bytes_ += int64_t(tool->second.size());
  if (referred_bytes_ <= served_.options.most_tool_bytes) return tool->second;
  block.wrong("tool_name", "expected at most " + std::to_string(served_.options.most_tool_bytes) +
                               " bytes of tools that are referred to");
  return {};
}

// By parts, since each may begin with headers that are dropped.
void Reader::read_system(Body& holder, const char* name) {
  const Json* system = holder.any(name);
  if (!system) return;
  if (!system->is_array()) return say("system", text_of(holder, name));
  Json parts = Json::array();
  for (size_t i = 0; i < system->size() && holder.fine(); ++i) {
    Body block = holder.item(*system, name, i);
    parts.push_back({{"type", "text"}, {"text", block_text(block)}});
  }
  say("system", std::move(parts));
}

// That a tool failed is said in front, unless its text says so already: templates know of no failures.
std::string Reader::result_text(Body& block) {
  const std::string text = text_of(block, "content");
  if (!block.flag("is_error").value_or(false) || text.starts_with("Error")) return text;
  return text.empty() ? "Error" : "Error: " + text;
}

void Reader::read_user(Body& message) {
  const Json* content = message.any("content");
  if (!content) message.wrong("content", "expected a string or a list of blocks, found none");
  if (!content || !content->is_array()) return say("user", text_of(message, "content"));
  Joined text;
  auto flush = [&] {
    if (std::string said = text.take(); !said.empty()) say("user", std::move(said));
  };
  for (size_t i = 0; i < content->size() && message.fine(); ++i) {
    Body block = message.item(*content, "content", i);
    if (block.text("type") != "tool_result") {
      add_block(text, block);
      continue;
    }
    flush();
    say("tool", result_text(block));
    c_.messages.back()["tool_call_id"] = block.text("tool_use_id").value_or("");
  }
  flush();
}

void Reader::read_assistant(Body& message) {
  Json m = {{"role", "assistant"}, {"content", ""}};
  const Json* content = message.any("content");
  if (!content || !content->is_array()) {
    m["content"] = text_of(message, "content");
    c_.messages.push_back(std::move(m));
    return;
  }
  Joined text;
  std::string thought;
  Json calls = Json::array();
  for (size_t i = 0; i < content->size() && message.fine(); ++i) {
    Body block = message.item(*content, "content", i);
    const std::string type = block.text("type").value_or("");
    if (type == "thinking") {
      thought += block.text("thinking").value_or("");
    } else if (type == "tool_use") {
      const Json* input = block.object("input");
      calls.push_back(
          {{"id", block.text("id").value_or("")},
           {"type", "function"},
           {"function",
            {{"name", block.needed_text("name")}, {"arguments", input ? *input : Json::object()}}}});
    } else {
      add_block(text, block);
    }
  }
  m["content"] = text.take();
  if (!thought.empty()) m["reasoning_content"] = std::move(thought);
  if (!calls.empty()) m["tool_calls"] = std::move(calls);
  c_.messages.push_back(std::move(m));
}

void Reader::read_message(Body message) {
  const std::string role = message.text("role").value_or("");
  if (role == "user") read_user(message);
  else if (role == "assistant") read_assistant(message);
  else if (role == "system") read_system(message, "content");
  else message.wrong("role", "expected user or assistant, found \"" + role + "\"");
}

void Reader::read_tools() {
  c_.tools = Json::array();
  const Json* tools = body_.list("tools");
  for (size_t i = 0; tools && i < tools->size() && body_.fine(); ++i) {
    Body tool = body_.item(*tools, "tools", i);
    if (const std::string type = tool.text("type").value_or("custom"); type != "custom") {
      skip(q_, type);
      continue;
    }
    const auto name = tool.text("name");
    if (!name || name->empty()) {
      tool.wrong("name", "expected the name of a tool, found none");
      continue;
    }
    Json& list = tool.flag("defer_loading").value_or(false) ? c_.deferred : c_.tools;
    list.push_back(function_tool(*name, tool.any("description"), tool.object("input_schema")));
    if (tool.flag("strict").value_or(false)) list.back()["function"]["strict"] = true;
  }
}

void Reader::read_choice() {
  Body choice = body_.inside("tool_choice");
  const std::string type = choice.text("type").value_or("auto");
  ToolChoice& t = q_.tool_choice;
  t.parallel = !choice.flag("disable_parallel_tool_use").value_or(false);
  if (type == "none") t.kind = ToolChoice::Kind::None;
  else if (type == "any") t.kind = ToolChoice::Kind::Required;
  else if (type == "tool") t.kind = ToolChoice::Kind::Required, t.names = {choice.text("name").value_or("")};
  else if (type != "auto") choice.wrong("type", "expected auto, any, tool or none, found \"" + type + "\"");
}

void Reader::read_thinking_mode() {
  Body thinking = body_.inside("thinking");
  const auto type = thinking.text("type");
  if (!type) return;
  if (*type == "disabled") q_.thinking.on = false;
  else if (*type == "enabled") {
    q_.thinking.on = true;
    q_.thinking.budget = thinking.integer("budget_tokens", 1);
  } else if (*type == "adaptive" || *type == "between_tools") {
    if (!q_.thinking.on) q_.thinking.on = true;  // else the effort has said
  } else {
    thinking.wrong("type", "expected enabled, adaptive or disabled, found \"" + *type + "\"");
  }
}

void Reader::read_output() {
  Body output = body_.inside("output_config");
  read_effort(output, "effort", q_);
  for (Body format : {output.inside("format"), body_.inside("output_format")}) {
    const auto type = format.text("type");
    if (type && *type != "json_schema") format.wrong("type", "expected json_schema, found \"" + *type + "\"");
    if (type && !format.any("schema"))
      format.wrong("schema", "expected a schema, found none", "invalid_schema");
    read_schema(format, "schema", q_);
  }
}

void Reader::read(bool counting) {
  q_.model = body_.text("model").value_or("");
  read_tools();
  read_choice();
  check_tools(body_, q_, served_.options);
  if (!body_.fine()) return;
  for (const Json& tool : c_.deferred) deferred_.emplace(tool["function"]["name"], json_text(tool));
  read_system(body_, "system");
  const Json* messages = body_.list("messages");
  if (!messages || (messages->empty() && !counting))
    body_.wrong("messages", "expected at least one message, found none");
  for (size_t i = 0; messages && i < messages->size() && body_.fine(); ++i)
    read_message(body_.item(*messages, "messages", i));
  read_output();
  read_thinking_mode();
  read_thinking(body_, q_);
  read_sampling(body_, q_);
  q_.stops = body_.texts("stop_sequences");
  if (q_.stops.size() > size_t(served_.options.most_stops))
    body_.wrong("stop_sequences",
                "expected at most " + std::to_string(served_.options.most_stops) + " texts");
  q_.stream = body_.flag("stream").value_or(false);
  q_.max_tokens = body_.integer("max_tokens", 0);
  if (!q_.max_tokens && !counting) body_.wrong("max_tokens", "expected an integer, found none");
  if (const Json* servers = body_.list("mcp_servers"); servers && !servers->empty())
    body_.unsupported("mcp_servers", "the server calls no others");
}

std::optional<ApiError> read_any(const Json& json, const Served& served, Question& q, bool counting) {
  std::optional<ApiError> fault;
  Reader(json, served, q, fault).read(counting);
  return fault;
}

}  // namespace

std::optional<ApiError> read_messages(const Json& json, const Served& served, Question& q) {
  return read_any(json, served, q, false);
}

void add_messages(Router& router, Served& served) {
  router.add("POST", "/v1/messages", On::Text,
             [&served](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
               const auto json = read_body(request, *reply);
               if (!json) return;
               Question q = new_question(served);
               if (auto fault = read_messages(*json, served, q)) return void(refuse(*reply, request, *fault));
               log_skipped(q, *reply);
               const auto thinking = json->find("thinking");
               const bool hide = thinking != json->end() && thinking->is_object() &&
                                 thinking->value("display", Json()) == "omitted";
               ask(served, request, reply, std::move(q), messages_writer(request.id, hide));
             });
  router.add("POST", "/v1/messages/count_tokens", On::Text,
             [&served](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
               const auto json = read_body(request, *reply);
               if (!json) return;
               Question q = new_question(served);
               Tokenized tokenized;
               auto fault = read_any(*json, served, q, true);
               if (!fault) fault = tokenize(served, q, tokenized);
               if (fault) return void(refuse(*reply, request, *fault));
               send_json(*reply, {{"input_tokens", tokenized.prompts[0].size()}});
             });
}

}  // namespace invar::server
