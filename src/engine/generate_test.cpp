#include "engine/generate.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

// Ten tokens; after token t the best is t + 1, after 9 it is 0.  Remembers how it was called.
class Counter final : public Engine {
 public:
  explicit Counter(int64_t context = 100, int chunk = 4) : context_(context) {
    options_.chunk = chunk;
    StateSpec layout[] = {{StateSpec::PerToken, 64}, {StateSpec::Fixed, 64}};
    pool_ = StatePool::make(layout, 4, 1).take();
  }
  static std::vector<float> row(Token t) {
    std::vector<float> logits(10, 0.5f);
    logits[(t + 1) % 10] = 30;
    return logits;
  }

  const EngineOptions& settings() const override { return options_; }
  const EngineMemory& memory() const override { return memory_; }
  int64_t vocab() const override { return 10; }
  int64_t context() const override { return context_; }
  int64_t bytes_per_token(int64_t depth) const override { return 1000 + depth; }
  std::unique_ptr<SequenceState> new_sequence() override { return SequenceState::make(*pool_); }
  Status forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                 const std::function<bool(int64_t, std::span<const float>)>& on_logits) override {
    if (fail) return Error{Code::Io, "disk", "gone"};
    passes.push_back({sequence.position(), int64_t(tokens.size())});
    sequence.commit(int64_t(tokens.size()));
    if (rows == Rows::Last) on_logits(sequence.position() - 1, row(tokens.back()));
    return Ok{};
  }

  std::vector<std::pair<int64_t, int64_t>> passes;  // position, rows
  bool fail = false;

 private:
  EngineOptions options_;
  EngineMemory memory_;
  int64_t context_;
  std::unique_ptr<StatePool> pool_;
};

Request greedy(std::vector<Token> prompt, int64_t max_tokens = -1) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = {.temperature = 0},
          .stop = {},
          .allowed = {}};
}

Digest digest_of_rows_after(std::vector<Token> tokens) {
  Sha256 digest;
  for (Token t : tokens) {
    std::vector<float> row = Counter::row(t);
    digest.update(std::as_bytes(std::span(row)));
  }
  return digest.finish();
}

TEST(Generate, EndsAtTheMostTokens) {
  Counter engine;
  Story story;
  auto a = generate(engine, story, greedy({7, 1}, 3));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens, (std::vector<Token>{2, 3, 4}));
  EXPECT_EQ(a->finish, Finish::Length);
  EXPECT_EQ(a->logits, digest_of_rows_after({1, 2, 3})) << "the last token is not read";
  EXPECT_EQ(a->passes, 2);
  EXPECT_EQ(a->bytes_moved, 1002 + 1003);
  EXPECT_EQ(story.tokens, (std::vector<Token>{7, 1, 2, 3}));
}

TEST(Generate, ZeroTokensStillDigestThePrompt) {
  Counter engine;
  Story story;
  auto a = generate(engine, story, greedy({1}, 0));
  ASSERT_TRUE(a);
  EXPECT_TRUE(a->tokens.empty());
  EXPECT_EQ(a->logits, digest_of_rows_after({1}));
}

TEST(Generate, TheStopTokenIsNotPartOfTheAnswer) {
  Counter engine;
  Story story;
  Request request = greedy({1});
  request.stop = {8, 4};
  auto a = generate(engine, story, request);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens, (std::vector<Token>{2, 3}));
  EXPECT_EQ(a->finish, Finish::Stop);
  EXPECT_EQ(a->logits, digest_of_rows_after({1, 2, 3})) << "the row that chose it counts";
}

TEST(Generate, FillsTheContextAndNoMore) {
  Counter engine(5);
  Story story;
  auto a = generate(engine, story, greedy({1, 2}));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens.size(), 3u);
  EXPECT_EQ(a->finish, Finish::Length);
  a = generate(engine, story, greedy({1, 2, 3, 4, 5}));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens.size(), 0u);
  a = generate(engine, story, greedy({1, 2, 3, 4, 5, 6}));
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code, Code::NoRoom);
  EXPECT_NE(a.error().message.find('5'), std::string::npos);
  EXPECT_NE(a.error().message.find('6'), std::string::npos);
}

TEST(Generate, TheListenerEndsIt) {
  Counter engine;
  Story story;
  auto a = generate(engine, story, greedy({1}), {.on_token = [](Token t) { return t != 5; }});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens, (std::vector<Token>{2, 3, 4, 5}));
  EXPECT_EQ(a->finish, Finish::StopString);
}

TEST(Generate, AnInterruptEndsItBetweenPasses) {
  Counter engine;
  Story story;
  std::atomic<bool> interrupt = false;
  Listener listener{.on_token = [&](Token t) { return interrupt = t == 4, true; }, .interrupt = &interrupt};
  auto a = generate(engine, story, greedy({1}), listener);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->tokens, (std::vector<Token>{2, 3, 4}));
  EXPECT_EQ(a->finish, Finish::Interrupt);

  a = generate(engine, story, greedy({1, 1}), {.interrupt = &interrupt});  // while the prompt is read
  ASSERT_TRUE(a);
  EXPECT_EQ(a->finish, Finish::Interrupt);
  EXPECT_TRUE(a->tokens.empty());
}

TEST(Generate, ReadsThePromptInChunks) {
  Counter engine(100, 4);
  Story story;
  std::vector<int64_t> told;
  Listener listener{.on_prompt = [&](int64_t done, int64_t rows) { told.push_back(rows == 9 ? done : -1); }};
  ASSERT_TRUE(generate(engine, story, greedy({1, 1, 1, 1, 1, 1, 1, 1, 1}, 1), listener));
  EXPECT_EQ(engine.passes, (std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 4}, {8, 1}}));
  EXPECT_EQ(told, (std::vector<int64_t>{4, 8, 9}));
}

TEST(Generate, ALongerPromptGoesOn) {
  Counter engine;
  Story story;
  ASSERT_TRUE(generate(engine, story, greedy({1}, 3)));  // has read 1 2 3
  engine.passes.clear();
  auto a = generate(engine, story, greedy({1, 2, 3, 4, 7}, 1));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->prompt_rows, 2);
  EXPECT_EQ(engine.passes, (std::vector<std::pair<int64_t, int64_t>>{{3, 2}}));

  engine.passes.clear();
  ASSERT_TRUE(generate(engine, story, greedy({1, 2, 9, 9, 9, 9}, 1)));  // another story
  EXPECT_EQ(engine.passes.front().first, 0);

  engine.passes.clear();
  ASSERT_TRUE(
      generate(engine, story, greedy({1, 2, 9, 9, 9, 9}, 1)));  // the same: its last row is needed again
  EXPECT_EQ(engine.passes.front().first, 0);
}

TEST(Generate, AFailedPassIsReported) {
  Counter engine;
  Story story;
  engine.fail = true;
  auto a = generate(engine, story, greedy({1}));
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code, Code::Io);
}

TEST(Generate, TokenDigestIsOverLittleEndianIds) {
  std::vector<Token> ids = {1, 258};
  EXPECT_EQ(digest_tokens(ids), sha256(std::as_bytes(std::span("\1\0\0\0\2\1\0\0", 8))));
}

}  // namespace
}  // namespace invar
