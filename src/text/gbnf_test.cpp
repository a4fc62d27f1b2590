#include "text/gbnf.h"

#include <bit>
#include <functional>
#include <gtest/gtest.h>
#include <regex>

#include "text/grammar_world.h"

namespace invar {
namespace {

using Kind = GrammarSpec::Kind;

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
  std::string groups = "root ::= ";
  for (int i = 0; i < 400'000; i++) groups += "()";
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
           {groups, "expected at most 1000 rules"},
           {"root ::= \"" + std::string(1 << 20, 'a') + "\"", "bytes"},
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

}  // namespace
}  // namespace invar
