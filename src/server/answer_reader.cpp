#include "server/answer_reader.h"

namespace invar::server {

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const AnswerFormat& format, const Question& q,
                           const Tokenized& prompt, bool calls_in_thought)
    : tokenizer_(&tokenizer),
      one_call_(!q.tool_choice.parallel),
      show_control_(q.show_control),
      include_stop_(q.include_stop),
      stops_(q.stops) {
  if (!q.conversation) return;
  AnswerOptions options;
  options.starts_in_thought = prompt.opens_thought;
  options.calls_in_thought = calls_in_thought;
  options.stops = q.stops;
  options.keep_stop = q.include_stop;
  const bool calls = q.tool_choice.kind != ToolChoice::Kind::None;
  parser_.emplace(tokenizer, format, calls ? prompt.tools : Json(), options);
  if (prompt.opens_thought) part_ = Block::Kind::Thought;
}

std::vector<AnswerPiece> AnswerReader::raw(std::string text) {
  if (stop() && include_stop_) text += *stop();
  if (text.empty()) return {};
  return {{AnswerPiece::Kind::Text, -1, std::move(text)}};
}

std::vector<AnswerPiece> AnswerReader::push(Token token) {
  std::vector<AnswerPiece> out;
  if (enough()) return out;
  if (!parser_) {
    const bool hidden = tokenizer_->type(token) == TokenType::Control && !show_control_;
    return raw(stops_.push(bytes_.push(hidden ? std::string_view() : tokenizer_->piece(token))));
  }
  parser_->push(token, out);
  for (const AnswerPiece& piece : out) {
    part_ = piece.kind == AnswerPiece::Kind::Thought ? Block::Kind::Thought
            : piece.kind == AnswerPiece::Kind::Text  ? Block::Kind::Text
                                                     : Block::Kind::Call;
    one_call_said_ |= one_call_ && piece.kind == AnswerPiece::Kind::CallEnd;
  }
  if (parser_->in_thought()) part_ = Block::Kind::Thought;
  return out;
}

std::vector<AnswerPiece> AnswerReader::finish(bool cut) {
  std::vector<AnswerPiece> out;
  if (enough()) return out;
  if (parser_) {
    parser_->finish(cut, out);
    return out;
  }
  std::string text = stops_.push(bytes_.finish());
  if (!stop()) text += stops_.finish();
  return raw(std::move(text));
}

}  // namespace invar::server
