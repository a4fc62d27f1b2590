#include "text/chat_template.h"

#include <iterator>

#include "text/textkit_error.h"
#include "textkit.h"

namespace invar {

namespace {

constexpr const char* kWhere = "tokenizer.chat_template";

void drop_nulls(Json& object) {
  for (auto it = object.begin(); it != object.end();) it = it->is_null() ? object.erase(it) : std::next(it);
}

void copy_reasoning(Json& message) {
  for (const char* from : {"reasoning_content", "thinking", "reasoning"}) {
    if (!message.contains(from)) continue;
    const Json reasoning = message[from];
    message["reasoning_content"] = reasoning;
    message["thinking"] = reasoning;
    return;
  }
}

void parse_arguments(Json& call) {
  if (!call.is_object()) return;
  Json& function = call.contains("function") ? call["function"] : call;
  if (!function.is_object() || !function.contains("arguments") || !function["arguments"].is_string()) return;
  Result<Json> parsed = parse_ordered_json(function["arguments"].get<std::string>(), "arguments");
  if (parsed && parsed->is_object()) function["arguments"] = parsed.take();  // else it stays the text it is
}

Json piece_text(const Tokenizer& tokenizer, std::optional<Token> id) {
  return id ? Json(std::string(tokenizer.piece(*id))) : Json("");
}

}  // namespace

Json prepare_messages(Json messages) {
  if (!messages.is_array()) return messages;
  for (Json& message : messages) {
    if (!message.is_object()) continue;
    drop_nulls(message);
    copy_reasoning(message);
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) parse_arguments(call);
  }
  return messages;
}

Result<Json> mark_control_text(const Json& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return Json(TRY(tokenizer.mark_control(value.get<std::string>())));
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(TRY(mark_control_text(item, tokenizer)));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [key, item] : value.items()) {
      out[TRY(tokenizer.mark_control(key))] = TRY(mark_control_text(item, tokenizer));
    }
    return out;
  }
  return Json(value);
}

Result<Json> chat_variables(const ChatInput& input, const Tokenizer& tokenizer, bool mark) {
  const auto marked = [&](const Json& value) -> Result<Json> {
    if (mark) return mark_control_text(value, tokenizer);
    return Json(value);
  };
  Json out = Json::object();
  out["bos_token"] = piece_text(tokenizer, tokenizer.bos());
  out["eos_token"] =
      piece_text(tokenizer, tokenizer.eos().empty() ? std::nullopt : std::optional(tokenizer.eos()[0]));
  out["messages"] = TRY(marked(prepare_messages(input.messages)));
  out["tools"] = TRY(marked(input.tools));
  out["documents"] = TRY(marked(input.documents));
  out["add_generation_prompt"] = input.add_generation_prompt;
  if (input.options.is_object()) {
    for (const auto& [key, value] : input.options.items()) out[key] = TRY(marked(value));
  }
  return out;
}

void ChatTemplate::Free::operator()(tk_template* t) const { tk_template_free(t); }

Result<ChatTemplate> ChatTemplate::make(std::string_view source) {
  ChatTemplate out;
  tk_template* kit = nullptr;
  char* message = nullptr;
  const tk_code code = tk_template_new(source.data(), source.size(), &kit, &message);
  if (code != TK_OK) {
    Error error = textkit_error(code, message, kWhere);
    error.code = Code::BadFile;
    return error;
  }
  out.kit_.reset(kit);
  return out;
}

Result<std::string> ChatTemplate::render(const Json& variables, int64_t now_unix) const {
  return render_text(json_text(variables), now_unix);
}

Result<std::string> ChatTemplate::render_text(std::string_view variables, int64_t now_unix) const {
  tk_buf buf;
  char* message = nullptr;
  const tk_code code =
      tk_template_render(kit_.get(), variables.data(), variables.size(), now_unix, &buf, &message);
  if (code != TK_OK) return textkit_error(code, message, kWhere);
  return take_text(buf);
}

}  // namespace invar
