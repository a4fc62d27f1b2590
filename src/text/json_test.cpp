#include "text/json.h"

#include <chrono>
#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(ParseJson, IsBounded) {
  EXPECT_TRUE(parse_ordered_json(std::string(200, '[') + std::string(200, ']'), "x"));
  EXPECT_FALSE(parse_ordered_json(std::string(100000, '['), "x"));
  EXPECT_TRUE(parse_ordered_json("\"" + std::string(1000, '[') + "\\\"[\"", "x"));
  EXPECT_FALSE(parse_ordered_json("{\"a\": \"\xFF\"}", "x"));
  EXPECT_FALSE(parse_ordered_json("", "x"));
}

// Each new key is looked for among those of its object, so their number is bounded before any is read.
TEST(ParseJson, KeysOfAnObjectAreBounded) {
  const auto with = [](int objects, int keys) {
    std::string text = "[";
    for (int i = 0; i < objects; i++) {
      text += i > 0 ? ",{" : "{";
      for (int k = 0; k < keys; k++) text += (k > 0 ? ",\"" : "\"") + std::to_string(k) + "\":0";
      text += "}";
    }
    return text + "]";
  };
  EXPECT_TRUE(parse_ordered_json(with(1, 9000), "x"));
  EXPECT_TRUE(parse_ordered_json(with(10000, 9), "x"));
  EXPECT_TRUE(parse_ordered_json("\"" + std::string(100000, ':') + "\"", "x"));
  const auto began = std::chrono::steady_clock::now();
  for (const std::string& text : {with(1, 200000), with(10, 9000)}) {
    const Result<Json> json = parse_ordered_json(text, "x");
    ASSERT_FALSE(json);
    EXPECT_NE(json.error().message.find("keys"), std::string::npos) << json.error().message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

TEST(ParseJson, IntegersOfAnySizeStayAsTheyAre) {
  const std::string text =
      R"({"a":[123456789012345678901234567890,-9223372036854775809,18446744073709551615,-1,1.5],)"
      R"("123":{"b":99999999999999999999,"c":{},"d":"\u0001\"","e":[]},"f":null})";
  const Result<Json> json = parse_ordered_json(text, "x");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json_text(*json), text);
  EXPECT_TRUE(is_big_integer((*json)["a"][0]) && is_big_integer((*json)["a"][1]));
  EXPECT_EQ((*json)["a"][2], UINT64_MAX);
  EXPECT_EQ(json_text(*parse_ordered_json(R"({"a":1,"b":2,"a":3})", "x")), R"({"a":3,"b":2})");
}

TEST(ParseJson, FaultsSayWhereAndWhy) {
  const auto fault = [](const char* text) { return parse_ordered_json(text, "x").error().message; };
  EXPECT_EQ(fault("{bad"), "text that is no JSON from byte 2 on: invalid literal");
  EXPECT_EQ(fault("[1, 1e999]"), "a number that is too large, at byte 9");
  EXPECT_EQ(fault(""), "text that is no JSON from byte 1 on: unexpected end of input");
}

}  // namespace
}  // namespace invar
