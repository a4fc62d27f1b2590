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

// Builds the value; Json::parse would make a double of an integer that 64 bits do not hold.
class Builder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_not_of("-0123456789") != text.npos) return add(value);
    return add(Json::binary(std::vector<uint8_t>(text.begin(), text.end())));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    member_ = &(*open_.back())[std::move(name)];  // of several the last counts
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t at, const std::string&, const Json::exception& fault) {
    const bool too_large = dynamic_cast<const Json::out_of_range*>(&fault) != nullptr;
    message_ = too_large ? "a number that is too large, at byte " + std::to_string(at)
                         : "text that is no JSON from byte " + std::to_string(at) + " on";
    const std::string what = fault.what();  // "... - why; last read: ..."
    const size_t why = what.find(" - ");
    if (why != what.npos) message_ += ": " + what.substr(why + 3, what.find(';', why) - why - 3);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& message() const { return message_; }

 private:
  Json* put(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (!open_.back()->is_array()) return &(*member_ = std::move(value));
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }
  bool add(Json value) { return put(std::move(value)) != nullptr; }
  bool open(Json value) {
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // objects and lists, each in the one before
  Json* member_ = nullptr;   // of the last, if that is an object
  std::string message_;
};

bool holds_big_integer(const Json& value) {
  if (is_big_integer(value)) return true;
  return value.is_structured() && std::any_of(value.begin(), value.end(), holds_big_integer);
}

std::string plain_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write(const Json& value, std::string& out) {
  if (is_big_integer(value)) {
    const Json::binary_t& digits = value.get_binary();
    out.append(digits.begin(), digits.end());
  } else if (value.is_structured() && !value.empty()) {
    char before = value.is_object() ? '{' : '[';
    for (const auto& [key, inner] : value.items()) {
      out += std::exchange(before, ',');
      if (value.is_object()) out += plain_text(key) + ':';
      write(inner, out);
    }
    out += value.is_object() ? '}' : ']';
  } else {
    out += plain_text(value);
  }
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
  Builder builder;
  if (!Json::sax_parse(text, &builder)) return fault(builder.message());
  return builder.take();
}

std::string json_text(const Json& value) {
  if (!holds_big_integer(value)) return plain_text(value);
  std::string out;
  write(value, out);
  return out;
}

}  // namespace invar
