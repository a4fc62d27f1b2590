// What a question allows its answers to be: structures, tool choice, the budget of the thought, the least
// length; as a constraint of the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/prompt.h"
#include "server/question.h"
#include "server/server.h"

namespace invar::server {

struct Rules {
  std::unique_ptr<Constraint> constraint;  // none: all is allowed
  std::vector<std::string> ignored;        // places of the schema that cannot be enforced
};
std::optional<ApiError> rules_of(const Served& served, const Question& q, const Tokenized& prompt,
                                 Rules& rules);

}  // namespace invar::server
