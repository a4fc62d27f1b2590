// The tokens of one choice as the pieces of an answer: thought, text, calls, and the end by a stop string.
// Answers to raw prompts are text alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/prompt.h"
#include "text/answer_parser.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace invar::server {

class AnswerReader {
 public:
  AnswerReader(const Tokenizer& tokenizer, const AnswerFormat& format, const Question& q,
               const Tokenized& prompt, bool calls_in_thought);

  std::vector<AnswerPiece> push(Token token);
  std::vector<AnswerPiece> finish(bool cut);  // cut: the answer could have gone on

  const std::optional<std::string>& stop() const { return parser_ ? parser_->stop() : stops_.matched(); }
  bool enough() const { return stop() || one_call_said_; }  // nothing more is wanted of the choice
  int thought_tokens() const { return parser_ ? parser_->thought_tokens() : 0; }
  Block::Kind part() const { return part_; }  // that the last token belongs to

 private:
  std::vector<AnswerPiece> raw(std::string text);

  const Tokenizer* tokenizer_;
  std::optional<AnswerParser> parser_;  // of a conversation
  bool one_call_, one_call_said_ = false;
  Block::Kind part_ = Block::Kind::Text;
  bool show_control_, include_stop_;  // of a raw prompt
  Utf8Stream bytes_;
  StopStrings stops_;
};

}  // namespace invar::server
