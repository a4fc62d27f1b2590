// JSON from outside as a value that keeps the order of its keys; bounded in size and nesting.
//
// An integer of more than 64 bits stays as it was written: it is a binary value, which no other text becomes,
// and json_text() writes it back.
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

inline bool is_big_integer(const Json& value) { return value.is_binary(); }

}  // namespace invar
