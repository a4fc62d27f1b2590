#include "text/call_grammar.h"

#include <functional>
#include <gtest/gtest.h>

#include "text/grammar_world.h"

namespace invar {
namespace {

using Kind = GrammarSpec::Kind;

Json coded_tool() {
  return parse_ordered_json(
             R"([{"type": "function", "function": {"name": "save", "parameters": {"type": "object",
      "properties": {"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "note": {"type": ["string", "null"], "maxLength": 3},
                     "text": {"type": "string"}}, "required": ["code"]}}}])",
             "tools")
      .take();
}

TEST(CallGrammar, StringsObeyTheirSchemaInEveryDialect) {
  const auto qwen = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  const auto glm = [](const std::string& key, const std::string& value) {
    return "<arg_key>" + key + "</arg_key><arg_value>" + value + "</arg_value>";
  };
  struct Dialect {
    const char* name;
    std::function<std::string(const std::string&, const std::string&)> value;
    std::string begin, end;
  };
  const std::vector<Dialect> dialects = {
      {"qwen_xml", qwen, "<tool_call>\n<function=save>\n", "</function>\n</tool_call>"},
      {"glm", glm, "<tool_call>save", "</tool_call>"}};
  for (const World* world : {&spelled(), &tokens()})
    for (const Dialect& d : dialects) {
      SCOPED_TRACE(d.name);
      CallRules rules;
      rules.tools = coded_tool();
      const Result<GrammarSpec> spec =
          call_grammar(rules, answer_format("", d.name).take(), world->tokenizer);
      ASSERT_TRUE(spec);
      const Grammar grammar = compiled(*spec, *world);
      const auto taken = [&](const std::string& values) {
        return accepts(grammar, d.begin + values + d.end, *world);
      };
      EXPECT_TRUE(taken(d.value("code", "AB-7")));
      EXPECT_FALSE(taken(d.value("code", "AB-")));
      EXPECT_FALSE(taken(d.value("code", "xAB-7")));
      EXPECT_TRUE(taken(d.value("code", "AB-7") + d.value("note", "abc")));
      EXPECT_TRUE(taken(d.value("code", "AB-7") + d.value("note", "null")));
      EXPECT_FALSE(taken(d.value("code", "AB-7") + d.value("note", "abcd")));
      EXPECT_TRUE(taken(d.value("code", "AB-7") + d.value("text", "a\n<b>\n\n c")));
      EXPECT_TRUE(taken(d.value("code", "AB-7") + d.value("text", "")));
      EXPECT_FALSE(taken(d.value("note", "abc")));
    }
}

TEST(CallGrammar, WhatCannotBeEnforcedIsToldOrRefused) {
  CallRules rules;
  rules.tools = coded_tool();
  Json& properties = rules.tools[0]["function"]["parameters"]["properties"];
  properties["code"] = {{"type", "string"}, {"pattern", "a\\b"}, {"minLength", 1}};
  properties["text"]["not"] = Json::object();
  const AnswerFormat format = answer_format("", "qwen_xml").take();
  const Result<GrammarSpec> spec = call_grammar(rules, format, spelled().tokenizer);
  ASSERT_TRUE(spec);
  const std::string where = "/tools/0/function/parameters/properties/";
  EXPECT_EQ(compiled(*spec).ignored(),
            (std::vector<std::string>{where + "text/not", where + "code/pattern"}));
  rules.strict = {"save"};
  EXPECT_EQ(call_grammar(rules, format, spelled().tokenizer).error().where, where + "text/not");
}

TEST(CallGrammar, FreeTextAndThenCalls) {
  for (const World* world : {&spelled(), &tokens()}) {
    CallRules rules;
    rules.tools = coded_tool();
    rules.required = false;
    const std::string call =
        "<tool_call>\n<function=save>\n<parameter=code>\nAB-1\n</parameter>\n</function>\n</tool_call>";
    const Grammar free =
        compiled(*call_grammar(rules, answer_format("", "qwen_xml").take(), world->tokenizer), *world);
    EXPECT_TRUE(accepts(free, "", *world));
    EXPECT_TRUE(accepts(free, "I say <tool or so", *world));
    EXPECT_TRUE(accepts(free, call, *world));
    EXPECT_TRUE(accepts(free, "Now:\n" + call + "\n" + call, *world));
    EXPECT_FALSE(accepts(free, "Now: <tool_call>\n<function=other>", *world));
    for (const auto& [kind, text] :
         std::vector<std::pair<Kind, std::string>>{{Kind::Gbnf, "root ::= \"(\" root \")\" | \"x\""},
                                                   {Kind::Lark, "start: \"(\" start \")\" | \"x\""}}) {
      rules.content = written(kind, text);
      const Grammar either =
          compiled(*call_grammar(rules, answer_format("", "qwen_xml").take(), world->tokenizer), *world);
      EXPECT_TRUE(accepts(either, "((x))", *world));
      EXPECT_TRUE(accepts(either, call, *world));
      EXPECT_FALSE(accepts(either, "((x)", *world));
      EXPECT_FALSE(accepts(either, "y", *world));
    }
    rules.content.reset();
  }
}

}  // namespace
}  // namespace invar
