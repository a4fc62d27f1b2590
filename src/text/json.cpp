#include "text/json.h"

#include <algorithm>
#include <utility>

namespace invar {

namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;

int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      if (c == '\\') i++;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
  return deepest;
}

}  // namespace

Result<Json> parse_ordered_json(std::string_view text, const std::string& where, int most_nested) {
  const auto fault = [&](std::string message) { return Error{Code::BadRequest, where, std::move(message)}; };
  if (text.size() > kMaxBytes) {
    return fault("JSON: at most " + std::to_string(kMaxBytes) + " bytes, found " +
                 std::to_string(text.size()));
  }
  if (const int depth = nesting(text); depth > most_nested) {
    return fault("JSON: at most " + std::to_string(most_nested) + " nested values, found " +
                 std::to_string(depth));
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) { return fault(std::string("JSON: ") + e.what()); }
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace invar
