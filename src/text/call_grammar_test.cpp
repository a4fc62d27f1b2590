#include "text/call_grammar.h"

#include <functional>
#include <gtest/gtest.h>

#include "text/grammar_world.h"
#include "text/tool_table.h"

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

Json tool_with(std::string_view parameters) {
  const Json schema = parse_ordered_json(parameters, "test").take();
  return Json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}});
}

CallRules rules_for(std::string_view parameters, bool strict) {
  CallRules rules;
  rules.tools = tool_with(parameters);
  if (strict) rules.strict = {"f"};
  return rules;
}

std::string xml_call(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out = "<tool_call>\n<function=f>\n";
  for (const auto& [key, value] : values) out += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return out + "</function>\n</tool_call>";
}

// What a parameter's schema says through others.
TEST(CallGrammar, ValuesObeyWhatTheirSchemaRefersTo) {
  struct Case {
    const char* schema;
    std::vector<const char*> good, bad;
  };
  const std::vector<Case> cases = {
      {R"({"$ref":"#/$defs/Unit"})", {"c", "f"}, {"k", "", "null"}},
      {R"({"$ref":"#/$defs/Unit","description":"x","default":"c"})", {"c"}, {"k"}},
      {R"({"allOf":[{"$ref":"#/$defs/Unit"}]})", {"f"}, {"k"}},
      {R"({"anyOf":[{"$ref":"#/$defs/Unit"},{"type":"null"}]})", {"c", "null"}, {"k"}},
      {R"({"anyOf":[{"type":"string","enum":["a","b"]},{"const":7},{"type":"boolean"}]})",
       {"a", "7", "true"},
       {"8", "c"}},
      {R"({"anyOf":[{"type":"string","pattern":"^x+$"},{"type":"null"}]})", {"xx", "null"}, {"y"}},
      {R"({"oneOf":[{"type":"string","maxLength":2},{"type":"integer"}]})", {"ab", "12345"}, {"abc", "1.5"}},
      {R"({"type":"string","anyOf":[{"pattern":"^a"},{"pattern":"^b"}],"maxLength":3})",
       {"a", "bcd"},
       {"c", "abcd"}},
      {R"({"allOf":[{"type":"string","pattern":"^a"},{"maxLength":2}]})", {"ab"}, {"b", "abc"}},
      {R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"}]})", {"ab", "bxa"}, {"a", "b"}},
      {R"({"allOf":[{"enum":["a","c"]},{"$ref":"#/$defs/Unit"}]})", {"c"}, {"a", "f"}},
      {R"({"type":["string","number"],"maxLength":1})", {"x", "-1.5e3"}, {"xy"}},
      {R"({"$ref":"#/$defs/Twice"})", {"c"}, {"k"}},
      {R"({"anyOf":[{"type":"string"},{"$ref":"#/$defs/Unit"}]})", {"c", "anything"}, {}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.schema);
    const std::string parameters =
        R"({"type":"object","$defs":{"Unit":{"type":"string","enum":["c","f"]},"Twice":{"$ref":"#/$defs/Unit"}},
            "properties":{"u":)" +
        std::string(c.schema) + R"(},"required":["u"]})";
    const auto spec =
        call_grammar(rules_for(parameters, true), answer_format("", "qwen_xml").take(), spelled().tokenizer);
    ASSERT_TRUE(spec) << spec.error().where;
    const Grammar grammar = compiled(*spec);
    EXPECT_TRUE(grammar.ignored().empty());
    for (const char* text : c.good) EXPECT_TRUE(accepts(grammar, xml_call({{"u", text}}))) << text;
    for (const char* text : c.bad) EXPECT_FALSE(accepts(grammar, xml_call({{"u", text}}))) << text;
  }
}

TEST(CallGrammar, WhatIsNotEnforcedOfAValueIsToldOrRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"minLength":3})", "/minLength"},
      {R"({"type":["string","object"],"properties":{"a":{}}})", "/properties"},
      {R"({"type":["string","integer"],"minimum":3})", "/minimum"},
      {R"({"anyOf":[{"type":"string","format":"odd"},{"type":"null"}]})", "/anyOf"},
      {R"({"$ref":"#/$defs/Nowhere"})", "/$ref"},
      {R"({"$ref":"#/$defs/Endless"})", "/$ref"},
      {R"({"type":"string","oneOf":[{"$ref":"#/$defs/Endless"},{"$ref":"#/$defs/Endless"}]})", "/oneOf"}};
  for (const auto& [schema, place] : cases) {
    SCOPED_TRACE(schema);
    const std::string parameters =
        R"({"type":"object","$defs":{"Endless":{"anyOf":[{"$ref":"#/$defs/Endless"},{"$ref":"#/$defs/Endless"}]}},
            "properties":{"u":)" +
        schema + "}}";
    const std::string where = "/tools/0/function/parameters/properties/u" + place;
    const AnswerFormat format = answer_format("", "glm").take();
    const auto refused = call_grammar(rules_for(parameters, true), format, spelled().tokenizer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, where);
    const auto spec = call_grammar(rules_for(parameters, false), format, spelled().tokenizer);
    ASSERT_TRUE(spec);
    EXPECT_EQ(compiled(*spec).ignored(), std::vector<std::string>{where});
  }
}

TEST(CallGrammar, ParametersThatAreNoListOfProperties) {
  const AnswerFormat format = answer_format("", "qwen_xml").take();
  const std::string none = xml_call({}), one = xml_call({{"a", "1"}}),
                    two = xml_call({{"a", "x"}, {"b c", ""}});
  // Found through what they refer to.
  for (
      const char* parameters :
      {R"({"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"a":{"type":"string","maxLength":1}},
            "required":["a"]}}})",
       R"({"allOf":[{"type":"object","properties":{"a":{"type":"string","maxLength":1}}},{"required":["a"]}]})"}) {
    const auto spec = call_grammar(rules_for(parameters, true), format, spelled().tokenizer);
    ASSERT_TRUE(spec) << spec.error().where;
    const Grammar grammar = compiled(*spec);
    EXPECT_TRUE(accepts(grammar, one));
    EXPECT_FALSE(accepts(grammar, none));
    EXPECT_FALSE(accepts(grammar, xml_call({{"a", "12"}})));
    EXPECT_EQ(ToolTable(tool_with(parameters)).types("f", "a"), kString);  // as it is read
  }
  // Any arguments, where it is not told which.
  for (const auto& [parameters, place] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"object","additionalProperties":{"type":"integer"}})", "/additionalProperties"},
           {R"({"type":"object","patternProperties":{"^a":{"type":"integer"}}})", "/patternProperties"},
           {R"({"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object"}]})", "/anyOf"},
           {R"({"$ref":"#/$defs/A"})", "/$ref"}}) {
    SCOPED_TRACE(parameters);
    const auto refused = call_grammar(rules_for(parameters, true), format, spelled().tokenizer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "/tools/0/function/parameters" + place);
    const Grammar grammar =
        compiled(*call_grammar(rules_for(parameters, false), format, spelled().tokenizer));
    EXPECT_EQ(grammar.ignored(), std::vector<std::string>{"/tools/0/function/parameters" + place});
    for (const std::string& call : {none, one, two}) EXPECT_TRUE(accepts(grammar, call)) << call;
    EXPECT_FALSE(accepts(grammar, xml_call({{"", "x"}})));
  }
  const auto any = call_grammar(rules_for(R"({"type":"object","additionalProperties":true})", true), format,
                                spelled().tokenizer);
  ASSERT_TRUE(any);
  EXPECT_TRUE(accepts(compiled(*any), two));
  for (const char* parameters : {"{}", R"({"type":"object","properties":{}})"}) {
    const Grammar grammar = compiled(*call_grammar(rules_for(parameters, true), format, spelled().tokenizer));
    EXPECT_TRUE(accepts(grammar, none));
    EXPECT_FALSE(accepts(grammar, one));
  }
  // What properties alone do not hold.
  for (const auto& [parameters, place] : std::vector<std::pair<std::string, std::string>>{
           {R"({"properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})", "/anyOf"},
           {R"({"properties":{"a":{},"b":{}},"minProperties":1})", "/minProperties"},
           {R"({"properties":{"a":{}},"required":["b"]})", "/required"}})
    EXPECT_EQ(call_grammar(rules_for(parameters, true), format, spelled().tokenizer).error().where,
              "/tools/0/function/parameters" + place);
}

// Of the parts that are JSON, too, where the compiler finds out.
TEST(CallGrammar, StrictToolsAndPartsInJson) {
  const std::string where = "/tools/0/function/parameters";
  for (const char* dialect : {"hermes", "qwen_xml"})
    for (
        const auto& [parameters, place] : std::vector<std::pair<std::string, std::string>>{
            {R"({"type":"object","properties":{"o":{"type":"array","items":{"type":"string","format":"odd"}}}})",
             "/properties/o/items"},
            {R"({"type":"object","properties":{"o":{"type":"object","properties":{"a":{}},"minProperties":2}}})",
             "/properties/o"}}) {
      SCOPED_TRACE(parameters);
      const AnswerFormat format = answer_format("", dialect).take();
      const auto lax = call_grammar(rules_for(parameters, false), format, spelled().tokenizer);
      ASSERT_TRUE(lax);
      EXPECT_EQ(compiled(*lax).ignored().size(), 1u);
      const auto strict = call_grammar(rules_for(parameters, true), format, spelled().tokenizer);
      ASSERT_TRUE(strict);
      const Result<Grammar> refused = spelled().compiler.compile(*strict);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().where, where + place);
    }
  // A schema of the content beside tools that are not strict, and the other way round.
  CallRules rules = rules_for(R"({"type":"object","properties":{"o":{"type":"string"}}})", false);
  rules.required = false;
  GrammarSpec content;
  content.kind = Kind::JsonSchema;
  content.schema = {{"type", "string"}, {"format", "odd"}};
  for (const bool strict : {false, true}) {
    content.strict = strict;
    rules.content = content;
    const auto spec = call_grammar(rules, answer_format("", "hermes").take(), spelled().tokenizer);
    ASSERT_TRUE(spec);
    EXPECT_EQ(bool(spelled().compiler.compile(*spec)), !strict);
  }
  const auto choice = call_grammar(
      rules_for(R"({"type":"object","properties":{"o":{"oneOf":[{"minLength":1},{"maxLength":2}]}}})", true),
      answer_format("", "hermes").take(), spelled().tokenizer);
  ASSERT_TRUE(choice);
  EXPECT_EQ(compiled(*choice).ignored().size(), 1u);
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
