#include "server/responses_writer.h"

#include <algorithm>

#include "server/openai_format.h"
#include "server/sse.h"

namespace invar::server {
namespace {

Json usage_json(const Usage& u) {
  return {{"input_tokens", u.prompt},
          {"input_tokens_details", {{"cached_tokens", u.cached}}},
          {"output_tokens", u.answer},
          {"output_tokens_details", {{"reasoning_tokens", u.thought}}},
          {"total_tokens", u.prompt + u.answer}};
}

bool cut(const Choice& choice) { return choice.ending == Ending::Length || choice.ending == Ending::Window; }

// The text argument of a custom tool, which the model sees as a function.
std::string input_of(const Block& call) {
  const auto arguments = parse_ordered_json(call.text, "arguments");
  if (!arguments || !arguments->is_object() || !arguments->contains("input")) return {};
  const Json& input = (*arguments)["input"];
  return input.is_string() ? input.get<std::string>() : json_text(input);
}

std::span<const Said> tokens_of(const Choice& choice, const Block& block) {
  if (block.last_token <= block.first_token) return {};  // it is open
  return std::span(choice.tokens).first(block.last_token).subspan(block.first_token);
}

class ResponsesWriter : public Writer {
 public:
  ResponsesWriter(ResponsesForm form, const Tokenizer& tokenizer)
      : form_(std::move(form)), tokenizer_(tokenizer) {}

  std::string whole(const Answer& answer) override;
  void begin(const Answer& answer, const Write& write) override;
  void open(const Answer& answer, size_t choice, const Block& block, const Write& write) override;
  void add(const Answer& answer, size_t choice, const Block& block, std::string_view text,
           const Write& write) override;
  void close(const Answer& answer, size_t choice, const Block& block, const Write& write) override;
  void end(const Answer& answer, const Write& write) override;
  void heartbeat(const Answer& answer, bool begun, const Write& write) override;
  bool fail(const Answer& answer, const ApiError& error, const Write& write) override;

 private:
  void send(const char* type, Json fields, const Write& write);
  void send_of(const char* type, const Block& block, Json fields, const Write& write);
  Json response(const Answer& answer, const char* status) const;
  Json item(const Choice& choice, const Block& block, const char* status) const;
  Json part(const Choice& choice, const Block& block) const;
  Json logprobs(std::span<const Said> said) const;
  const ResponsesForm::Tool* tool(const Block& block) const;
  bool is_custom(const Block& block) const;
  std::string item_id(const Block& block) const;
  std::string name_of(const Block& block) const;

