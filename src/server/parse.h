// The bodies of the four APIs as questions.  Each returns what is wrong, by the name of the field.
#pragma once

#include <optional>

#include "server/question.h"
#include "server/responses_writer.h"
#include "server/server.h"

namespace invar::server {

std::optional<ApiError> read_completions(const Json& json, const Served& served, Question& q);
std::optional<ApiError> read_chat(const Json& json, const Served& served, Question& q);
std::optional<ApiError> read_responses(const Json& json, const Served& served, Question& q,
                                       ResponsesForm& form);
std::optional<ApiError> read_messages(const Json& json, const Served& served, Question& q);

}  // namespace invar::server
