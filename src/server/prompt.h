// A question's prompt as tokens: rendered by the template and tokenized, or taken as it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/question.h"
#include "server/server.h"

namespace invar::server {

struct Tokenized {
  std::vector<std::vector<Token>> prompts;
  // Of a conversation:
  std::string opening;         // of the answer, which goes on from it
  Json tools;                  // that may be called, as templates take them; null: none
  bool opens_thought = false;  // the prompt ends inside a thought
  bool may_think = false;      // the answer may begin with one
};

// No bound of length is checked.
std::optional<ApiError> tokenize(const Served& served, const Question& question, Tokenized& out);

// What does not fit the context, in the words that clients of the API look for; `most` is cut to what fits if
// the options say so.
std::optional<ApiError> check_length(const Served& served, Family family, int64_t prompt_tokens,
                                     std::optional<int64_t>& most);

}  // namespace invar::server
