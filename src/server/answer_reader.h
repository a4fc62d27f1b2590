// The tokens of one choice as the pieces of an answer: thought, text, calls; and the end by a stop string,
// which is looked for in the text alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/prompt.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace invar::server {

struct Piece {
  enum class Kind { Thought, Text, Call, Arguments, CallEnd } kind;
  std::string text;  // of a call its name
};
using Pieces = std::vector<Piece>;

// What the answers to a question are read by.
struct Reading {};
std::optional<ApiError> reading_of(const Served& served, const Question& q, const Tokenized& prompt,
                                   Reading& reading);
// Sets what the answer may be.
std::optional<ApiError> constrain(const Served& served, const Question& q, const Reading& reading,
                                  Request& request);

class AnswerReader {
 public:
  AnswerReader(const Tokenizer& tokenizer, const Question& q, const Reading& reading);

  Pieces push(Token token);
  Pieces finish(bool cut);  // cut: the answer could have gone on

  bool stopped() const { return stops_.matched().has_value(); }
  const std::optional<std::string>& matched() const { return stops_.matched(); }
  bool was_thought() const { return false; }  // the last token
  Block::Kind part() const { return Block::Kind::Text; }

 private:
  void say(Pieces& out, std::string text);

  const Tokenizer* tokenizer_;
  bool show_control_, include_stop_;
  Utf8Stream bytes_;
  StopStrings stops_;
};

}  // namespace invar::server
