#include "text/normalize.h"

#include <algorithm>
#include <utility>

namespace invar {

namespace {

constexpr std::string_view kVolatile = "x-anthropic-";  // a client's headers, new with each request

Error bad(std::string where, std::string message) {
  return Error{Code::BadRequest, std::move(where), std::move(message)};
}

std::string place(size_t i, const char* key = "") {
  return "messages/" + std::to_string(i) + (*key ? "/" : "") + key;
}

// Text without the lines of volatile headers at its front, and the blank ones behind them.
std::string_view without_headers(std::string_view text) {
  while (text.starts_with(kVolatile)) {
    const size_t rest = text.find_first_not_of("\r\n", text.find('\n'));
    text.remove_prefix(std::min(rest, text.size()));
  }
  return text;
}

// Of a text, or an object with one.  It is a part of `part`.
Result<std::string_view> part_text(const Json& part, const std::string& where) {
  if (part.is_string()) return std::string_view(part.get_ref<const std::string&>());
  if (!part.is_object()) return bad(where, "expected an object");
  const auto text = part.find(part.contains("refusal") ? "refusal" : "text");
  if (text != part.end() && text->is_string()) return std::string_view(text->get_ref<const std::string&>());
  const std::string type = part.contains("type") && part["type"].is_string() ? part["type"] : "?";
  return bad(where + "/type", "expected a text part, found '" + type + "'");
}

// A string, null, or an array of text parts.
Result<std::string> content_text(const Json& content, bool system, bool keep_headers,
                                 const std::string& where) {
  const auto kept = [&](std::string_view text) {
    return system && !keep_headers ? without_headers(text) : text;
  };
  if (content.is_null()) return std::string();
  if (content.is_string()) return std::string(kept(content.get_ref<const std::string&>()));
  if (!content.is_array()) return bad(where, "expected a string or an array of parts");
  std::string out;
  for (size_t i = 0; i < content.size(); i++) {
    const std::string_view words = kept(TRY(part_text(content[i], where + "/" + std::to_string(i))));
    if (system && !out.empty() && !words.empty()) out += "\n\n";
    out += words;
  }
  return out;
}

Json arguments_object(const Json& arguments) {
  if (arguments.is_object()) return arguments;
  if (!arguments.is_string()) return Json::object();
  const std::string& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == text.npos) return Json::object();
  Result<Json> parsed = parse_ordered_json(text, "arguments");
  if (parsed && parsed->is_object()) return parsed.take();
  return {{"_raw", text}};
}

Result<Json> tool_calls(const Json& message, size_t i) {
  Json calls = message.value("tool_calls", Json());
  if (calls.is_null() && message.contains("function_call") && message["function_call"].is_object())
    calls = Json::array({{{"type", "function"}, {"function", message["function_call"]}}});
  if (calls.is_null()) return Json::array();
  if (!calls.is_array()) return bad(place(i, "tool_calls"), "expected an array");
  Json out = Json::array();
  for (size_t k = 0; k < calls.size(); k++) {
    const std::string where = place(i, "tool_calls") + "/" + std::to_string(k);
    const Json& call = calls[k];
    if (!call.is_object()) return bad(where, "expected an object");
    const Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      return bad(where + "/function/name", "expected a string");
    Json one = Json::object();
    if (call.contains("id") && call["id"].is_string()) one["id"] = call["id"];
    one["type"] = "function";
    one["function"] = {{"name", function["name"]},
                       {"arguments", arguments_object(function.value("arguments", Json()))}};
    out.push_back(std::move(one));
  }
  return out;
}

void copy_text(const Json& from, const char* key, Json& to, const char* as) {
  if (const auto it = from.find(key); it != from.end() && it->is_string() && !to.contains(as)) to[as] = *it;
}

Result<Json> one_message(const Json& message, const std::string& role, size_t i, bool keep_headers) {
  const bool system = role == "system";
  Json out = {{"role", role}};
  out["content"] =
      TRY(content_text(message.value("content", Json()), system, keep_headers, place(i, "content")));
  if (role == "assistant") {
    for (const char* key : {"reasoning_content", "reasoning", "thinking"})
      copy_text(message, key, out, "reasoning_content");
    Json calls = TRY(tool_calls(message, i));
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
  }
  if (role == "tool") copy_text(message, "tool_call_id", out, "tool_call_id");
  copy_text(message, "name", out, "name");
  return out;
}

Result<std::string> role_of(const Json& message, size_t i) {
  if (!message.is_object()) return bad(place(i), "expected an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return bad(place(i, "role"), "expected a string");
  const std::string& name = role->get_ref<const std::string&>();
  if (name == "developer") return std::string("system");
  if (name == "function") return std::string("tool");
  for (const char* known : {"system", "user", "assistant", "tool"})
    if (name == known) return name;
  return bad(place(i, "role"),
             "expected system, developer, user, assistant or tool, found '" + name.substr(0, 40) + "'");
}

bool has_role(const Json& message, std::string_view role) { return message["role"] == role; }

void append(Json& message, const std::string& text) {
  std::string& content = message["content"].get_ref<std::string&>();
  if (!content.empty() && !text.empty()) content += "\n\n";
  content += text;
}

Json late_message(const std::string& text) {
  return {{"role", "user"}, {"content", "<system-message>\n" + text + "\n</system-message>"}};
}

void add_turn(Json& out, Json message, bool merge_users) {
  const bool joins = merge_users && has_role(message, "user") && !out.empty() && has_role(out.back(), "user");
  if (joins) append(out.back(), message["content"]);
  else out.push_back(std::move(message));
}

}  // namespace

Result<Json> normalize_messages(const Json& messages, const NormalizeOptions& options) {
  if (!messages.is_array()) return bad("messages", "expected an array");
  if (messages.empty()) return bad("messages", "expected at least one message");
  Json system = {{"role", "system"}, {"content", ""}};
  Json out = Json::array();
  std::vector<Json> late;  // behind the results of calls, which stay behind their calls
  const auto place_late = [&] {
    for (Json& turn : late) add_turn(out, std::move(turn), options.merge_users);
    late.clear();
  };
  bool answered = false, has_user = false;
  for (size_t i = 0; i < messages.size(); i++) {
    const std::string role = TRY(role_of(messages[i], i));
    Json message = TRY(one_message(messages[i], role, i, options.keep_headers));
    if (role == "system") {
      const std::string text = message["content"];
      if (text.empty()) continue;
      if (answered && options.late_system == LateSystem::Reject)
        return bad(place(i, "role"), "expected system messages only before the first answer");
      if (answered && options.late_system == LateSystem::Inline) late.push_back(late_message(text));
      else append(system, text);
      has_user = has_user || !late.empty();
      continue;
    }
    if (role != "tool") place_late();
    answered = answered || role == "assistant";
    has_user = has_user || role == "user";
    add_turn(out, std::move(message), options.merge_users);
  }
  place_late();
  if (!has_user) out.insert(out.begin(), Json{{"role", "user"}, {"content", ""}});
  if (!system["content"].get_ref<const std::string&>().empty()) out.insert(out.begin(), system);
  return out;
}

Result<Json> normalize_tools(const Json& tools) {
  if (tools.is_null()) return Json();
  if (!tools.is_array()) return bad("tools", "expected an array");
  Json out = Json::array();
  for (size_t i = 0; i < tools.size(); i++) {
    const std::string where = "tools/" + std::to_string(i);
    const Json& tool = tools[i];
    if (!tool.is_object()) return bad(where, "expected an object");
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      return bad(where + "/function/name", "expected a string");
    const std::string name = function["name"];
    if (name.empty() || name.find_first_of("<> \t\r\n") != name.npos)
      return bad(where + "/function/name", "expected a name without white space, < and >");
    Json made = {{"name", name}};
    copy_text(function, "description", made, "description");
    const char* key = function.contains("parameters") ? "parameters" : "input_schema";
    Json parameters = function.value(key, Json());
    if (parameters.is_null()) parameters = {{"type", "object"}, {"properties", Json::object()}};
    if (!parameters.is_object()) return bad(where + "/function/" + key, "expected an object");
    made["parameters"] = std::move(parameters);
    out.push_back({{"type", "function"}, {"function", std::move(made)}});
  }
  return out.empty() ? Json() : out;
}

std::optional<std::string> continues(const Json& messages) {
  if (!messages.is_array() || messages.empty()) return {};
  const Json& last = messages.back();
  if (!has_role(last, "assistant") || last.contains("tool_calls")) return {};
  return last["content"].get<std::string>();
}

}  // namespace invar
