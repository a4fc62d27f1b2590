#include "text/structural_tag.h"

#include <gtest/gtest.h>

#include "text/grammar_world.h"

namespace invar {
namespace {

using Kind = GrammarSpec::Kind;

GrammarSpec tags(std::string_view json) {
  GrammarSpec spec;
  spec.kind = Kind::Tags;
  spec.schema = parse_ordered_json(json, "tags").take();
  return spec;
}

const char* const kCalls = R"("tags": [
    {"type": "tag", "begin": "<f=on>", "end": "</f>",
     "content": {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}},
                                                        "required": ["a"], "additionalProperties": false}}},
    {"type": "tag", "begin": "<f=off>", "end": "</f>", "content": {"type": "any_text"}}])";

TEST(StructuralTags, TextUntilATriggerThenATag) {
  const std::string triggered = std::string(R"({"type": "triggered_tags", "triggers": ["<f="], )") + kCalls;
  struct Case {
    const char* more;
    bool none, text, one, text_first, two, text_behind;
  };
  for (const Case& c : {Case{"}", true, true, true, true, true, true},
                        Case{R"(, "at_least_one": true})", false, false, true, false, true, true},
                        Case{R"(, "stop_after_first": true})", true, true, true, true, false, false},
                        Case{R"(, "at_least_one": true, "stop_after_first": true})", false, false, true,
                             false, false, false}}) {
    SCOPED_TRACE(c.more);
    const Grammar grammar =
        compiled(tags(R"({"type": "structural_tag", "format": )" + (triggered + c.more) + "}"));
    const std::string on = R"(<f=on>{"a":true}</f>)", off = "<f=off>x <f=on> y</f>";
    EXPECT_EQ(accepts(grammar, ""), c.none);
    EXPECT_EQ(accepts(grammar, "so <f or"), c.text);
    EXPECT_TRUE(accepts(grammar, on));
    EXPECT_EQ(accepts(grammar, "see: " + off), c.text_first);
    EXPECT_EQ(accepts(grammar, on + off), c.two);
    EXPECT_EQ(accepts(grammar, on + "done"), c.text_behind);
    EXPECT_FALSE(accepts(grammar, R"(<f=on>{"a":1}</f>)"));
    EXPECT_FALSE(accepts(grammar, "see <f=other>"));
  }
}

TEST(StructuralTags, AllForms) {
  struct Case {
    std::string format;
    std::vector<std::string> good, bad;
  };
  const std::vector<Case> cases = {
      {R"({"type": "const_string", "value": "a\"b"})", {"a\"b"}, {"a", ""}},
      {R"({"type": "regex", "pattern": "[a/]+"})", {"a/a"}, {"", "b"}},
      {R"({"type": "grammar", "grammar": "root ::= \"a\" root | \"b\""})", {"b", "aab"}, {"a", "ba"}},
      {R"({"type": "any_text"})", {"", "x\ny"}, {}},
      {R"({"type": "or", "elements": [{"type": "const_string", "value": "x"}, {"type": "json_schema", "json_schema": {"const": 1}}]})",
       {"x", "1"},
       {"2", "x1"}},
      {R"({"type": "sequence", "elements": [{"type": "const_string", "value": "x"}, {"type": "any_text"}]})",
       {"x", "xy"},
       {"y"}},
      {R"({"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "[0-9]*"}, "end": [">", "]"]})",
       {"<>", "<12]"},
       {"<1", "<a>"}},
      {std::string(R"({"type": "tags_with_separator", "separator": ";", )") + kCalls + "}",
       {"", "<f=off></f>", "<f=off>1</f>;<f=on>{\"a\":false}</f>"},
       {"<f=off></f>;", ";", "x"}},
      {std::string(
           R"({"type": "tags_with_separator", "separator": ";", "at_least_one": true, "stop_after_first": true, )") +
           kCalls + "}",
       {"<f=off></f>"},
       {"", "<f=off>1</f>;<f=off></f>"}}};
  for (const Case& c : cases) {
    const Grammar grammar = compiled(tags(c.format));
    for (const std::string& text : c.good) EXPECT_TRUE(accepts(grammar, text)) << c.format << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.format << text;
  }
  const Grammar older = compiled(tags(R"({"type": "structural_tag", "triggers": ["<f="],
      "structures": [{"begin": "<f=on>", "schema": {"type": "boolean"}, "end": "</f>"}]})"));
  EXPECT_TRUE(accepts(older, "x<f=on>true</f>y"));
  EXPECT_FALSE(accepts(older, "x<f=on>1</f>y"));
}

TEST(StructuralTags, FaultsHaveAPlace) {
  for (
      const auto& [text, where] : std::vector<std::pair<const char*, const char*>>{
          {R"({"type": "structural_tag", "format": {"type": "qwen_xml_parameter"}})", "/format/type"},
          {R"({"type": "structural_tag", "format": 1})", "/format"},
          {R"({"type": "tag", "begin": "a", "content": {"type": "any_text"}, "end": ""})", "/end"},
          {R"({"type": "tag", "begin": 1})", "/begin"},
          {R"({"type": "or", "elements": []})", "/elements"},
          {R"({"type": "sequence", "elements": [{"type": "any_text"}, {"type": "any_text"}]})",
           "/elements/0"},
          {R"({"type": "or", "elements": [{"type": "grammar", "grammar": "root"}]})", "/elements/0/grammar"},
          {R"({"type": "json_schema", "json_schema": {"properties": {"a": {"type": "odd"}}}})",
           "/json_schema/properties/a"},
          {R"({"type": "json_schema", "style": "qwen_xml", "json_schema": {}})", "/style"},
          {R"({"type": "triggered_tags", "triggers": ["<g"], "tags": [{"type": "tag", "begin": "<f", "content": {"type": "any_text"}, "end": ">"}]})",
           "/tags/0/begin"},
          {R"({"structures": 1, "triggers": []})", "/structures"}}) {
    const Result<Grammar> grammar = spelled().compiler.compile(tags(text));
    ASSERT_FALSE(grammar) << text;
    EXPECT_EQ(grammar.error().where, where) << grammar.error().message;
  }
  const Grammar grammar =
      compiled(tags(R"({"type": "json_schema", "json_schema": {"type": "null", "not": {}}})"));
  EXPECT_EQ(grammar.ignored(), std::vector<std::string>{"/json_schema/not"});
}

}  // namespace
}  // namespace invar
