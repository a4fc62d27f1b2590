// One tool call of an answer, read as it grows.  Where it begins is the parser's part (answer_parser.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/answer_format.h"
#include "text/tool_table.h"

namespace invar {

class CallSink {  // what a reader finds, in order
 public:
  virtual ~CallSink() = default;
  virtual void begin_call(std::string_view name) = 0;
  virtual void arguments(std::string_view json) = 0;
  virtual void end_call() = 0;
};

enum class TextEnd { No, Cut, Whole };  // more may come; a limit cut the answer; the model ended it

class CallReader {
 public:
  enum class Outcome {
    More,    // not decided without more text
    Done,    // the call is read; what is left of the text follows it
    NoCall,  // it was no call: the text is as it was, nothing was told
  };
  virtual ~CallReader() = default;

  // Takes from the front of `text`, which goes on where it was left.  With an end never More.
  virtual Outcome read(std::string& text, TextEnd end, CallSink& sink) = 0;
};

// For text behind `call_begin`; with `bare` from the name tag or the { on.
std::unique_ptr<CallReader> make_call_reader(const AnswerFormat& format, const ToolTable& tools, bool bare);

// A marker at `at` in `text`: all of it, as much as there is text, or not.
enum class Match { No, Partial, Full };
Match match_at(std::string_view text, size_t at, std::string_view marker);

}  // namespace invar
