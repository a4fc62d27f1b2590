#include "server/messages_writer.h"

#include "server/sse.h"

namespace invar::server {
namespace {

Json usage_json(const Usage& u) {
  return {{"input_tokens", u.prompt - u.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", u.cached},
          {"output_tokens", u.answer},
          {"output_tokens_details", {{"thinking_tokens", u.thought}}}};
}

const char* stop_reason_of(const Choice& choice) {
  switch (*choice.ending) {
    case Ending::StopString:
      return "stop_sequence";
    case Ending::Length:
      return "max_tokens";
    case Ending::Window:
      return "model_context_window_exceeded";
    default:
      return choice.has_calls() ? "tool_use" : "end_turn";
  }
}

Json stop_sequence_of(const Choice& choice) {
  return choice.ending == Ending::StopString ? Json(choice.stop_string) : Json();
}

Json message_frame(const Answer& answer) {
  return {{"id", "msg_" + answer.id}, {"type", "message"},
          {"role", "assistant"},      {"model", answer.model},
          {"content", Json::array()}, {"stop_reason", nullptr},
          {"stop_sequence", nullptr}, {"usage", usage_json(answer.usage())}};
}

void send(const Json& event, const Writer::Write& write) {
  write(sse_event(event["type"].get<std::string>(), json_text(event)));
}

class MessagesWriter : public Writer {
 public:
  MessagesWriter(std::string request_id, bool hide_thoughts)
      : request_id_(std::move(request_id)), hide_thoughts_(hide_thoughts) {}

  std::string whole(const Answer& answer) override {
    const Choice& choice = answer.choices[0];
    Json message = message_frame(answer);
    for (const Block& b : choice.blocks)
      if (b.kind != Block::Kind::Call || b.complete) message["content"].push_back(block_json(b));
    message["stop_reason"] = stop_reason_of(choice);
    message["stop_sequence"] = stop_sequence_of(choice);
    return json_text(message);
  }

  void begin(const Answer& answer, const Write& write) override {
    send({{"type", "message_start"}, {"message", message_frame(answer)}}, write);
  }

  void open(const Answer&, size_t, const Block& block, const Write& write) override {
    Json start = block_json(block);  // without text or arguments as yet
    if (block.kind == Block::Kind::Thought) start["signature"] = "";
    send({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(start)}}, write);
  }

  void add(const Answer&, size_t, const Block& block, std::string_view text, const Write& write) override {
    if (block.kind == Block::Kind::Thought && hide_thoughts_) return;
    const Json delta =
        block.kind == Block::Kind::Thought ? Json{{"type", "thinking_delta"}, {"thinking", text}}
        : block.kind == Block::Kind::Text  ? Json{{"type", "text_delta"}, {"text", text}}
                                           : Json{{"type", "input_json_delta"}, {"partial_json", text}};
    send({{"type", "content_block_delta"}, {"index", index_}, {"delta", delta}}, write);
  }

  void close(const Answer&, size_t, const Block& block, const Write& write) override {
    if (block.kind == Block::Kind::Thought)
      send({{"type", "content_block_delta"},
            {"index", index_},
            {"delta", {{"type", "signature_delta"}, {"signature", block.id}}}},
           write);
    send({{"type", "content_block_stop"}, {"index", index_++}}, write);
  }

  void end(const Answer& answer, const Write& write) override {
    const Choice& choice = answer.choices[0];
    send({{"type", "message_delta"},
          {"delta", {{"stop_reason", stop_reason_of(choice)}, {"stop_sequence", stop_sequence_of(choice)}}},
          {"usage", usage_json(answer.usage())}},
         write);
    send({{"type", "message_stop"}}, write);
  }

  void heartbeat(const Answer&, bool, const Write& write) override { send({{"type", "ping"}}, write); }

  bool fail(const Answer&, const ApiError& error, const Write& write) override {
    write(sse_event("error", error_body(Family::Anthropic, error, request_id_)));
    return true;
  }

 private:
  Json block_json(const Block& block) const {
    switch (block.kind) {
      case Block::Kind::Thought:
        return {
            {"type", "thinking"}, {"thinking", hide_thoughts_ ? "" : block.text}, {"signature", block.id}};
      case Block::Kind::Text:
        return {{"type", "text"}, {"text", block.text}};
      default: {
        const auto input = parse_ordered_json(block.text.empty() ? "{}" : block.text, "arguments");
        return {{"type", "tool_use"},
                {"id", "toolu_" + block.id},
                {"name", block.name},
                {"input", input ? *input : Json::object()}};
      }
    }
  }

  const std::string request_id_;
  const bool hide_thoughts_;
  int index_ = 0;  // of the block that is open
};

}  // namespace

std::unique_ptr<Writer> messages_writer(std::string request_id, bool hide_thoughts) {
  return std::make_unique<MessagesWriter>(std::move(request_id), hide_thoughts);
}

}  // namespace invar::server
