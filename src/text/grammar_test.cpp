#include "text/grammar.h"

#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "text/answer_parser.h"
#include "text/byte_vocabulary.h"
#include "text/call_grammar.h"

namespace invar {
namespace {

constexpr Token kEnd = 256, kCall = 257, kCallEnd = 258;

// Bytes, an end, the tags of calls, and some pieces of more than one byte.
const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    TokenizerSpec spec;
    spec.model = "gpt2";
    spec.pre = "llama-bpe";
    for (int b = 0; b < 256; b++) spec.pieces.push_back(byte_letter(b));
    spec.types.assign(256, 1);
    for (const char* text : {"<|end|>", "<tool_call>", "</tool_call>"}) {
      spec.pieces.push_back(text);
      spec.types.push_back(text[1] == '|' ? 3 : 4);
    }
    for (const auto& [a, b] : std::vector<std::pair<const char*, const char*>>{{"t", "r"},
                                                                               {"u", "e"},
                                                                               {"tr", "ue"},
                                                                               {"1", "2"},
                                                                               {"{", "\""},
                                                                               {"\"", ":"},
                                                                               {"\"", ","},
                                                                               {"a", "b"},
                                                                               {"ab", "c"}}) {
      spec.pieces.push_back(std::string(a) + b);
      spec.types.push_back(1);
      spec.merges.push_back(std::string(a) + " " + b);
    }
    spec.eos = {kEnd};
    return Tokenizer::make(spec).take();
  }();
  return made;
}

const GrammarCompiler& compiler() {
  static const GrammarCompiler made = GrammarCompiler::make(tokenizer(), tokenizer().eos()).take();
  return made;
}

GrammarSpec schema(std::string_view text, bool strict = true) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::JsonSchema;
  spec.schema = parse_ordered_json(text, "test").take();
  spec.strict = strict;
  return spec;
}

GrammarSpec choice(std::vector<std::string> words) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::Choice;
  spec.choice = std::move(words);
  return spec;
}

GrammarSpec regex(std::string text) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::Regex;
  spec.text = std::move(text);
  return spec;
}

std::vector<Token> allowed(Matcher& matcher) {
  std::vector<uint64_t> bits(5, ~uint64_t(0));
  const Status masked = matcher.mask(bits);
  EXPECT_TRUE(masked);
  std::vector<Token> out;
  for (Token t = 0; t < 5 * 64; t++)
    if (bits[t / 64] >> (t % 64) & 1) out.push_back(t);
  return out;
}

// Against every word of a finite language, by trying every token.  Where the text is forced, the mask may
// allow the canonical token alone.
void compare(const GrammarSpec& spec, const std::vector<std::string>& words) {
  const Result<Grammar> grammar = compiler().compile(spec);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto visit = [&](const auto& self, Matcher& matcher, const std::string& so_far) -> void {
    std::vector<Token> expected;
    std::string nexts;
    for (const std::string& word : words) {
      if (!word.starts_with(so_far)) continue;
      const char next = word.size() > so_far.size() ? word[so_far.size()] : '\0';
      if (nexts.find(next) == nexts.npos) nexts += next;
    }
    for (Token t = 0; t < tokenizer().size(); t++) {
      const std::string piece(tokenizer().piece(t));
      const bool text = tokenizer().type(t) == TokenType::Normal;
      const auto fits = [&](const std::string& w) {
        return text ? w.starts_with(so_far + piece) : w == so_far;
      };
      if ((text || t == kEnd) && std::any_of(words.begin(), words.end(), fits)) expected.push_back(t);
    }
    const std::vector<Token> got = allowed(matcher);
    if (nexts.size() > 1) {
      EXPECT_EQ(got, expected) << so_far;
    } else {
      EXPECT_FALSE(got.empty()) << so_far;
      EXPECT_TRUE(std::includes(expected.begin(), expected.end(), got.begin(), got.end())) << so_far;
    }
    for (Token t : got) {
      if (t == kEnd) continue;
      const std::unique_ptr<Matcher> next = matcher.copy();
      const Result<bool> taken = next->accept(t);
      ASSERT_TRUE(taken && *taken) << so_far << " and " << t;
      self(self, *next, so_far + std::string(tokenizer().piece(t)));
    }
  };
  visit(visit, *grammar->start(), "");
}

