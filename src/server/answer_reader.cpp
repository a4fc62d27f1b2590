#include "server/answer_reader.h"

namespace invar::server {

std::optional<ApiError> reading_of(const Served&, const Question&, const Tokenized&, Reading&) { return {}; }

std::optional<ApiError> constrain(const Served&, const Question&, const Reading&, Request&) { return {}; }

AnswerReader::AnswerReader(const Tokenizer& tokenizer, const Question& q, const Reading&)
    : tokenizer_(&tokenizer), show_control_(q.show_control), include_stop_(q.include_stop), stops_(q.stops) {}

void AnswerReader::say(Pieces& out, std::string text) {
  if (stopped() && include_stop_) text += *matched();
  if (!text.empty()) out.push_back({Piece::Kind::Text, std::move(text)});
}

Pieces AnswerReader::push(Token token) {
  Pieces out;
  if (stopped()) return out;
  const bool hidden = tokenizer_->type(token) == TokenType::Control && !show_control_;
  say(out, stops_.push(bytes_.push(hidden ? std::string_view() : tokenizer_->piece(token))));
  return out;
}

Pieces AnswerReader::finish(bool) {
  Pieces out;
  if (stopped()) return out;
  std::string text = stops_.push(bytes_.finish());
  if (!stopped()) text += stops_.finish();
  say(out, std::move(text));
  return out;
}

}  // namespace invar::server
