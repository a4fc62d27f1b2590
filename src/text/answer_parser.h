// An answer as it grows: thoughts, text and tool calls, whole characters, nothing of a stop string.  The
// pieces put together do not depend on how the answer was cut, so a whole answer is the stream run to its
// end.
//
// One parser per choice, used by one thread at a time.  Text that may yet become a marker is held back, and
// no more than that.  Malformed calls become text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/answer_format.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace invar {

struct AnswerPiece {
  enum class Kind {
    Thought,
    Text,
    CallBegin,      // text: the name of the tool
    CallArguments,  // text: a piece of one JSON object; pieces are only ever appended
    CallEnd,        // the object is complete; not sent for a call that was cut
  };
  Kind kind;
  int call = -1;  // 0, 1, ... in order of appearance
  std::string text;

  bool operator==(const AnswerPiece&) const = default;
};

struct AnswerOptions {
  bool starts_in_thought = false;       // the prompt opened it (opens_thought)
  bool calls_in_thought = false;        // a call in a thought that the answer never closed is a call
  std::vector<std::string> stops = {};  // looked for in text, not in thoughts and calls
  bool keep_stop = false;               // the stop string is part of the text
};

class AnswerParser {
 public:
  // `tools`: an array in the form of OpenAI's API, [{"type":"function","function":{name, parameters}}]. None,
  // or a format without calls: nothing is parsed as a call.  The tokenizer must outlive the parser.
  AnswerParser(const Tokenizer& tokenizer, const AnswerFormat& format, const Json& tools,
               AnswerOptions options);
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;
  ~AnswerParser();

  // Each appends what is certain by now; neighbours of one kind may be pieces of one.  After a stop string
  // nothing more comes.
  void push(Token token, std::vector<AnswerPiece>& out);
  void push(std::string_view bytes, std::vector<AnswerPiece>& out);  // the same for text without tokens

  // The end.  `cut` by a limit: a call that is not complete stays open, without CallEnd.
  void finish(bool cut, std::vector<AnswerPiece>& out);

  bool in_thought() const;
  int thought_tokens() const;                      // so far, with the markers of the answer's own
  int calls() const;                               // complete ones
  const std::optional<std::string>& stop() const;  // the stop string that was found

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Neighbours of one kind and call as one piece.
std::vector<AnswerPiece> merged(std::vector<AnswerPiece> pieces);

}  // namespace invar
