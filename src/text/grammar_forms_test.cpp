// The forms in which clients write grammars: GBNF, structural tags, what JSON Schema says of strings, calls.
#include <bit>
#include <functional>
#include <gtest/gtest.h>
#include <regex>

#include "text/byte_vocabulary.h"
#include "text/call_grammar.h"
#include "text/gbnf.h"
#include "text/lark.h"
#include "text/structural_tag.h"

namespace invar {
namespace {

using Kind = GrammarSpec::Kind;

// Tags of calls are tokens for one, text for the other.
struct World {
  Tokenizer tokenizer;
  GrammarCompiler compiler = GrammarCompiler::make(tokenizer, tokenizer.eos()).take();
};
const World& spelled() {
  static const World* const made = new World{byte_tokenizer()};
  return *made;
}
const World& tokens() {
  constexpr TokenType kTag = TokenType::UserDefined;
  static const World* const made = new World{byte_tokenizer({{"<|end|>"},
                                                             {"<tool_call>", kTag},
                                                             {"</tool_call>", kTag},
                                                             {"<arg_value>", kTag},
                                                             {"</arg_value>", kTag}})};
  return *made;
}

GrammarSpec written(Kind kind, std::string text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = std::move(text);
  return spec;
}
GrammarSpec tags(std::string_view json) {
  GrammarSpec spec;
  spec.kind = Kind::Tags;
  spec.schema = parse_ordered_json(json, "tags").take();
  return spec;
}

// Its added tokens, and bytes.
std::vector<Token> tokens_of(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<Token> out;
  while (!text.empty()) {
    Token next = uint8_t(text[0]);
    for (Token t = 257; t < tokenizer.size(); t++)
      if (text.starts_with(tokenizer.piece(t))) next = t;
    out.push_back(next);
    text.remove_prefix(tokenizer.piece(next).size());
  }
  return out;
}

// Whether the text is a whole answer.
bool accepts(const Grammar& grammar, const std::string& text, const World& world = spelled()) {
  const auto matcher = grammar.start();
  for (Token t : tokens_of(text, world.tokenizer)) {
    const Result<bool> taken = matcher->accept(t);
    if (!taken || !*taken) return false;
  }
  return matcher->may_end();
}

Grammar compiled(const GrammarSpec& spec, const World& world = spelled()) {
  Result<Grammar> grammar = world.compiler.compile(spec);
  if (!grammar) ADD_FAILURE() << grammar.error().where << ": " << grammar.error().message;
  return grammar.take();
}

void expect_language(const GrammarSpec& spec, const std::string& alphabet, size_t longest,
                     const std::function<bool(const std::string&)>& wanted) {
  const Grammar grammar = compiled(spec);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); i++) {
    EXPECT_EQ(accepts(grammar, texts[i]), wanted(texts[i])) << texts[i];
    if (texts[i].size() < longest)
      for (char c : alphabet) texts.push_back(texts[i] + c);
  }
}

void expect_regex(const std::string& gbnf, const std::string& alphabet, size_t longest, const char* regex) {
  const std::regex matches(regex);
  expect_language(written(Kind::Gbnf, gbnf), alphabet, longest,
                  [&](const std::string& text) { return std::regex_match(text, matches); });
}

