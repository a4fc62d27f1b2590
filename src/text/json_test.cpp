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

}  // namespace
}  // namespace invar
