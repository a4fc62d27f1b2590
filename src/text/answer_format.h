// How a model family writes thoughts and tool calls into its answers: one entry per dialect in one table,
// found by what the chat template contains or by its name.  Reading answers is answer_parser.h, forcing
// them call_grammar.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

// Calls whose parts stand between tags.  `key_begin` KEY `key_end` `value_begin` VALUE `value_end`, after a
// name; empty tags are not written.
struct CallTags {
  std::string_view name_begin, name_end, call_close;
  std::string_view key_begin, key_end, value_begin, value_end;
  bool newlines = false;  // one newline around a value is not part of it
};

struct AnswerFormat {
  enum class Calls { None, Tags, Json };

  std::string_view name;    // of the dialect: what --tool-parser takes
  std::string_view detect;  // in the template
  Calls calls = Calls::None;
  std::string_view call_begin, call_end;  // around each call
  bool bare = false;  // models drop `call_begin`: a name tag, or { as the first of the answer, begins a call
  CallTags tags = {};
  std::string_view arguments_key = {};  // of calls in JSON

  // Around a thought.  Both empty: the family does not think.
  std::string_view think_open = {}, think_close = {};

  bool has_calls() const { return calls != Calls::None; }
  bool thinks() const { return !think_close.empty(); }
};

std::span<const AnswerFormat> answer_formats();  // qwen_xml, hermes, glm, llama3, none

// `tools`: a name of the table, or "auto"; `thoughts`: "think", "none" or "auto".
Result<AnswerFormat> answer_format(std::string_view chat_template, std::string_view tools = "auto",
                                   std::string_view thoughts = "auto");

// Whether a prompt ends inside a thought that it opened itself.
bool opens_thought(const AnswerFormat& format, std::string_view prompt_text);

}  // namespace invar
