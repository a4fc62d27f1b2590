#include "text/lark.h"

#include <gtest/gtest.h>

#include "text/grammar_world.h"

namespace invar {
namespace {

using Kind = GrammarSpec::Kind;

TEST(CheckLark, WhatWouldTakeLongIsRefused) {
  const auto place = [](const std::string& text) {
    const Status fine = check_lark(text, "grammar");
    return fine ? std::string("fine") : fine.error().where;
  };
  std::string both = "start: T\nT: /a/", quoted = "start: /";
  for (int i = 0; i < 20; i++) both += " & /.*a" + std::to_string(i) + ".*/", quoted += "&\\/";
  EXPECT_EQ(place(both), "grammar");
  EXPECT_EQ(place(quoted + "/ | \"&&&&&&&&&&&&&&&&&&\" // &&&&&&&&&&&&&&&&&&&\n"), "fine");
  const std::string wide = R"({"type":"object","properties":{"a}":{"multipleOf":1000003}}})";
  EXPECT_EQ(place("start: \"%json\" x\nx: %json " + wide), "/properties/a}");
  EXPECT_EQ(place("start: %json {\"type\":\"integer\"} | %json {"), "fine");
  EXPECT_EQ(place("start: %json {\"enum\":[-9223372036854775808]}"), "grammar");
  EXPECT_EQ(place("start: %json"), "fine");
  EXPECT_EQ(place("start: \"\\"), "fine");
}

TEST(LarkString, TheTextOfAString) {
  struct Case {
    Json schema;
    std::vector<std::string> good, bad;
  };
  const std::vector<Case> cases = {
      {{{"pattern", "^[a-c]{2}$"}}, {"ab"}, {"abc", "xab", ""}},
      {{{"pattern", "\\d/"}}, {"1/", "x1/y\n"}, {"1", "\xD9\xA1/"}},
      {{{"pattern", "^a|b$|c"}}, {"ax", "xb", "xcx"}, {"xa", "bx", ""}},
      {{{"pattern", "^(x|y)[]|]\\$$"}}, {"x|$", "y]$"}, {"x|", "z|$"}},
      {{{"pattern", "[^\\w]"}, {"maxLength", 2}}, {"-", "a\xC3\xA9"}, {"ab", "-ab"}},
      {{{"minLength", 1}, {"maxLength", 3}}, {"a", "\xC3\xA9\xC3\xA9\xC3\xA9"}, {"", "abcd"}},
      {{{"format", "date"}}, {"2026-02-28"}, {"2026-13-01", "x2026-02-28"}},
      {{{"format", "date-time"}}, {"2026-02-28T23:59:59.5Z"}, {"2026-02-28"}},
      {{{"format", "uuid"}}, {"00000000-0000-4000-8000-00000000000f"}, {"0000"}},
      {{{"format", "ipv4"}}, {"255.0.10.1"}, {"256.0.0.1"}},
      {{{"format", "email"}}, {"a.b@c.de"}, {"a@", "@b.c"}},
  };
  for (const Case& c : cases) {
    const Result<std::string> terminal = lark_string(c.schema);
    ASSERT_TRUE(terminal) << c.schema;
    const Grammar grammar = compiled(written(Kind::Lark, "start: X\nX: " + *terminal));
    for (const std::string& text : c.good) EXPECT_TRUE(accepts(grammar, text)) << c.schema << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.schema << text;
  }
  EXPECT_EQ(*lark_string({{"type", "string"}}), "");
  for (const char* pattern : {"a^b", "a$b", "(^a)", "(?=a)", "a\\b", "(a)\\1", "a\\"})
    EXPECT_EQ(lark_string({{"pattern", pattern}}).error().where, "/pattern") << pattern;
  EXPECT_EQ(lark_string({{"format", "odd"}}).error().where, "/format");
  EXPECT_EQ(lark_string({{"maxLength", -1}}).error().where, "/maxLength");
}

TEST(LarkJson, WhiteSpaceAsAsked) {
  GrammarSpec spec;
  spec.kind = Kind::JsonSchema;
  spec.schema = {{"type", "array"}, {"items", {{"type", "boolean"}}}};
  EXPECT_TRUE(accepts(compiled(spec), "[true,false]"));
  EXPECT_FALSE(accepts(compiled(spec), "[true, false]"));
  spec.whitespace = "[ \\n]{0,2}";
  EXPECT_TRUE(accepts(compiled(spec), "[true,false]"));
  EXPECT_TRUE(accepts(compiled(spec), "[true, \nfalse ]"));
  EXPECT_FALSE(accepts(compiled(spec), "[true,   false]"));
}

}  // namespace
}  // namespace invar
