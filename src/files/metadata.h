// The keys of a model file and their values, in the order of the file.  A value keeps the bytes of its GGUF
// encoding; the getters decode, check type and range, and name the key in every error.  What a key means,
// and whether it fits the tensors, is left to the models.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace invar {

enum class ValueType : int32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };

const char* name_of(ValueType type);
int width_of(ValueType type);  // bytes of one number; 0 for Text and Array

struct Value {
  ValueType type = ValueType::U8;  // of the value, or of an array's elements; never Array
  bool is_array = false;
  uint64_t count = 1;
  std::string bytes;  // numbers little-endian; an array of texts keeps the u64 length before each; a single
                      // text is bare

  static Value u32(uint32_t value);
  static Value f32(float value);
  static Value boolean(bool value);
  static Value text(std::string value);
  static Value texts(std::span<const std::string> values);
  static Value i32s(std::span<const int32_t> values);
  static Value f32s(std::span<const float> values);
  static Value booleans(const std::vector<bool>& values);

  bool operator==(const Value&) const = default;
};

class Metadata {
 public:
  struct Entry {
    std::string key;
    Value value;
  };
  static constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

  explicit Metadata(std::string file = {}) : file_(std::move(file)) {}

  [[nodiscard]] bool add(std::string key, Value value);  // false: the key is there already
  void set(const std::string& key, Value value);         // adds or replaces
  const std::string& file() const { return file_; }
  std::span<const Entry> entries() const { return entries_; }
  const Value* find(std::string_view key) const;  // null when absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Numbers: any integer type that fits; a real may be stored as an integer, and is never NaN or infinite.
  // Absent: an error, or with `_or` the fallback.  Arrays: a single value counts as an array of one.
  Result<int64_t> integer(std::string_view key, int64_t low = kLowest, int64_t high = kHighest) const;
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t low = kLowest,
                             int64_t high = kHighest) const;
  Result<double> real(std::string_view key) const;
  Result<double> real_or(std::string_view key, double fallback) const;
  Result<bool> boolean(std::string_view key) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key) const;
  Result<std::string> text_or(std::string_view key, std::string fallback) const;
  Result<std::vector<int64_t>> integers(std::string_view key, int64_t low = kLowest,
                                        int64_t high = kHighest) const;
  Result<std::vector<int64_t>> integers_or(std::string_view key, std::vector<int64_t> fallback,
                                           int64_t low = kLowest, int64_t high = kHighest) const;
  Result<std::vector<double>> reals(std::string_view key) const;
  Result<std::vector<double>> reals_or(std::string_view key, std::vector<double> fallback) const;
  Result<std::vector<bool>> booleans(std::string_view key) const;
  Result<std::vector<std::string>> texts(std::string_view key) const;
  Result<std::vector<std::string>> texts_or(std::string_view key, std::vector<std::string> fallback) const;

  Error error(std::string_view key, const std::string& message) const;  // BadFile, naming key and file

 private:
  Result<const Value*> required(std::string_view key) const;
  Result<const Value*> single(std::string_view key) const;

  std::string file_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace invar
