#include "text/json.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace invar {

namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;

constexpr uint64_t kMostPairs = 50'000'000;  // of keys in one object: each new one is looked for among them

// What reading the text costs, without reading it.
struct Shape {
  int deepest = 0;
  uint64_t pairs = 0, most_keys = 0;  // of objects
};

Shape shape_of(std::string_view text, int most_nested) {
  Shape shape;
  std::vector<uint64_t> keys = {0};  // of each value that is open
  bool quoted = false;
  for (size_t i = 0; i < text.size() && shape.deepest <= most_nested; i++) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) {
      if (c == '\\') i++;
    } else if (c == '[' || c == '{') {
      keys.push_back(0);
      shape.deepest = std::max(shape.deepest, int(keys.size()) - 1);
    } else if (c == ']' || c == '}') {
      if (keys.size() > 1) keys.pop_back();
    } else if (c == ':') {
      shape.pairs += keys.back()++;
      shape.most_keys = std::max(shape.most_keys, keys.back());
    }
  }
  return shape;
}

}  // namespace

Result<Json> parse_ordered_json(std::string_view text, const std::string& where, int most_nested) {
  const auto fault = [&](std::string message) { return Error{Code::BadRequest, where, std::move(message)}; };
  if (text.size() > kMaxBytes) {
    return fault("JSON: at most " + std::to_string(kMaxBytes) + " bytes, found " +
                 std::to_string(text.size()));
  }
  const Shape shape = shape_of(text, most_nested);
  if (shape.deepest > most_nested)
    return fault("JSON: at most " + std::to_string(most_nested) + " nested values, found more");
  if (shape.pairs > kMostPairs)
    return fault("JSON: at most 10000 keys in an object or so, found " + std::to_string(shape.most_keys));
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) { return fault(std::string("JSON: ") + e.what()); }
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace invar