  const ResponsesForm form_;
  const Tokenizer& tokenizer_;
  int64_t sequence_ = 0;
  int output_ = 0;        // index of the item that is open
  size_t said_ = 0;       // tokens whose log-probabilities were sent
  bool started_ = false;  // the first two events are out
};

const ResponsesForm::Tool* ResponsesWriter::tool(const Block& block) const {
  const auto at = form_.tools.find(block.name);
  return at == form_.tools.end() ? nullptr : &at->second;
}

bool ResponsesWriter::is_custom(const Block& block) const {
  const ResponsesForm::Tool* t = tool(block);
  return t && t->custom;
}

std::string ResponsesWriter::name_of(const Block& block) const {
  const ResponsesForm::Tool* t = tool(block);
  return t ? t->name : block.name;
}

std::string ResponsesWriter::item_id(const Block& block) const {
  switch (block.kind) {
    case Block::Kind::Thought:
      return "rs_" + block.id;
    case Block::Kind::Text:
      return "msg_" + block.id;
    default:
      return (is_custom(block) ? "ctc_" : "fc_") + block.id;
  }
}

Json ResponsesWriter::logprobs(std::span<const Said> said) const {
  auto entry = [&](Token token, float value) -> Json {
    return {{"token", token_text(tokenizer_, token, false)},
            {"logprob", value},
            {"bytes", bytes_of(tokenizer_, token)}};
  };
  Json list = Json::array();
  for (const Said& s : said) {
    if (s.part != Block::Kind::Text || !s.logprob) continue;
    Json one = entry(s.token, s.logprob->value);
    one["top_logprobs"] = Json::array();
    for (size_t i = 0; i < s.logprob->best.size() && i < size_t(form_.logprobs); ++i)
      one["top_logprobs"].push_back(entry(s.logprob->best[i].first, s.logprob->best[i].second));
    list.push_back(std::move(one));
  }
  return list;
}

Json ResponsesWriter::part(const Choice& choice, const Block& block) const {
  if (block.kind == Block::Kind::Thought) return {{"type", "reasoning_text"}, {"text", block.text}};
  return {{"type", "output_text"},
          {"text", block.text},
          {"annotations", Json::array()},
          {"logprobs", form_.logprobs >= 0 ? logprobs(tokens_of(choice, block)) : Json::array()}};
}

Json ResponsesWriter::item(const Choice& choice, const Block& block, const char* status) const {
  Json j = {{"id", item_id(block)}};
  Json parts = Json::array();
  if (!block.text.empty() && block.kind != Block::Kind::Call) parts.push_back(part(choice, block));
  if (block.kind == Block::Kind::Thought) {
    j.update({{"type", "reasoning"}, {"status", status}, {"summary", Json::array()}, {"content", parts}});
    j["encrypted_content"] = form_.encrypted ? Json(to_base64(block.text)) : Json();
  } else if (block.kind == Block::Kind::Text) {
    j.update({{"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", parts}});
  } else {
    const bool custom = is_custom(block);
    j.update({{"type", custom ? "custom_tool_call" : "function_call"},
              {"status", status},
              {"call_id", "call_" + block.id},
              {"name", name_of(block)}});
    if (const auto* t = tool(block); t && !t->space.empty()) j["namespace"] = t->space;
    j[custom ? "input" : "arguments"] = custom ? input_of(block) : block.text;
  }
  return j;
}

// With the items that are complete; `status` of a response that has not ended: without.
Json ResponsesWriter::response(const Answer& answer, const char* status) const {
  const Choice& choice = answer.choices[0];
  Json j = {{"id", "resp_" + answer.id},     {"object", "response"},
            {"created_at", answer.created},  {"status", status},
            {"background", false},           {"error", nullptr},
            {"incomplete_details", nullptr}, {"model", answer.model}};
  j.update(form_.echo);
  j["output"] = Json::array();
  j["usage"] = nullptr;
  if (!choice.ending) return j;
  const bool incomplete = cut(choice);
  for (size_t i = 0; i < choice.blocks.size(); ++i) {
    const Block& b = choice.blocks[i];
    if (b.kind == Block::Kind::Call && !b.complete) continue;
    const bool last = i + 1 == choice.blocks.size() && b.kind != Block::Kind::Call;
    j["output"].push_back(item(choice, b, incomplete && last ? "incomplete" : "completed"));
  }
  if (incomplete) j["incomplete_details"] = {{"reason", "max_output_tokens"}};
  j["usage"] = usage_json(answer.usage());
  j["seed"] = answer.seed;
  return j;
}

std::string ResponsesWriter::whole(const Answer& answer) {
  return json_text(response(answer, cut(answer.choices[0]) ? "incomplete" : "completed"));
}

void ResponsesWriter::send(const char* type, Json fields, const Write& write) {
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(fields);
  write(sse_event(type, json_text(event)));
}

// About the item that is open.
void ResponsesWriter::send_of(const char* type, const Block& block, Json fields, const Write& write) {
  Json about = {{"item_id", item_id(block)}, {"output_index", output_}};
  if (block.kind != Block::Kind::Call) about["content_index"] = 0;
  about.update(fields);
  send(type, std::move(about), write);
}

void ResponsesWriter::begin(const Answer& answer, const Write& write) {
  if (std::exchange(started_, true)) return;
  const Json now = response(answer, "in_progress");
  send("response.created", {{"response", now}}, write);
  send("response.in_progress", {{"response", now}}, write);
}

void ResponsesWriter::open(const Answer& answer, size_t, const Block& block, const Write& write) {
  const Choice& choice = answer.choices[0];
  send("response.output_item.added",
       {{"output_index", output_}, {"item", item(choice, block, "in_progress")}}, write);
  if (block.kind == Block::Kind::Call) return;
  Json empty = part({}, block);
  send_of("response.content_part.added", block, {{"part", std::move(empty)}}, write);
}

void ResponsesWriter::add(const Answer& answer, size_t, const Block& block, std::string_view text,
                          const Write& write) {
  if (block.kind == Block::Kind::Thought)
    return send_of("response.reasoning_text.delta", block, {{"delta", text}}, write);
  if (block.kind == Block::Kind::Call) {
    if (!is_custom(block)) send_of("response.function_call_arguments.delta", block, {{"delta", text}}, write);
    return;
  }
  const auto& tokens = answer.choices[0].tokens;
  Json list = Json::array();
  if (form_.logprobs >= 0) list = logprobs(std::span(tokens).subspan(std::max(said_, block.first_token)));
  said_ = tokens.size();
  send_of("response.output_text.delta", block, {{"delta", text}, {"logprobs", std::move(list)}}, write);
}

void ResponsesWriter::close(const Answer& answer, size_t, const Block& block, const Write& write) {
  const Choice& choice = answer.choices[0];
  const bool whole = block.kind == Block::Kind::Call ? block.complete : !choice.ending || !cut(choice);
  if (block.kind == Block::Kind::Call && !whole) {
    // Its arguments are no JSON as yet, so nothing says that they are done.
  } else if (block.kind == Block::Kind::Call && is_custom(block)) {
    const std::string input = input_of(block);
    send_of("response.custom_tool_call_input.delta", block, {{"delta", input}}, write);
    send_of("response.custom_tool_call_input.done", block, {{"input", input}}, write);
  } else if (block.kind == Block::Kind::Call) {
    send_of("response.function_call_arguments.done", block,
            {{"name", name_of(block)}, {"arguments", block.text}}, write);
  } else {
    const bool thought = block.kind == Block::Kind::Thought;
    const Json part = this->part(choice, block);
    Json done = {{"text", block.text}};
    if (!thought) done["logprobs"] = part["logprobs"];
    send_of(thought ? "response.reasoning_text.done" : "response.output_text.done", block, std::move(done),
            write);
    send_of("response.content_part.done", block, {{"part", part}}, write);
  }
  send("response.output_item.done",
       {{"output_index", output_++}, {"item", item(choice, block, whole ? "completed" : "incomplete")}},
       write);
}

void ResponsesWriter::end(const Answer& answer, const Write& write) {
  const bool incomplete = cut(answer.choices[0]);
  send(incomplete ? "response.incomplete" : "response.completed",
       {{"response", response(answer, incomplete ? "incomplete" : "completed")}}, write);
}

void ResponsesWriter::heartbeat(const Answer& answer, bool, const Write& write) {
  if (!started_) return begin(answer, write);
  send("response.in_progress", {{"response", response(answer, "in_progress")}}, write);
}

bool ResponsesWriter::fail(const Answer& answer, const ApiError& error, const Write& write) {
  begin(answer, write);
  Json failed = response(answer, "failed");
  failed["error"] = {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
  send("response.failed", {{"response", std::move(failed)}}, write);
  return true;
}

}  // namespace

std::unique_ptr<Writer> responses_writer(ResponsesForm form, const Tokenizer& tokenizer) {
  return std::make_unique<ResponsesWriter>(std::move(form), tokenizer);
}

std::string to_base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = 0; j < 3; ++j) three = three << 8 | (i + j < bytes.size() ? uint8_t(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += i + j > bytes.size() ? '=' : kDigits[three >> (18 - 6 * j) & 63];
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    int digit;
    if (c >= 'A' && c <= 'Z') digit = c - 'A';
    else if (c >= 'a' && c <= 'z') digit = c - 'a' + 26;
    else if (c >= '0' && c <= '9') digit = c - '0' + 52;
    else if (c == '+') digit = 62;
    else if (c == '/') digit = 63;
    else return {};
    bits = bits << 6 | uint32_t(digit);
    if ((held += 6) < 8) continue;
    held -= 8;
    out += char(bits >> held & 0xFF);
  }
  return out;
}

}  // namespace invar::server
