#include "files/json_text.h"

#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "files/byte_source.h"

namespace invar {
namespace {

using nlohmann::json;

// Sees every event of a text and stops at the first one that is not allowed.
class StrictCheck {
 public:
  std::string fault;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(json::binary_t&) { return true; }
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (names_.back().insert(name).second) return true;
    fault = "the name \"" + printable(name) + "\" occurs twice in one JSON object";
    return false;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) {
    fault = "not valid JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  static constexpr size_t kMaxDepth = 64;

  bool open() {
    names_.emplace_back();
    if (names_.size() <= kMaxDepth) return true;
    fault = "JSON of more than " + std::to_string(kMaxDepth) + " levels";
    return false;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& file) {
  StrictCheck check;
  if (!json::sax_parse(text, &check)) return bad_file("", check.fault, file);
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Result<json> read_json(const std::string& path, uint64_t limit_bytes) {
  return parse_json(TRY(read_file(path, limit_bytes)), path);
}

}  // namespace invar
