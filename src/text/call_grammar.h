// Tool calls as a grammar in the dialect of the model: what tool_choice "required" or a name forces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/answer_format.h"
#include "text/grammar.h"

namespace invar {

struct CallRules {
  Json tools;                               // as AnswerParser takes them
  std::vector<std::string> names;           // only these; empty: all of them
  std::vector<std::string> strict = {};     // of these each keyword must be enforced
  bool parallel = true;                     // false: exactly one call
  bool required = true;                     // false: `content` instead of calls is fine
  std::optional<GrammarSpec> content = {};  // what an answer without calls must be
};

// Errors are BadRequest and name the tool and the place in its schema, "/tools/0/function/parameters/...".
Result<GrammarSpec> call_grammar(const CallRules& rules, const AnswerFormat& format,
                                 const Tokenizer& tokenizer);

// Texts that begin a call: what tool_choice "none" bans.
std::vector<std::string> call_begins(const AnswerFormat& format);

}  // namespace invar