TEST(Grammar, MasksAreThoseOfTheLanguage) {
  const std::vector<std::string> words = {"true", "tr", "abc", "abca", "12", "1.", "a+(b)|c/\n\\d"};
  compare(choice(words), words);
  compare(regex("(a|ab)(c|bc)?[12]"),
          {"a1", "a2", "ab1", "ab2", "ac1", "ac2", "abc1", "abc2", "abbc1", "abbc2"});
  std::vector<std::string> numbers;
  for (int i = -3; i <= 120; i++) numbers.push_back(std::to_string(i));
  numbers.push_back("-0");
  compare(schema(R"({"type":"integer","minimum":-3,"maximum":120})"), numbers);
  compare(schema(R"({"enum":["abc","a\"b",1,null,{"ab":[true]}]})"),
          {"\"abc\"", "\"a\\\"b\"", "1", "null", "{\"ab\":[true]}"});
  compare(schema(R"({"type":"array","items":{"type":"boolean"},"maxItems":2})"),
          {"[]", "[true]", "[false]", "[true,true]", "[true,false]", "[false,true]", "[false,false]"});
  compare(
      schema(R"({"type":"object","properties":{"ab":{"type":"boolean"},"abc":{"const":12}},"required":["abc"],
                     "additionalProperties":false})"),
      {R"({"abc":12})", R"({"ab":true,"abc":12})", R"({"ab":false,"abc":12})"});
}

TEST(Grammar, EndsOnlyWhenComplete) {
  const Result<Grammar> grammar = compiler().compile(regex("ab?"));
  ASSERT_TRUE(grammar);
  const auto matcher = grammar->start();
  EXPECT_FALSE(matcher->may_end());
  EXPECT_FALSE(*matcher->accept('b'));
  EXPECT_TRUE(*matcher->accept('a'));
  EXPECT_TRUE(matcher->may_end());
  EXPECT_FALSE(matcher->complete());
  const auto other = matcher->copy();
  EXPECT_TRUE(*matcher->accept('b'));
  EXPECT_TRUE(matcher->complete());
  EXPECT_EQ(allowed(*matcher), std::vector<Token>{kEnd});
  EXPECT_FALSE(*matcher->accept('b'));
  EXPECT_FALSE(other->complete());
}

std::string place(const GrammarSpec& spec) {
  const Result<Grammar> grammar = compiler().compile(spec);
  return grammar ? "" : grammar.error().where;
}

