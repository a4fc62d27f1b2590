#include "files/metadata.h"

#include <gtest/gtest.h>
#include <limits>

#include "files/gguf_bytes.h"

namespace invar {
namespace {

template <class T>
Value one(ValueType type, T value) {
  return {type, false, 1, le(value)};
}

Metadata sample() {
  Metadata keys("m.gguf");
  const std::pair<const char*, Value> entries[] = {
      {"u8", one(ValueType::U8, uint8_t{200})},
      {"i8", one(ValueType::I8, int8_t{-5})},
      {"u16", one(ValueType::U16, uint16_t{60000})},
      {"i16", one(ValueType::I16, int16_t{-300})},
      {"u32", Value::u32(4000000000u)},
      {"i32", one(ValueType::I32, int32_t{-7})},
      {"u64", one(ValueType::U64, uint64_t{1} << 62)},
      {"u64 huge", one(ValueType::U64, uint64_t{1} << 63)},
      {"i64", one(ValueType::I64, int64_t{-1} << 40)},
      {"f32", Value::f32(0.5f)},
      {"f64", one(ValueType::F64, 1e300)},
      {"nan", Value::f32(std::numeric_limits<float>::quiet_NaN())},
      {"inf", one(ValueType::F64, -std::numeric_limits<double>::infinity())},
      {"yes", Value::boolean(true)},
      {"text", Value::text("hello")},
      {"texts", Value::texts(std::vector<std::string>{"a", "", "bc"})},
      {"ints", Value::i32s(std::vector<int32_t>{4, 0, -4})},
      {"floats", Value::f32s(std::vector<float>{1, 2.5f})},
      {"flags", Value::booleans({true, false})},
  };
  for (const auto& [key, value] : entries) EXPECT_TRUE(keys.add(key, value));
  return keys;
}

TEST(Metadata, EveryTypeOfNumber) {
  const Metadata keys = sample();
  const std::pair<const char*, int64_t> integers[] = {{"u8", 200},
                                                      {"i8", -5},
                                                      {"u16", 60000},
                                                      {"i16", -300},
                                                      {"u32", 4000000000},
                                                      {"i32", -7},
                                                      {"u64", int64_t{1} << 62},
                                                      {"i64", int64_t{-1} << 40}};
  for (const auto& [key, value] : integers) {
    EXPECT_EQ(*keys.integer(key), value) << key;
    EXPECT_EQ(*keys.real(key), double(value)) << key;
  }
  EXPECT_EQ(*keys.real("f32"), 0.5);
  EXPECT_EQ(*keys.real("f64"), 1e300);
  EXPECT_TRUE(*keys.boolean("yes"));
  EXPECT_EQ(*keys.text("text"), "hello");
}

TEST(Metadata, Arrays) {
  const Metadata keys = sample();
  EXPECT_EQ(*keys.texts("texts"), (std::vector<std::string>{"a", "", "bc"}));
  EXPECT_EQ(*keys.integers("ints"), (std::vector<int64_t>{4, 0, -4}));
  EXPECT_EQ(*keys.reals("floats"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(*keys.booleans("flags"), (std::vector<bool>{true, false}));
  EXPECT_EQ(*keys.integers("u8"), (std::vector<int64_t>{200})) << "one value is an array of one";
}

TEST(Metadata, Fallbacks) {
  const Metadata keys = sample();
  EXPECT_EQ(*keys.integer_or("absent", 3), 3);
  EXPECT_EQ(*keys.integer_or("u8", 3), 200);
  EXPECT_EQ(*keys.real_or("absent", 1.5), 1.5);
  EXPECT_EQ(*keys.text_or("absent", "x"), "x");
  EXPECT_EQ(*keys.boolean_or("absent", true), true);
  EXPECT_FALSE(keys.real_or("nan", 1)) << "a bad value is not an absent one";
}

TEST(Metadata, WrongTypesAndRangesNameTheKey) {
  const Metadata keys = sample();
  const std::pair<Error, const char*> errors[] = {
      {keys.integer("absent").error(), "missing"},
      {keys.integer("f32").error(), "found type f32"},
      {keys.integer("text").error(), "found type text"},
      {keys.integer("yes").error(), "found type bool"},
      {keys.integer("ints").error(), "expected one value"},
      {keys.integer("u64 huge").error(), "63 bits"},
      {keys.integer("i8", 0).error(), "expected at least 0, found -5"},
      {keys.integer("u8", 1, 100).error(), "expected 1 to 100, found 200"},
      {keys.integers("ints", 0, 9).error(), "found -4"},
      {keys.real("nan").error(), "finite"},
      {keys.real("inf").error(), "finite"},
      {keys.real("text").error(), "expected a number"},
      {keys.boolean("u8").error(), "expected true or false"},
      {keys.text("u8").error(), "expected text"},
      {keys.text("texts").error(), "expected one value"},
      {keys.texts("ints").error(), "expected texts"},
  };
  for (const auto& [error, says] : errors) {
    EXPECT_EQ(error.code, Code::BadFile);
    EXPECT_NE(error.message.find(says), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("m.gguf"), std::string::npos) << error.message;
    EXPECT_FALSE(error.where.empty());
  }
  Metadata twice = sample();
  EXPECT_FALSE(twice.add("u8", Value::u32(1)));
}

}  // namespace
}  // namespace invar
