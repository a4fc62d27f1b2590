// JSON from outside as a value that keeps the order of its keys; bounded in size and nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

using Json = nlohmann::ordered_json;

constexpr int kMostNested = 250;  // textkit takes 256

// `where` names the source in errors.
Result<Json> parse_ordered_json(std::string_view text, const std::string& where,
                                int most_nested = kMostNested);

// Compact; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& value);

}  // namespace invar
