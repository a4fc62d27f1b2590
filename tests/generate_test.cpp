#include "engine/generate.h"

#include <cstdio>
#include <gtest/gtest.h>

#include "alphabet_model.h"
#include "files/model_file.h"

namespace invar {
namespace {

class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() { path_ = new std::string(write_alphabet_model()); }
  static void TearDownTestSuite() {
    std::remove(path_->c_str());
    delete path_;
  }

  std::unique_ptr<Engine> open(int64_t context = 100, int chunk = 4) {
    auto file = ModelFile::open(*path_);
    EXPECT_TRUE(file);
    EngineOptions options;
    options.threads = 1;
    options.chunk = chunk;
    options.context = context;
    auto engine = Engine::open(*file, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine.take();
  }

  static std::vector<Token> ids(const char* text) { return {text, text + std::strlen(text)}; }
  static Request greedy(const char* prompt, int64_t most = -1) {
    Request request;
    request.prompt = ids(prompt);
    request.max_tokens = most;
    request.sampling.temperature = 0;
    request.stop = {kAlphabetEnd};
    return request;
  }
  static Answer answer(Engine& engine, Story& story, const Request& request, const Listener& listener = {}) {
    auto a = generate(engine, story, request, listener);
    EXPECT_TRUE(a) << a.error().message;
    return a.take();
  }
  // Of the rows from `first` on of one pass over the text.
  static Digest digest_of_rows(Engine& engine, const char* text, int64_t first) {
    auto state = engine.new_sequence();
    Sha256 digest;
    EXPECT_TRUE(engine.forward(*state, ids(text), Engine::Rows::All,
                               [&](int64_t position, std::span<const float> row) {
                                 if (position >= first) digest.update(std::as_bytes(row));
                                 return true;
                               }));
    return digest.finish();
  }

  static std::string* path_;
};
std::string* Generate::path_ = nullptr;

TEST_F(Generate, EndsAtTheMostTokens) {
  auto engine = open();
  Answer a;
  {
    Story story;
    a = answer(*engine, story, greedy("xa", 3));
    EXPECT_EQ(story.tokens, ids("xabc"));
  }
  EXPECT_EQ(a.tokens, ids("bcd"));
  EXPECT_EQ(a.finish, Finish::Length);
  EXPECT_EQ(a.passes, 2);
  EXPECT_EQ(a.bytes_moved, double(engine->bytes_per_token(2) + engine->bytes_per_token(3)));
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "xabc", 1)) << "the last token is not read";
}

TEST_F(Generate, ZeroTokensStillDigestThePrompt) {
  auto engine = open();
  Answer a;
  {
    Story story;
    a = answer(*engine, story, greedy("ab", 0));
  }
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "ab", 1));
}

TEST_F(Generate, TheStopTokenIsNotPartOfTheAnswer) {
  auto engine = open();
  Answer a;
  {
    Story story;
    a = answer(*engine, story, greedy("w"));
  }
  EXPECT_EQ(a.tokens, ids("xyz"));
  EXPECT_EQ(a.finish, Finish::Stop);
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "wxyz", 0)) << "the row that chose it counts";
}

TEST_F(Generate, FillsTheContextAndNoMore) {
  auto engine = open(5);
  Story story;
  Answer a = answer(*engine, story, greedy("ab"));
  EXPECT_EQ(a.tokens, ids("cde"));
  EXPECT_EQ(a.finish, Finish::Length);
  a = answer(*engine, story, greedy("abcde"));
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.finish, Finish::Length);
  auto refused = generate(*engine, story, greedy("abcdef"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::NoRoom);
  EXPECT_NE(refused.error().message.find('5'), std::string::npos);
  EXPECT_NE(refused.error().message.find('6'), std::string::npos);
}

TEST_F(Generate, TheListenerEndsIt) {
  auto engine = open();
  Story story;
  Listener listener;
  listener.on_token = [](Token t) { return t != 'e'; };
  Answer a = answer(*engine, story, greedy("a"), listener);
  EXPECT_EQ(a.tokens, ids("bcde"));
  EXPECT_EQ(a.finish, Finish::StopString);
}

TEST_F(Generate, AnInterruptEndsItBetweenPasses) {
  auto engine = open();
  Story story;
  std::atomic<bool> interrupt = false;
  Listener listener;
  listener.on_token = [&](Token t) {
    interrupt = t == 'd';
    return true;
  };
  listener.interrupt = &interrupt;
  Answer a = answer(*engine, story, greedy("a"), listener);
  EXPECT_EQ(a.tokens, ids("bcd"));
  EXPECT_EQ(a.finish, Finish::Interrupt);

  a = answer(*engine, story, greedy("xa"), listener);  // while the prompt is read
  EXPECT_EQ(a.finish, Finish::Interrupt);
  EXPECT_TRUE(a.tokens.empty());
}

TEST_F(Generate, ReadsThePromptInChunks) {
  auto engine = open(100, 4);
  Story story;
  std::vector<int64_t> told;
  Listener listener;
  listener.on_prompt = [&](int64_t done, int64_t rows) { told.push_back(rows == 9 ? done : -1); };
  answer(*engine, story, greedy("abcabcabc", 1), listener);
  EXPECT_EQ(told, (std::vector<int64_t>{4, 8, 9}));
}

TEST_F(Generate, ALongerPromptGoesOn) {
  auto engine = open();
  Story story;
  answer(*engine, story, greedy("a", 3));  // has read "abc"
  Answer a = answer(*engine, story, greedy("abcdx", 1));
  EXPECT_EQ(a.prompt_rows, 2);
  EXPECT_EQ(a.tokens, ids("y"));
  EXPECT_EQ(answer(*engine, story, greedy("abq", 1)).prompt_rows, 3) << "another story";
  EXPECT_EQ(answer(*engine, story, greedy("abq", 1)).prompt_rows, 3)
      << "the same: its last row is needed again";
}

TEST_F(Generate, SeedsAndMasksReachTheSampler) {
  auto engine = open();
  Story story;
  Request request = greedy("a", 2);
  request.allowed.assign(5, ~uint64_t(0));
  request.allowed['b' / 64] &= ~(uint64_t(1) << ('b' % 64));
  EXPECT_EQ(answer(*engine, story, request).tokens[0], 0) << "all but the best are equal";
  request = greedy("a", 8);
  request.sampling.temperature = 20;
  std::vector<Token> first = answer(*engine, story, request).tokens;
  EXPECT_EQ(answer(*engine, story, request).tokens, first);
  request.sampling.seed = 1;
  EXPECT_NE(answer(*engine, story, request).tokens, first);
}

TEST_F(Generate, TokenDigestIsOverLittleEndianIds) {
  std::vector<Token> tokens = {1, 258};
  EXPECT_EQ(digest_tokens(tokens), sha256(std::as_bytes(std::span("\1\0\0\0\2\1\0\0", 8))));
}

}  // namespace
}  // namespace invar
