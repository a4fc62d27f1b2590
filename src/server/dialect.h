// How the served model thinks and calls tools, and what can be forced on its answers.  Made once.
#pragma once

#include <memory>
#include <string>

#include "base/work_thread.h"
#include "engine/chat.h"
#include "engine/constraint.h"
#include "text/answer_format.h"
#include "text/grammar.h"

namespace invar::server {

struct Dialect {
  AnswerFormat format;
  bool alternates;  // the template refuses two turns of the user side by side
  GrammarCompiler grammars;
  std::unique_ptr<WorkThread> masks;  // where they are computed
  std::unique_ptr<ConstraintMaker> constraints;

  // The parsers by their names, or auto: by what the template says.  `chat` outlives it.
  static Result<std::unique_ptr<const Dialect>> make(const Chat& chat, const std::string& chat_template,
                                                     const std::string& tool_parser,
                                                     const std::string& reasoning_parser);
};

}  // namespace invar::server