TEST(Gbnf, IsTheLanguageThatItSays) {
  expect_regex("root ::= (\"a\" | \"ab\") (\"c\" | \"bc\")", "abc", 5, "(a|ab)(c|bc)");
  expect_regex("root ::= (\"a\" | \"ab\") (\"c\" | \"bc\") root?", "abc", 6, "((a|ab)(c|bc))+");
  expect_regex(
      "# a comment\nroot ::= x{2} y{1,} z{0,2}  # and one here\nx ::= [a]\n\ny ::=\n  \"b\"\n  | \"cc\" (\n "
      "\"c\" )\nz ::= .",
      "abc", 6, "aa(b|ccc)+[abc]{0,2}");
  expect_regex("root ::= [^a-b]+ \"\" | \"ab\"*", "abc", 5, "[^ab]+|(ab)*");
  expect_regex("root ::= ( [\\x61-c] \"\\x62\" )* \"c\"{0} \"\\u0063\"?", "abc", 5, "([a-c]b)*c?");
  expect_regex("root ::= item (\",\" root)?\nitem ::= \"aba\" | [ab]+ \"c\"", "abc,", 6,
               "(aba|[ab]+c)(,(aba|[ab]+c))*");
  expect_language(written(Kind::Gbnf, "root ::= (\"(\" root \")\" root)?"), "()", 8,
                  [](const std::string& text) {
                    int open = 0;
                    for (char c : text)
                      if ((open += c == '(' ? 1 : -1) < 0) return false;
                    return open == 0;
                  });
  // Strings and words are terminals of their own where they can be.
  expect_regex("root ::= \"'\" ([ab] | \"\\\\\" [ab'])* \"'\" (\",\" root)?", "ab',\\", 6,
               "'([ab]|\\\\[ab'])*'(,'([ab]|\\\\[ab'])*')*");
  expect_regex("root ::= \"ab\" root | [a-c] \"b\" | \"abc\" | word\nword ::= \"cc\" [ab]{1,2} \"c\"", "abc",
               7, "(ab)*([a-c]b|abc|cc[ab]{1,2}c)");
  expect_regex("root ::= \"a\"* \"c\" root? | \"b\" (\"a\" \"b\"?){2}", "abc", 7, "(a*c)*(a*c|b(ab?){2})");
  const Grammar letters =
      compiled(written(Kind::Gbnf, "root ::= [\xC3\xA0-\xC3\xBF]+ \"\xE6\x97\xA5\" | \"\\U0001F600\""));
  EXPECT_TRUE(accepts(letters, "\xC3\xA9\xC3\xA9\xE6\x97\xA5"));
  EXPECT_TRUE(accepts(letters, "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(accepts(letters, "\xE6\x97\xA5"));
}

// A grammar by characters goes through every token of the vocabulary letter by letter.
TEST(Gbnf, HasMasksOverALargeVocabulary) {
  std::vector<AddedPiece> words = {{"<|end|>"}};
  for (int i = 0; i < 60000; i++) {
    std::string word;
    for (int rest = i + 26 * 26; rest > 0; rest /= 26) word += char('a' + rest % 26);
    words.push_back({word, TokenType::Normal});
  }
  const World large{byte_tokenizer(words)};
  const Grammar grammar =
      compiled(written(Kind::Gbnf,
                       "root ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= string \":\" (string | root)\n"
                       "string ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" ([\"nrt] | \"u\" [0-9a-f]{4}))* \"\\\"\""),
               large);
  const auto matcher = grammar.start();
  std::vector<uint64_t> bits(1000, ~uint64_t(0));
  for (char c : std::string("{\"a")) {
    ASSERT_TRUE(matcher->mask(bits));
    ASSERT_TRUE(*matcher->accept(Token(c)));
  }
  std::fill(bits.begin(), bits.end(), ~uint64_t(0));
  const Status masked = matcher->mask(bits);
  ASSERT_TRUE(masked) << masked.error().message;
  int64_t allowed = 0;
  for (uint64_t word : bits) allowed += std::popcount(word);
  EXPECT_GT(allowed, 60000) << "all words may stand in a string";
}

TEST(Gbnf, NamesTokens) {
  const Grammar grammar = compiled(written(Kind::Gbnf, "root ::= \"a\" <tool_call> | <[258]>"), tokens());
  EXPECT_TRUE(accepts(grammar, "a<tool_call>", tokens()));
  EXPECT_TRUE(accepts(grammar, "</tool_call>", tokens()));
  EXPECT_FALSE(accepts(grammar, "a", tokens()));
}

TEST(Gbnf, FaultsAreNamed) {
  std::string deep = "root ::= ";
  for (int i = 0; i < 300; i++) deep += "(";
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"", "'root'"},
           {"start ::= \"a\"", "'root'"},
           {"root ::= other", "'other'"},
           {"root ::= \"a\"\nroot ::= \"b\"", "'root' is there twice"},
           {"root ::= \"a\"\nx = \"b\"", "line 2"},
           {"root ::= \"a", "expected the end of a literal"},
           {"root ::= [", "expected the end of a literal"},
           {"root ::= []", "empty"},
           {"root ::= [b-a]", "line 1: a range"},
           {"root ::= ( \"a\"", "expected )"},
           {"root ::= \"a\" )", "expected a rule"},
           {"root ::= \"\\q\"", "\\q"},
           {"root ::= \"\\u12\"", "hexadecimal"},
           {"root ::= \"\\ud800\"", "no character"},
           {"root ::= \"a\"{3,2}", "{m,n}"},
           {"root ::= \"a\"{9999}", "2000"},
           {"root ::= \"a\"{", "number"},
           {"root ::= <none", "<text>"},
           {"root ::= !<a>", "not supported"},
           {"root ::= \"a\"" + std::string(50, '?'), "nested"},
           {deep, "nested"}}) {
    const Result<Grammar> grammar = spelled().compiler.compile(written(Kind::Gbnf, text));
    ASSERT_FALSE(grammar) << text;
    EXPECT_EQ(grammar.error().where, "grammar");
    if (!text.empty()) {
      EXPECT_NE(grammar.error().message.find(says), std::string::npos)
          << text << ": " << grammar.error().message;
    }
  }
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

TEST(Grammar, WhiteSpaceAsAsked) {
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