TEST(Grammar, FaultsHaveAPlace) {
  EXPECT_EQ(place(schema(R"({"type":"object","properties":{"a":{"not":{}}}})")), "/properties/a/not");
  EXPECT_EQ(
      place(schema(R"({"type":"object","properties":{"a/b":{"type":"array","items":{"type":"strange"}}}})")),
      "/properties/a~1b/items");
  EXPECT_EQ(place(schema(R"({"anyOf":[{"type":"null"},{"type":"string","pattern":"("}]})")), "/anyOf/1");
  EXPECT_EQ(place(schema("[1]")), "schema");
  EXPECT_EQ(place(regex("(")), "regex");
  EXPECT_EQ(place(regex("")), "regex");
  EXPECT_EQ(place(choice({})), "choice");
  GrammarSpec lark;
  lark.kind = GrammarSpec::Kind::Lark;
  lark.text = "start: nowhere";
  EXPECT_EQ(place(lark), "grammar");
  std::string deep = "{}";
  for (int i = 0; i < 80; i++) deep = R"({"items":)" + deep + "}";
  EXPECT_EQ(place(schema(deep)), "schema");
}

// Of n parts, each made by a number.
template <class Part>
std::string listed(int n, const Part& part) {
  std::string out;
  for (int i = 0; i < n; i++) out += (i > 0 ? "," : "") + part(std::to_string(i));
  return out;
}

std::string object(int n, const std::string& more = "") {
  const auto property = [](const std::string& i) { return "\"p" + i + R"(":{"type":"integer"})"; };
  return R"({"type":"object","properties":{)" + listed(n, property) + "}" + more + "}";
}

std::string all_of(int n, const std::string& before, const std::string& behind) {
  return R"({"allOf":[)" + listed(n, [&](const std::string& i) { return before + i + behind; }) + "]}";
}

TEST(Grammar, WhatWouldTakeLongIsRefusedBeforeItIsCompiled) {
  const auto name = [](const std::string& i) { return "\"p" + i + "\""; };
  const auto type = [](const std::string& i) {
    return R"({"type":"object","properties":{"p)" + i + R"(":{}}})";
  };
  const auto rule = [](const std::string& i) { return "\"p" + i + R"(":{"type":"integer"})"; };
  const std::string four = R"({"anyOf":[)" + listed(4, type) + "]}", twice = R"({"allOf":[{"$ref":"#/$defs/)";
  std::string power = R"({"$defs":{"d0":)" + four;  // four to the power of 2, 4, 8 ways
  for (int i = 1; i < 4; i++) {
    const std::string before = "d" + std::to_string(i - 1) + "\"}";
    power += ",\"d" + std::to_string(i) + "\":" + twice + before + R"(,{"$ref":"#/$defs/)" + before + "]}";
  }
  power += R"(},"$ref":"#/$defs/d3"})";
  struct Case {
    std::string schema, where, found;
  };
  const std::vector<Case> cases = {
      {object(5000), "schema", "found 5000"},
      {R"({"type":"array","items":{"anyOf":[{"type":"null"},)" + object(5000) + "]}}", "/items/anyOf/1",
       "found 5000"},
      {R"({"anyOf":[)" + listed(600, type) + "," + listed(600, type) + "]}", "schema", "found 1200"},
      {R"({"allOf":[)" + object(600) + "," + object(600) + "]}", "schema", "found 1200"},
      {object(60, R"(,"minProperties":1,"additionalProperties":false)"), "schema", "found 1830"},
      {R"({"type":"object","required":[)" + listed(20000, name) + "]}", "/required", "found 20000"},
      {R"({"enum":[)" + listed(40000, name) + "]}", "schema", "found 40002"},
      {R"({"type":"object","patternProperties":{)" + listed(400, rule) + "}}", "/patternProperties",
       "found 400"},
      {all_of(100, R"({"pattern":"a)", R"(b"})"), "schema", "found 100"},
      {all_of(100, R"({"properties":{"a":{"pattern":"a)", R"(b"}}})"), "schema", "found 100"},
      {R"({"type":"integer","multipleOf":1000003})", "schema", "found 21"},
      {all_of(2, R"({"type":"integer","multipleOf":100)", "3}"), "schema", "found 30"},
      {power, "/$defs/d2", "found 1024"}};
  for (const Case& c : cases) {
    const auto began = std::chrono::steady_clock::now();
    const Result<Grammar> refused = compiler().compile(schema(c.schema));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(500))
        << c.schema.substr(0, 80);
    ASSERT_FALSE(refused) << c.schema.substr(0, 80);
    EXPECT_EQ(refused.error().where, c.where) << c.schema.substr(0, 80);
    EXPECT_NE(refused.error().message.find("expected at most"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(c.found), std::string::npos) << refused.error().message;
  }
}

TEST(Grammar, WhatIsJustBelowTheLimitsIsCompiledSoonAndHoldsToTheEnd) {
  const auto name = [](const std::string& i) { return "\"p" + i + "\""; };
  std::mt19937 random(5);
  const std::vector<std::string> below = {
      object(1000), object(1000, R"(,"additionalProperties":false)"),
      object(5000, R"(,"additionalProperties":false,"required":[)" + listed(5000, name) + "]"),
      R"({"enum":[)" + listed(20000, name) + "]}",
      R"({"type":"integer","multipleOf":99991,"maximum":1000000})"};
  for (const std::string& text : below) {
    const auto began = std::chrono::steady_clock::now();
    const Result<Grammar> grammar = compiler().compile(schema(text));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2)) << text.substr(0, 80);
    ASSERT_TRUE(grammar) << text.substr(0, 80) << grammar.error().message;
    const std::unique_ptr<Matcher> matcher = grammar->start();
    for (int i = 0; i < 300 && !matcher->complete(); i++) {
      const std::vector<Token> next = allowed(*matcher);
      ASSERT_FALSE(next.empty()) << text.substr(0, 80) << " after " << i;
      const Result<bool> taken = matcher->accept(next[random() % next.size()]);
      ASSERT_TRUE(taken && *taken) << text.substr(0, 80) << " after " << i;
    }
  }
}

