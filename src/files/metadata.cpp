#include "files/metadata.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "files/byte_source.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "values are kept as the file has them");

struct TypeInfo {
  const char* name;
  int width;
};
constexpr TypeInfo kTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},  {"u32", 4},
                               {"i32", 4}, {"f32", 4}, {"bool", 1}, {"text", 0}, {"array", 0},
                               {"u64", 8}, {"i64", 8}, {"f64", 8}};

template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
Value numbers(ValueType type, std::span<const T> values) {
  Value v{type, true, values.size(), {}};
  v.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return v;
}

// Nothing: not an integer type, or above the range of int64.
std::optional<int64_t> integer_at(ValueType type, const char* p) {
  switch (type) {
    case ValueType::U8:
      return load<uint8_t>(p);
    case ValueType::I8:
      return load<int8_t>(p);
    case ValueType::U16:
      return load<uint16_t>(p);
    case ValueType::I16:
      return load<int16_t>(p);
    case ValueType::U32:
      return load<uint32_t>(p);
    case ValueType::I32:
      return load<int32_t>(p);
    case ValueType::I64:
      return load<int64_t>(p);
    case ValueType::U64: {
      const auto value = load<uint64_t>(p);
      if (value > uint64_t(Metadata::kHighest)) return std::nullopt;
      return int64_t(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> real_at(ValueType type, const char* p) {
  if (type == ValueType::F32) return load<float>(p);
  if (type == ValueType::F64) return load<double>(p);
  const std::optional<int64_t> integer = integer_at(type, p);
  if (!integer) return std::nullopt;
  return double(*integer);
}

std::string described(const Value& value) {
  return std::string(value.is_array ? "an array of type " : "type ") + name_of(value.type);
}

}  // namespace

const char* name_of(ValueType type) { return kTypes[size_t(type)].name; }
int width_of(ValueType type) { return kTypes[size_t(type)].width; }

Value Value::u32(uint32_t value) {
  Value v{ValueType::U32, false, 1, {}};
  append(v.bytes, value);
  return v;
}

Value Value::f32(float value) {
  Value v{ValueType::F32, false, 1, {}};
  append(v.bytes, value);
  return v;
}

Value Value::boolean(bool value) { return {ValueType::Bool, false, 1, std::string(1, char(value))}; }

Value Value::text(std::string value) { return {ValueType::Text, false, 1, std::move(value)}; }

Value Value::texts(std::span<const std::string> values) {
  Value v{ValueType::Text, true, values.size(), {}};
  for (const std::string& text : values) {
    append(v.bytes, uint64_t(text.size()));
    v.bytes += text;
  }
  return v;
}

Value Value::i32s(std::span<const int32_t> values) { return numbers(ValueType::I32, values); }
Value Value::f32s(std::span<const float> values) { return numbers(ValueType::F32, values); }

Value Value::booleans(const std::vector<bool>& values) {
  Value v{ValueType::Bool, true, values.size(), {}};
  for (const bool value : values) v.bytes += char(value);
  return v;
}

bool Metadata::add(std::string key, Value value) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.push_back({std::move(key), std::move(value)});
  return true;
}

void Metadata::set(const std::string& key, Value value) {
  const auto at = index_.find(key);
  if (at == index_.end()) CHECK(add(key, std::move(value)));
  else entries_[at->second].value = std::move(value);
}

const Value* Metadata::find(std::string_view key) const {
  const auto at = index_.find(std::string(key));
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

Error Metadata::error(std::string_view key, const std::string& message) const {
  return bad_file(key, message, file_);
}

Result<const Value*> Metadata::required(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return error(key, "the key is missing");
  return value;
}

Result<const Value*> Metadata::single(std::string_view key) const {
  const Value* value = TRY(required(key));
  if (value->is_array) return error(key, "expected one value, found " + described(*value));
  return value;
}

Result<int64_t> Metadata::integer(std::string_view key, int64_t low, int64_t high) const {
  TRY(single(key));
  return TRY(integers(key, low, high))[0];
}

Result<double> Metadata::real(std::string_view key) const {
  TRY(single(key));
  return TRY(reals(key))[0];
}

Result<bool> Metadata::boolean(std::string_view key) const {
  TRY(single(key));
  return bool(TRY(booleans(key))[0]);
}

Result<std::string> Metadata::text(std::string_view key) const {
  const Value* value = TRY(single(key));
  if (value->type != ValueType::Text) return error(key, "expected text, found " + described(*value));
  return value->bytes;
}

Result<std::vector<int64_t>> Metadata::integers(std::string_view key, int64_t low, int64_t high) const {
  const Value* value = TRY(required(key));
  const auto width = size_t(width_of(value->type));
  std::vector<int64_t> all;
  if (width == 0 || value->type == ValueType::Bool)
    return error(key, "expected an integer, found " + described(*value));
  all.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = integer_at(value->type, &value->bytes[i * width]);
    if (!number) return error(key, "expected an integer of at most 63 bits, found " + described(*value));
    if (*number < low || *number > high)
      return error(key, "expected " +
                            (high == kHighest ? "at least " + std::to_string(low)
                                              : std::to_string(low) + " to " + std::to_string(high)) +
                            ", found " + std::to_string(*number));
    all.push_back(*number);
  }
  return all;
}

Result<std::vector<double>> Metadata::reals(std::string_view key) const {
  const Value* value = TRY(required(key));
  const auto width = size_t(width_of(value->type));
  std::vector<double> all;
  if (width == 0 || value->type == ValueType::Bool)
    return error(key, "expected a number, found " + described(*value));
  all.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number = real_at(value->type, &value->bytes[i * width]);
    if (!number || !std::isfinite(*number))
      return error(key, "expected a finite number, found NaN, infinity or a number of over 63 bits");
    all.push_back(*number);
  }
  return all;
}

Result<std::vector<bool>> Metadata::booleans(std::string_view key) const {
  const Value* value = TRY(required(key));
  if (value->type != ValueType::Bool) return error(key, "expected true or false, found " + described(*value));
  std::vector<bool> all;
  all.reserve(value->count);
  for (const char b : value->bytes) all.push_back(b != 0);
  return all;
}

Result<std::vector<std::string>> Metadata::texts(std::string_view key) const {
  const Value* value = TRY(required(key));
  if (value->type != ValueType::Text) return error(key, "expected texts, found " + described(*value));
  if (!value->is_array) return std::vector<std::string>{value->bytes};
  std::vector<std::string> all;
  all.reserve(value->count);
  for (size_t at = 0; at < value->bytes.size();) {
    const auto length = load<uint64_t>(&value->bytes[at]);
    all.push_back(value->bytes.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return all;
}

Result<int64_t> Metadata::integer_or(std::string_view key, int64_t fallback, int64_t low,
                                     int64_t high) const {
  if (!has(key)) return fallback;
  return integer(key, low, high);
}

Result<double> Metadata::real_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return real(key);
}

Result<bool> Metadata::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return boolean(key);
}

Result<std::string> Metadata::text_or(std::string_view key, std::string fallback) const {
  if (!has(key)) return fallback;
  return text(key);
}

Result<std::vector<int64_t>> Metadata::integers_or(std::string_view key, std::vector<int64_t> fallback,
                                                   int64_t low, int64_t high) const {
  if (!has(key)) return fallback;
  return integers(key, low, high);
}

Result<std::vector<double>> Metadata::reals_or(std::string_view key, std::vector<double> fallback) const {
  if (!has(key)) return fallback;
  return reals(key);
}

Result<std::vector<std::string>> Metadata::texts_or(std::string_view key,
                                                    std::vector<std::string> fallback) const {
  if (!has(key)) return fallback;
  return texts(key);
}

}  // namespace invar
