// JSON of small files, strictly: at most 64 levels, no name twice in an object (a lax reader keeps the last
// one, and so disagrees with others), nothing behind the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

Result<nlohmann::json> parse_json(std::string_view text, const std::string& file);

// Reads and parses a file of at most `limit_bytes`.
Result<nlohmann::json> read_json(const std::string& path, uint64_t limit_bytes);

}  // namespace invar