// The states of its lexer are its own: they are counted, and one answer may use them up.
TEST(Grammar, AnAnswerThatTakesTooMuchWorkFailsAlone) {
  const GrammarSpec spec =
      schema(R"({"type":"object","properties":{"a":{"type":"string","maxLength":60000}},"required":["a"]})");
  const Grammar grammar = compiler().compile(spec).take();
  const auto before = grammar.start(), longest = grammar.start();
  for (const char c : std::string("{\"a\":\"")) ASSERT_TRUE(*longest->accept(Token(c)));
  int taken = 0;
  std::vector<uint64_t> bits(5);
  while (taken < 60000 && longest->mask(bits) && longest->accept('x')) taken++;
  ASSERT_LT(taken, 60000);
  for (const Grammar& again : {grammar, compiler().compile(spec).take()}) {
    const auto next = again.start();
    EXPECT_FALSE(allowed(*next).empty());
    const Result<bool> fits = next->accept('{');
    EXPECT_TRUE(fits && *fits);
  }
  EXPECT_FALSE(allowed(*before).empty());
}

bool takes(const GrammarSpec& spec, const std::string& text) {
  const auto matcher = compiler().compile(spec).take().start();
  for (const char c : text)
    if (const Result<bool> fits = matcher->accept(uint8_t(c)); !fits || !*fits) return false;
  return matcher->may_end();
}

