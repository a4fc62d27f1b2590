#include "text/normalize.h"

#include <chrono>
#include <gtest/gtest.h>

namespace invar {
namespace {

Json parsed(std::string_view text) { return parse_ordered_json(text, "test").take(); }

// Messages one after the other, as ROLE:CONTENT.
std::string shown(const Json& messages) {
  std::string out;
  for (const Json& m : messages)
    out += m["role"].get<std::string>() + ":" + m["content"].get<std::string>() + "|";
  return out;
}

std::string normal(std::string_view messages, const NormalizeOptions& options = {}) {
  const Result<Json> made = normalize_messages(parsed(messages), options);
  return made ? shown(*made) : made.error().where;
}

TEST(Normalize, SystemMessages) {
  EXPECT_EQ(normal(R"([{"role":"system","content":"A"},{"role":"developer","content":"B"},
                       {"role":"user","content":"x"}])"),
            "system:A\n\nB|user:x|");
  EXPECT_EQ(normal(R"([{"role":"user","content":"x"},{"role":"system","content":"A"}])"), "system:A|user:x|");
  EXPECT_EQ(normal(R"([{"role":"system","content":""},{"role":"user","content":"x"}])"), "user:x|");
  EXPECT_EQ(normal(R"([{"role":"system","content":"A"}])"), "system:A|user:|");
}

TEST(Normalize, ManyMessagesTakeTimeByTheirNumber) {
  for (const char* role : {"system", "user"}) {
    Json many = Json::array();
    for (int i = 0; i < 100000; i++) many.push_back({{"role", role}, {"content", "sixteen letters."}});
    const auto began = std::chrono::steady_clock::now();
    const Result<Json> made = normalize_messages(many, {.merge_users = true});
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2)) << role;
    ASSERT_TRUE(made);
    EXPECT_EQ((*made)[0]["content"].get<std::string>().size(), 100000 * 16 + 99999 * 2);
  }
}

constexpr const char* kLate = R"([{"role":"system","content":"A"},{"role":"user","content":"x"},
    {"role":"assistant","content":"y"},{"role":"system","content":"L"},{"role":"user","content":"z"}])";

TEST(Normalize, LateSystemMessages) {
  EXPECT_EQ(normal(kLate), "system:A|user:x|assistant:y|user:<system-message>\nL\n</system-message>|user:z|");
  EXPECT_EQ(normal(kLate, {.merge_users = true}),
            "system:A|user:x|assistant:y|user:<system-message>\nL\n</system-message>\n\nz|");
  EXPECT_EQ(normal(R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user",
      "content":"z"},{"role":"system","content":"L"}])",
                   {.merge_users = true}),
            "user:x|assistant:y|user:z\n\n<system-message>\nL\n</system-message>|");
  EXPECT_EQ(normal(kLate, {.late_system = LateSystem::Hoist}), "system:A\n\nL|user:x|assistant:y|user:z|");
  EXPECT_EQ(normal(kLate, {.late_system = LateSystem::Reject}), "messages/3/role");
  EXPECT_EQ(normal(R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"1",
      "function":{"name":"f"}}]},{"role":"system","content":"L"},{"role":"tool","content":"r"}])"),
            "user:x|assistant:|tool:r|user:<system-message>\nL\n</system-message>|");
}

TEST(Normalize, VolatileHeadersAreDropped) {
  const auto with = [](std::string_view hash) {
    return normal(R"([{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: h=)" +
                  std::string(hash) +
                  R"(;"},{"type":"text","text":"Be kind."},{"type":"text","text":"Be brief."}]},
                     {"role":"user","content":"x-anthropic-y"}])");
  };
  EXPECT_EQ(with("1a"), "system:Be kind.\n\nBe brief.|user:x-anthropic-y|");
  EXPECT_EQ(with("1a"), with("2b"));
  EXPECT_EQ(
      normal(R"([{"role":"system","content":"x-anthropic-a: 1\nRule."},{"role":"user","content":"u"}])"),
      "system:Rule.|user:u|");
}

TEST(Normalize, CallsOfTheHistory) {
  const auto calls = [](std::string_view arguments, std::string_view content) {
    const std::string text =
        R"([{"role":"user","content":"x"},{"role":"assistant",)" + std::string(content) +
        R"("tool_calls":[{"id":"c","type":"function","index":0,"function":{"name":"f","arguments":)" +
        std::string(arguments) + "}}]}]";
    return json_text((*normalize_messages(parsed(text)))[1]);
  };
  const std::string plain = calls(R"("{\"city\": \"Lisbon\", \"a\": 2}")", R"("content":null,)");
  EXPECT_EQ(plain, R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
                   R"("function":{"name":"f","arguments":{"city":"Lisbon","a":2}}}]})");
  EXPECT_EQ(plain, calls(R"("{\"city\": \"Lisbon\", \"a\": 2}")", ""));
  EXPECT_EQ(plain, calls(R"({"city": "Lisbon", "a": 2})", R"("content":"",)"));
  EXPECT_NE(calls(R"("")", "").find(R"("arguments":{})"), std::string::npos);
  EXPECT_NE(calls(R"("{\"a\":")", "").find(R"("arguments":{"_raw":"{\"a\":"})"), std::string::npos);
  EXPECT_NE(calls(R"("[1]")", "").find(R"("arguments":{"_raw":"[1]"})"), std::string::npos);
}

TEST(Normalize, Parts) {
  EXPECT_EQ(normal(R"([{"role":"user","type":"text","content":[{"type":"text","text":"Look "},
                       {"type":"input_text","text":"up."}]},
                       {"role":"assistant","content":[{"type":"output_text","text":"ok"}]},
                       {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"18 C"}]}])"),
            "user:Look up.|assistant:ok|tool:18 C|");
}

TEST(Normalize, FaultsHaveAPlace) {
  EXPECT_EQ(normal(R"({})"), "messages");
  EXPECT_EQ(normal(R"([])"), "messages");
  EXPECT_EQ(normal(R"([3])"), "messages/0");
  EXPECT_EQ(normal(R"([{"role":"king","content":"x"}])"), "messages/0/role");
  EXPECT_EQ(normal(R"([{"role":"user","content":3}])"), "messages/0/content");
  EXPECT_EQ(normal(R"([{"role":"user","content":[{"type":"image_url"}]}])"), "messages/0/content/0/type");
  EXPECT_EQ(normal(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])"),
            "messages/0/tool_calls/0/function/name");
}

TEST(Normalize, Prefill) {
  const auto prefill = [](std::string_view text) { return continues(*normalize_messages(parsed(text))); };
  EXPECT_EQ(prefill(R"([{"role":"user","content":"x"},{"role":"assistant","content":"So"}])"), "So");
  EXPECT_EQ(prefill(R"([{"role":"user","content":"x"}])"), std::nullopt);
  EXPECT_EQ(prefill(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}])"), std::nullopt);
}

TEST(Normalize, Tools) {
  const std::string one =
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])";
  const auto tools = [](std::string_view text) {
    const Result<Json> made = normalize_tools(parsed(text));
    return made ? json_text(*made) : made.error().where;
  };
  EXPECT_EQ(tools(one), one);
  EXPECT_EQ(tools(R"([{"input_schema":{"type":"object"},"name":"f","description":"d","cache_control":{}}])"),
            one);
  EXPECT_EQ(
      tools(
          R"([{"type":"function","name":"f","strict":true,"parameters":{"type":"object"},"description":"d"}])"),
      one);
  EXPECT_EQ(tools("[]"), "null");
  EXPECT_EQ(tools(R"([{"name":"a b"}])"), "tools/0/function/name");
}

}  // namespace
}  // namespace invar
