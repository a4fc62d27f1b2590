#include "engine/constraint.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "text/byte_vocabulary.h"
#include "text/call_grammar.h"

namespace invar {
namespace {

constexpr Token kEnd = 256, kThink = 257, kThinkEnd = 258, kCall = 259;
constexpr Token kCallText = 260, kOol = 261, kTwoLines = 262;

// Bytes, an end, markers as tokens, and pieces with parts of markers.
const Tokenizer& tokenizer() {
  constexpr TokenType kMarker = TokenType::UserDefined, kText = TokenType::Normal;
  static const Tokenizer made = byte_tokenizer({{"<|end|>"},
                                                {"<think>", kMarker},
                                                {"</think>", kMarker},
                                                {"<tool_call>", kMarker},
                                                {"x<tool_call>", kText},
                                                {"tool_call>", kText},
                                                {"\n\n", kText}});
  return made;
}

const AnswerFormat& format() {
  static const AnswerFormat made = answer_format("", "hermes", "think").take();
  return made;
}

Grammar abc() {
  const GrammarCompiler compiler = GrammarCompiler::make(tokenizer(), tokenizer().eos()).take();
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::Choice;
  spec.choice = {"abc", "b"};
  return compiler.compile(spec).take();
}

struct Maker {
  WorkThread thread;
  ConstraintMaker plain = ConstraintMaker::make(tokenizer(), format(), tokenizer().eos(), nullptr).take();
  ConstraintMaker threaded = ConstraintMaker::make(tokenizer(), format(), tokenizer().eos(), &thread).take();
};

std::vector<Token> allowed(Constraint& constraint) {
  std::vector<uint64_t> bits(6, ~uint64_t(0));
  constraint.mask(bits);
  std::vector<Token> out;
  for (Token t = 0; t < 6 * 64; t++)
    if (bits[t / 64] >> (t % 64) & 1) out.push_back(t);
  return out;
}

bool has(const std::vector<Token>& tokens, Token t) {
  return std::find(tokens.begin(), tokens.end(), t) != tokens.end();
}

TEST(Constraint, AGrammarFromTheFirstToken) {
  Maker maker;
  for (const ConstraintMaker* with : {&maker.plain, &maker.threaded}) {
    const auto c = with->constraint({.grammar = abc()}).take();
    EXPECT_EQ(allowed(*c), (std::vector<Token>{'a', 'b'}));
    const auto other = c->copy();
    EXPECT_TRUE(c->accept('a'));
    EXPECT_EQ(allowed(*c), (std::vector<Token>{'b'}));
    EXPECT_TRUE(c->accept('b'));
    EXPECT_FALSE(c->accept('c'));  // nothing can follow
    EXPECT_EQ(allowed(*other), (std::vector<Token>{'a', 'b'}));
    EXPECT_FALSE(other->accept('b'));
  }
}

TEST(Constraint, AGrammarBehindAThought) {
  Maker maker;
  for (const ConstraintMaker* with : {&maker.plain, &maker.threaded}) {
    const auto c = with->constraint({.thought = AnswerRules::Thought::Open, .grammar = abc()}).take();
    const std::vector<Token> inside = allowed(*c);
    EXPECT_TRUE(has(inside, 'z') && has(inside, kThinkEnd));
    EXPECT_FALSE(has(inside, kEnd));  // the answer must come
    EXPECT_TRUE(c->accept('z'));
    EXPECT_TRUE(c->accept(kThinkEnd));
    EXPECT_EQ(allowed(*c), (std::vector<Token>{'\n', 'a', 'b', kTwoLines}));
    EXPECT_TRUE(c->accept('\n'));
    EXPECT_EQ(allowed(*c), (std::vector<Token>{'\n', 'a', 'b'}));
    EXPECT_TRUE(c->accept('\n'));
    EXPECT_EQ(allowed(*c), (std::vector<Token>{'a', 'b'}));
    EXPECT_FALSE(c->accept('b'));
  }
}

TEST(Constraint, TheEndOfAThoughtInSpelledOutText) {
  Maker maker;
  const auto c = maker.plain.constraint({.thought = AnswerRules::Thought::Open, .grammar = abc()}).take();
  for (char letter : std::string("ab</think")) EXPECT_TRUE(c->accept(letter));
  EXPECT_TRUE(has(allowed(*c), 'z'));
  EXPECT_TRUE(c->accept('>'));
  EXPECT_FALSE(has(allowed(*c), 'z'));
  EXPECT_TRUE(has(allowed(*c), 'a'));
}

TEST(Constraint, AThoughtThatTheAnswerMayOpen) {
  Maker maker;
  const auto c = maker.plain.constraint({.thought = AnswerRules::Thought::May, .grammar = abc()}).take();
  EXPECT_EQ(allowed(*c), (std::vector<Token>{'\n', 'a', 'b', kThink, kTwoLines}));
  const auto without = c->copy();
  EXPECT_TRUE(without->accept('a'));
  EXPECT_EQ(allowed(*without), (std::vector<Token>{'b'}));
  const auto lines = c->copy();  // they are of the thought, never of the answer
  EXPECT_TRUE(lines->accept('\n'));
  EXPECT_EQ(allowed(*lines), (std::vector<Token>{'\n', kThink}));
  EXPECT_TRUE(lines->accept('\n'));
  EXPECT_EQ(allowed(*lines), (std::vector<Token>{kThink}));
  EXPECT_TRUE(lines->accept(kThink));
  EXPECT_TRUE(lines->accept(kThinkEnd));
  EXPECT_EQ(allowed(*lines), (std::vector<Token>{'\n', 'a', 'b', kTwoLines}));
  EXPECT_TRUE(c->accept(kThink));
  EXPECT_TRUE(has(allowed(*c), 'z'));
  EXPECT_TRUE(c->accept(kThinkEnd));
  EXPECT_FALSE(has(allowed(*c), kThink));
}

// What a thought ends with when it is forced, token by token.
std::string forced(Constraint& c) {
  std::string out;
  for (int i = 0; i < 32; i++) {
    const std::vector<Token> tokens = allowed(c);
    if (tokens.size() != 1) break;
    out += tokenizer().piece(tokens[0]);
    c.accept(tokens[0]);
  }
  return out;
}

// Nothing is masked of an answer that no rule holds, and a stop inside its thought ends the thought alone.
TEST(Constraint, AStopInAThought) {
  Maker maker;
  Counter count;
  const auto c = maker.plain.constraint({.thought = AnswerRules::Thought::May, .kept_on = &count}).take();
  EXPECT_EQ(c->in_place_of(kEnd), kEnd);
  EXPECT_FALSE(c->masks());
  EXPECT_TRUE(c->accept(kThink));
  EXPECT_TRUE(c->accept('x'));
  EXPECT_FALSE(c->masks());
  EXPECT_EQ(count.value(), 0);
  EXPECT_EQ(c->in_place_of(kEnd), '\n');
  EXPECT_EQ(count.value(), 1);
  EXPECT_TRUE(c->masks());
  EXPECT_EQ(forced(*c), "\n</think>\n\n");
  EXPECT_FALSE(c->masks());
  EXPECT_EQ(c->in_place_of(kEnd), kEnd);
  EXPECT_TRUE(maker.plain.constraint({.grammar = abc()}).take()->masks());
  EXPECT_TRUE(maker.plain.constraint({.banned = {"<tool_call>"}}).take()->masks());
}

TEST(Constraint, TheBudgetOfAThought) {
  Maker maker;
  AnswerRules rules;
  rules.thought = AnswerRules::Thought::Open;
  rules.thought_budget = 2;
  const auto c = maker.plain.constraint(rules).take();
  EXPECT_TRUE(c->accept('x'));
  EXPECT_GT(allowed(*c).size(), 1u);
  EXPECT_TRUE(c->accept('y'));
  EXPECT_EQ(forced(*c), "\n</think>\n\n");
  EXPECT_GT(allowed(*c).size(), 300u);  // free again

  const auto in_character = maker.plain.constraint(rules).take();
  EXPECT_TRUE(in_character->accept('x'));
  EXPECT_TRUE(in_character->accept(0xC3));
  EXPECT_GT(allowed(*in_character).size(), 1u);
  EXPECT_TRUE(in_character->accept(0xA9));
  EXPECT_EQ(forced(*in_character), "\n</think>\n\n");

  rules.thought_budget = 0;
  rules.grammar = abc();
  const auto none = maker.threaded.constraint(rules).take();
  EXPECT_EQ(forced(*none), "\n</think>\n\n");
  EXPECT_EQ(allowed(*none), (std::vector<Token>{'a', 'b'}));

  const auto by_itself =
      maker.plain.constraint({.thought = AnswerRules::Thought::Open, .thought_budget = 2}).take();
  EXPECT_TRUE(by_itself->accept(kThinkEnd));
  for (int i = 0; i < 5; i++) EXPECT_TRUE(by_itself->accept('x'));
  EXPECT_GT(allowed(*by_itself).size(), 300u);
}

TEST(Constraint, BannedTexts) {
  Maker maker;
  AnswerRules rules;
  rules.thought = AnswerRules::Thought::Open;
  rules.banned = call_begins(format());
  const auto c = maker.plain.constraint(rules).take();
  EXPECT_TRUE(has(allowed(*c), kCall));  // a thought may speak of it
  EXPECT_TRUE(c->accept(kThinkEnd));
  const std::vector<Token> first = allowed(*c);
  EXPECT_FALSE(has(first, kCall) || has(first, kCallText));
  EXPECT_TRUE(has(first, kOol) && has(first, '<'));
  EXPECT_TRUE(c->accept('<'));
  EXPECT_FALSE(has(allowed(*c), kOol));
  for (char letter : std::string("tool_call")) EXPECT_TRUE(c->accept(letter));
  EXPECT_FALSE(has(allowed(*c), '>'));
  EXPECT_TRUE(has(allowed(*c), 'x'));
  EXPECT_TRUE(c->accept('x'));
  EXPECT_TRUE(has(allowed(*c), '>'));
  EXPECT_FALSE(maker.plain.constraint({.banned = {"other"}}));
}

TEST(Constraint, AWrongTokenLeavesNothing) {
  Maker maker;
  const auto c = maker.plain.constraint({.grammar = abc()}).take();
  EXPECT_TRUE(c->accept('z'));
  EXPECT_TRUE(allowed(*c).empty());
}

}  // namespace
}  // namespace invar