// The compiler has doubles.
TEST(Grammar, NumbersThatDoublesDoNotTellApart) {
  const auto told = [](const GrammarSpec& spec) { return compiler().compile(spec).take().ignored(); };
  for (const char* id : {"1234567890123456789", "-9007199254740993", "18446744073709551617"}) {
    const std::string text(id);
    for (const auto& [key, value] : {std::pair{"enum", "[1," + text + "]"}, {"const", text}}) {
      const std::string whole = "{\"" + std::string(key) + "\":" + value + "}";
      EXPECT_EQ(place(schema(whole)), "/" + std::string(key)) << whole;
      EXPECT_EQ(told(schema(whole, false)), std::vector<std::string>{"/" + std::string(key)}) << whole;
      EXPECT_TRUE(takes(schema(whole, false), text)) << whole;
      EXPECT_FALSE(takes(schema(whole, false), "\"a\"")) << whole;
    }
  }
  for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
    for (const char* value : {"9007199254740992", "-9223372036854775808", "9223372036854775807", "-1e19",
                              "123456789012345678901234567890"}) {
      const std::string whole =
          R"({"type":"integer",")" + std::string(bound) + "\":" + std::string(value) + "}";
      EXPECT_EQ(place(schema(whole)), "/" + std::string(bound)) << whole;
      EXPECT_TRUE(takes(schema(whole, false), "9007199254740993")) << whole;
      EXPECT_FALSE(takes(schema(whole, false), "true")) << whole;
    }
  // Where 64 bits end, and within what an object has to be.
  EXPECT_EQ(place(schema(R"({"enum":["a",{"id":[1234567890123456789]}]})")), "/enum");
  EXPECT_EQ(place(schema(R"({"const":-9223372036854775808})")), "/const");
  EXPECT_EQ(place(schema(R"({"type":"integer","minimum":-1e19,"maximum":-1e19})")), "/minimum");
  EXPECT_EQ(place(schema(R"({"items":[{"const":-9223372036854775808}]})")), "/items/0/const");
  EXPECT_EQ(place(schema(R"({"properties":{"const":-9223372036854775808},"$ref":"#/properties"})", false)),
            "schema");
  EXPECT_TRUE(told(schema(R"({"type":"integer","default":-1e19,"examples":[1e19]})")).empty());
  const GrammarSpec safe =
      schema(R"({"type":"integer","minimum":9007199254740990,"maximum":9007199254740991})");
  EXPECT_TRUE(takes(safe, "9007199254740991"));
  EXPECT_FALSE(takes(safe, "9007199254740992"));
  EXPECT_TRUE(takes(schema(R"({"enum":["1234567890123456789",0.5]})"), "0.5"));
}

TEST(Grammar, WhatIsNotEnforcedIsTold) {
  const Result<Grammar> grammar = compiler().compile(
      schema(R"({"type":"object","properties":{"a":{"type":"string","not":{}}},"if":{}})", false));
  ASSERT_TRUE(grammar);
  EXPECT_EQ(grammar->ignored(), (std::vector<std::string>{"/if", "/properties/a/not"}));
}

// A random answer: any token that is allowed; after a while what ends a value, character by character.
std::string random_answer(const Grammar& grammar, std::mt19937& random, const std::string& closer = "\"") {
  const auto matcher = grammar.start();
  std::string out;
  for (int step = 0; step < 3000 && !matcher->complete(); step++) {
    std::vector<Token> tokens = allowed(*matcher);
    if (tokens.empty()) return out + " NOTHING ALLOWED";
    const auto end = std::find(tokens.begin(), tokens.end(), kEnd);
    if (end != tokens.end() && (step > 60 || random() % 4 == 0)) return out;
    if (end != tokens.end() && tokens.size() > 1) tokens.erase(end);
    Token chosen = tokens[random() % tokens.size()];
    size_t begun = closer.size() - 1;
    while (!out.ends_with(closer.substr(0, begun))) begun--;
    for (const char wanted : {closer[begun], '}', ']'})
      if (step % 40 > 20 && std::find(tokens.begin(), tokens.end(), Token(wanted)) != tokens.end()) {
        chosen = Token(wanted);
        break;
      }
    const Result<bool> taken = matcher->accept(chosen);
    EXPECT_TRUE(taken && *taken);
    out += tokenizer().piece(chosen);
  }
  return out;
}

Json two_tools() {
  return parse_ordered_json(R"([{"type":"function","function":{"name":"save","parameters":{"type":"object",
      "properties":{"path":{"type":"string"},"n":{"type":"integer"},"kind":{"enum":["x","y"]},
      "tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},"required":["path","kind"]}}},
      {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{},
      "additionalProperties":false}}}])",
                            "test")
      .take();
}

// Whatever a forced call says, the parser reads it as calls and nothing else.
TEST(CallGrammar, ForcedCallsAreCalls) {
  std::mt19937 random(3);
  const std::vector<std::pair<const char*, const char*>> kClosers = {
      {"qwen_xml", "\n</parameter>"}, {"glm", "</arg_value>"}, {"hermes", "\""}, {"llama3", "\""}};
  for (const auto& [name, closer] : kClosers) {
    const AnswerFormat format = answer_format("", name).take();
    for (const bool parallel : {true, false}) {
      CallRules rules;
      rules.tools = two_tools();
      rules.parallel = parallel;
      const Result<GrammarSpec> spec = call_grammar(rules, format, tokenizer());
      ASSERT_TRUE(spec) << spec.error().message;
      const Result<Grammar> grammar = compiler().compile(*spec);
      ASSERT_TRUE(grammar) << name << ": " << grammar.error().where << ": " << grammar.error().message
                           << spec->text;
      for (int round = 0; round < 20; round++) {
        const std::string text = random_answer(*grammar, random, closer);
        ASSERT_LT(text.size(), 2500u) << text;
        AnswerParser parser(tokenizer(), format, rules.tools, {});
        std::vector<AnswerPiece> pieces;
        parser.push(text, pieces);
        parser.finish(false, pieces);
        int begun = 0;
        std::string arguments, tool;
        for (const AnswerPiece& p : merged(std::move(pieces))) {
          EXPECT_TRUE(p.kind != AnswerPiece::Kind::Text && p.kind != AnswerPiece::Kind::Thought)
              << name << text;
          if (p.kind == AnswerPiece::Kind::CallBegin) begun++, tool = p.text;
          if (p.kind != AnswerPiece::Kind::CallArguments) continue;
          const auto parsed = parse_ordered_json(p.text, "arguments");
          ASSERT_TRUE(parsed) << p.text;
          if (tool == "save") {
            EXPECT_TRUE(parsed->contains("path") && parsed->contains("kind")) << text;
            EXPECT_TRUE(!parsed->contains("n") || (*parsed)["n"].is_number() ||
                        is_big_integer((*parsed)["n"]))
                << text;
            EXPECT_TRUE(!parsed->contains("tags") || (*parsed)["tags"].is_array()) << text;
          }
        }
        EXPECT_EQ(parser.calls(), begun) << text;
        EXPECT_GE(begun, 1) << name << text;
        if (!parallel) { EXPECT_EQ(begun, 1) << text; }
      }
    }
  }
}

TEST(CallGrammar, WhatWouldTakeLongIsRefusedBeforeItIsCompiled) {
  for (const char* dialect : {"qwen_xml", "hermes"}) {
    CallRules rules;
    rules.tools = two_tools();
    rules.tools[1]["function"]["parameters"] = parse_ordered_json(object(5000), "test").take();
    const Result<GrammarSpec> wide = call_grammar(rules, answer_format("", dialect).take(), tokenizer());
    ASSERT_FALSE(wide);
    EXPECT_EQ(wide.error().where, "/tools/1/function/parameters");
  }
  // The definitions come with each parameter.
  const std::string text(100000, 'x');
  Json parameters = parse_ordered_json(object(1000), "test").take();
  parameters["$defs"]["d"] = {{"const", text}};
  CallRules rules;
  rules.tools = two_tools();
  rules.tools[0]["function"]["parameters"] = parameters;
  const Result<GrammarSpec> large = call_grammar(rules, answer_format("", "qwen_xml").take(), tokenizer());
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().where, "/tools/0/function/parameters");
}

TEST(CallGrammar, NamesAndFaults) {
  const AnswerFormat format = answer_format("", "hermes").take();
  CallRules rules;
  rules.tools = two_tools();
  rules.names = {"now"};
  rules.parallel = false;
  const Result<GrammarSpec> spec = call_grammar(rules, format, tokenizer());
  ASSERT_TRUE(spec);
  std::mt19937 random(1);
  EXPECT_EQ(random_answer(*compiler().compile(*spec), random),
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  rules.names = {"other"};
  EXPECT_EQ(call_grammar(rules, format, tokenizer()).error().where, "tool_choice");
  EXPECT_EQ(call_grammar(rules, answer_format("", "none").take(), tokenizer()).error().where, "tool_choice");
  rules.names.clear();
  rules.tools[0]["function"]["parameters"]["properties"]["n"]["type"] = "strange";
  const Result<GrammarSpec> broken = call_grammar(rules, format, tokenizer());
  ASSERT_TRUE(broken);
  EXPECT_EQ(place(*broken), "/tools/0/function/parameters/properties/n");
}

TEST(CallGrammar, CallsOrContent) {
  CallRules rules;
  rules.tools = two_tools();
  rules.required = false;
  rules.content = choice({"abc"});
  const Result<GrammarSpec> spec = call_grammar(rules, answer_format("", "qwen_xml").take(), tokenizer());
  ASSERT_TRUE(spec);
  const Result<Grammar> grammar = compiler().compile(*spec);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const std::vector<Token> first = allowed(*grammar->start());
  EXPECT_TRUE(std::find(first.begin(), first.end(), 'a') != first.end());
  EXPECT_TRUE(std::find(first.begin(), first.end(), kCall) != first.end());
  EXPECT_FALSE(std::find(first.begin(), first.end(), 'b') != first.end());
}

}  // namespace
}  // namespace invar
