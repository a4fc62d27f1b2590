// What one request gets: tokens, ends, digests, events; on a model whose answers are known.
#include "engine/engine.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <thread>

#include "alphabet_model.h"
#include "questions.h"

namespace invar {
namespace {

class EngineOfAlphabet : public testing::Test {
 protected:
  static void SetUpTestSuite() { path_ = new std::string(write_alphabet_model()); }
  static void TearDownTestSuite() {
    std::remove(path_->c_str());
    delete path_;
  }

  std::unique_ptr<Engine> open(int64_t context = 100, int chunk = 4, int sequences = 4) {
    auto file = ModelFile::open(*path_);
    EXPECT_TRUE(file);
    EngineOptions options;
    options.threads = 1;
    options.chunk = chunk;
    options.context = context;
    options.sequences = sequences;
    options.memory_bytes = 64 << 20;
    auto engine = Engine::open(*file, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine.take();
  }

  static std::vector<Token> ids(const char* text) { return {text, text + std::strlen(text)}; }
  static Question greedy(const char* prompt, int64_t most = -1) {
    Question q{ids(prompt), most, {}, {kAlphabetEnd}};
    q.sampling.temperature = 0;
    return q;
  }
  // Of the rows from `first` on of one pass over the text.
  static Digest digest_of_rows(Engine& engine, const char* text, int64_t first) {
    auto state = engine.runner().new_sequence();
    Sha256 digest;
    EXPECT_TRUE(engine.runner().forward(*state, ids(text), ModelRunner::Rows::All,
                                        [&](int64_t position, std::span<const float> row) {
                                          if (position >= first) digest.update(std::as_bytes(row));
                                          return true;
                                        }));
    return digest.finish();
  }

  static std::string* path_;
};
std::string* EngineOfAlphabet::path_ = nullptr;

TEST_F(EngineOfAlphabet, EndsAtTheMostTokens) {
  auto engine = open();
  Heard a = answer(*engine, greedy("xa", 3));
  EXPECT_EQ(a.tokens, ids("bcd"));
  EXPECT_EQ(a.finish, Finish::Length);
  EXPECT_EQ(a.usage.answer_rows, 2) << "the last token is not read";
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "xabc", 1));
}

TEST_F(EngineOfAlphabet, ZeroTokensStillDigestThePrompt) {
  auto engine = open();
  Heard a = answer(*engine, greedy("ab", 0));
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.finish, Finish::Length);
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "ab", 1));
}

TEST_F(EngineOfAlphabet, TheStopTokenIsNotPartOfTheAnswer) {
  auto engine = open();
  Heard a = answer(*engine, greedy("w"));
  EXPECT_EQ(a.tokens, ids("xyz"));
  EXPECT_EQ(a.finish, Finish::Stop);
  EXPECT_EQ(a.logits, digest_of_rows(*engine, "wxyz", 0)) << "the row that chose it counts";
}

TEST_F(EngineOfAlphabet, FillsTheContextAndNoMore) {
  auto engine = open(5);
  Heard a = answer(*engine, greedy("ab"));
  EXPECT_EQ(a.tokens, ids("cde"));
  EXPECT_EQ(a.finish, Finish::Length);
  a = answer(*engine, greedy("abcde"));
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.finish, Finish::Length);
  auto refused = engine->submit(request_of(greedy("abcdef")));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::NoRoom);
  EXPECT_NE(refused.error().message.find('5'), std::string::npos);
  EXPECT_NE(refused.error().message.find('6'), std::string::npos);
}

TEST_F(EngineOfAlphabet, RefusesWhatIsNoRequest) {
  auto engine = open();
  auto refusal = [&](auto change) {
    Request request = request_of(greedy("ab"));
    change(request);
    auto id = engine->submit(std::move(request));
    return id ? std::string() : id.error().where;
  };
  EXPECT_EQ(refusal([](Request& r) { r.prompt.clear(); }), "prompt");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.push_back(-1); }), "prompt");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.push_back(kAlphabetTokens); }), "prompt");
  EXPECT_EQ(refusal([](Request& r) { r.n = 0; }), "n");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.top_p = 2; }), "--top-p");
  EXPECT_FALSE(engine->step()) << "nothing was taken";
}

TEST_F(EngineOfAlphabet, TheListenerEndsIt) {
  auto engine = open();
  Request request = request_of(greedy("a"));
  Heard a;
  request.on_event = [&](const Event& e) {
    hear(e, a);
    return e.tokens.empty() || e.tokens.back() != 'e';
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  EXPECT_EQ(a.tokens, ids("bcde"));
  EXPECT_EQ(a.finish, Finish::StopString);
}

TEST_F(EngineOfAlphabet, CancelledBetweenSteps) {
  auto engine = open();
  Heard a;
  uint64_t id = ask(*engine, greedy("xxxxxa"), a);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine->step());
  EXPECT_EQ(a.tokens, ids("bcd"));
  engine->cancel(id);
  EXPECT_TRUE(a.ends == 0);
  engine->step();
  EXPECT_EQ(a.finish, Finish::Cancelled);
  EXPECT_EQ(a.tokens, ids("bcd"));
  EXPECT_FALSE(engine->step());
  engine->cancel(id);
  EXPECT_FALSE(engine->step()) << "ended long ago";
}

// Both are in one pass: when the first one's token is told, the second's rows are computed and not yet taken.
TEST_F(EngineOfAlphabet, CancelledBetweenPassAndCommit) {
  for (const char* prompt : {"b", "xxxxxxxxxxxxxxxxxxxxa"}) {  // its answer, or a piece of its prompt
    auto engine = open(100, 4, 2);
    Heard a, b;
    uint64_t second = 0;
    int told = 0;
    Request request = request_of(greedy("a", 6));
    request.on_event = [&](const Event& e) {
      hear(e, a);
      if (!e.tokens.empty() && ++told == 3) {
        engine->cancel(second);
        EXPECT_EQ(b.ends, 0);
      }
      return true;
    };
    ASSERT_TRUE(engine->submit(std::move(request)));
    second = ask(*engine, greedy(prompt), b);
    while (told < 3) engine->step();
    const size_t before = b.tokens.size();
    EXPECT_TRUE(engine->step());
    EXPECT_EQ(b.finish, Finish::Cancelled);
    EXPECT_EQ(b.tokens.size(), before) << "nothing more after it";
    EXPECT_EQ(engine->statistics().state.pages.live, 1);
    engine->run_until_idle();
    EXPECT_EQ(a.tokens, ids("bcdefg"));
    EXPECT_EQ(engine->statistics().state.pages.live, 0);
    Question again = greedy(prompt, 5);
    EXPECT_EQ(answer(*engine, again).logits, plain_answer(engine->runner(), again).logits);
  }
}

TEST_F(EngineOfAlphabet, AnotherThreadAsksAndCancels) {
  auto engine = open(4000, 4);
  Heard a, b;
  std::thread other([&] {
    for (Heard* h : {&a, &b}) {
      Question q = greedy("a");
      q.stop = {};
      q.sampling.bias = {{'a', 100.0f}};  // never ends
      uint64_t id = ask(*engine, q, *h);
      while (engine->statistics().running == 0) std::this_thread::yield();
      engine->cancel(id);
      while (engine->statistics().cancelled < (h == &a ? 1 : 2)) std::this_thread::yield();
    }
    engine->wake();
  });
  while (engine->statistics().cancelled < 2) {
    engine->wait();
    engine->run_until_idle();
  }
  other.join();
  EXPECT_EQ(a.finish, Finish::Cancelled);
  EXPECT_EQ(b.finish, Finish::Cancelled);
}

TEST_F(EngineOfAlphabet, ADeadlineEndsIt) {
  auto engine = open();
  Request request = request_of(greedy("a"));
  Heard a;
  request.deadline_s = 0;
  request.on_event = [&](const Event& e) {
    hear(e, a);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  EXPECT_EQ(a.finish, Finish::Deadline);
  EXPECT_TRUE(a.tokens.empty());
}

TEST_F(EngineOfAlphabet, WhoDoesNotBeginInTimeEndsAndWhoHasBegunGoesOn) {
  auto engine = open(100, 4, 1);
  Request first = request_of(greedy("a")), second = request_of(greedy("b"));
  Heard a, b;
  first.start_s = second.start_s = 0.02;
  first.on_event = [&](const Event& e) {
    hear(e, a);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return true;
  };
  second.on_event = [&](const Event& e) {
    hear(e, b);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(first)));
  ASSERT_TRUE(engine->submit(std::move(second)));
  engine->run_until_idle();
  EXPECT_EQ(a.finish, Finish::Stop);
  EXPECT_EQ(a.tokens.size(), 25u);
  EXPECT_EQ(b.finish, Finish::Deadline);
  EXPECT_TRUE(b.tokens.empty());
}

// What is asked counts from the step that takes it until its end; what is known of it counts as a text.
TEST_F(EngineOfAlphabet, WhatIsAskedIsCounted) {
  auto engine = open(4000, 512, 1);
  const int64_t texts = engine->statistics().tree.bytes;
  std::vector<Heard> heard(20);
  for (size_t i = 0; i < heard.size(); ++i) {
    Question q = greedy("a", 2);
    q.prompt.assign(1000, Token('b' + i));
    ask(*engine, q, heard[i]);
  }
  engine->step();
  const int64_t asked = engine->statistics().request_bytes;
  EXPECT_GE(asked, 20 * 4000);
  EXPECT_LE(asked, 20 * (4000 + 4000));
  engine->run_until_idle();
  EXPECT_EQ(engine->statistics().request_bytes, 0);
  EXPECT_GE(engine->statistics().tree.bytes - texts, 20 * 4000);
}

// One in the middle of its answer, which would fill the context, and one that still waits behind it.
TEST_F(EngineOfAlphabet, ADeadlineEndsWhatRunsAndWhatWaits) {
  auto engine = open(4000, 4, 1);
  Heard heard[2];
  for (int i : {0, 1}) {
    Question q = greedy("a");
    q.stop = {};
    q.sampling.bias = {{'a', 100.0f}};
    Request request = request_of(q);
    request.deadline_s = i == 0 ? 0.1 : 0.05;
    request.on_event = [&h = heard[i]](const Event& e) {
      hear(e, h);
      return true;
    };
    ASSERT_TRUE(engine->submit(std::move(request)));
  }
  engine->run_until_idle();
  for (const Heard& h : heard) EXPECT_EQ(h.finish, Finish::Deadline);
  EXPECT_TRUE(heard[1].tokens.empty());
  EXPECT_GT(heard[0].tokens.size(), 0u);
  EXPECT_LT(heard[0].tokens.size(), 3999u);
  EXPECT_EQ(engine->statistics().state.pages.live, 0);
}

TEST_F(EngineOfAlphabet, ReadsThePromptInChunks) {
  auto engine = open(100, 4);
  Request request = request_of(greedy("abcabcabc", 1));
  std::vector<int64_t> told;
  request.on_event = [&](const Event& e) {
    if (e.tokens.empty() && e.finish == Finish::Running) told.push_back(e.usage.prompt_rows);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  EXPECT_EQ(told, (std::vector<int64_t>{4, 8, 9}));
}

TEST_F(EngineOfAlphabet, WhatIsKnownIsNotReadAgain) {
  auto engine = open();
  answer(*engine, greedy("a", 3));  // has read "abc"
  Heard a = answer(*engine, greedy("abcdx", 1));
  EXPECT_EQ(a.usage.cached_tokens, 3);
  EXPECT_EQ(a.usage.prompt_rows, 2);
  EXPECT_EQ(a.tokens, ids("y"));
  EXPECT_EQ(answer(*engine, greedy("abq", 1)).usage.prompt_rows, 1);
  EXPECT_EQ(answer(*engine, greedy("abq", 1)).usage.prompt_rows, 1) << "its last row is needed again";
  engine->forget();
  EXPECT_EQ(answer(*engine, greedy("abq", 1)).usage.prompt_rows, 3);
}

TEST_F(EngineOfAlphabet, SeedsAndMasksReachTheSampler) {
  auto engine = open();
  Request request = request_of(greedy("a", 2));
  request.allowed.assign(5, ~uint64_t(0));
  request.allowed['b' / 64] &= ~(uint64_t(1) << ('b' % 64));
  Heard masked;
  request.on_event = [&](const Event& e) {
    hear(e, masked);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  EXPECT_EQ(masked.tokens[0], 0) << "all but the best are equal";
  Question q = greedy("a", 8);
  q.sampling.temperature = 20;
  std::vector<Token> first = answer(*engine, q).tokens;
  EXPECT_EQ(answer(*engine, q).tokens, first);
  q.sampling.seed = 1;
  EXPECT_NE(answer(*engine, q).tokens, first);
}

// Allows one text, and then nothing.
class OnlyThis final : public Constraint {
 public:
  explicit OnlyThis(std::vector<Token> text) : text_(std::move(text)) {}
  void mask(std::span<uint64_t> allowed) override {
    std::fill(allowed.begin(), allowed.end(), 0);
    allowed[size_t(text_[at_]) / 64] |= uint64_t(1) << (text_[at_] % 64);
  }
  bool accept(Token token) override {
    EXPECT_EQ(token, text_[at_]);
    return ++at_ < text_.size();
  }
  std::unique_ptr<Constraint> copy() const override { return std::make_unique<OnlyThis>(*this); }

 private:
  std::vector<Token> text_;
  size_t at_ = 0;
};

TEST_F(EngineOfAlphabet, AConstraintRulesEachChoice) {
  auto engine = open();
  Request request = request_of(greedy("a"));
  request.n = 3;
  request.constraint = std::make_unique<OnlyThis>(ids("zqz"));
  std::vector<Heard> heard(3);
  request.on_event = [&](const Event& e) {
    hear(e, heard[size_t(e.choice)]);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  for (const Heard& h : heard) {
    EXPECT_EQ(h.tokens, ids("zqz"));
    EXPECT_EQ(h.finish, Finish::Stop);
  }
}

// Says `q` in place of the first stop.
class NotYet final : public Constraint {
 public:
  void mask(std::span<uint64_t>) override {}
  bool masks() const override { return false; }
  bool accept(Token) override { return true; }
  Token in_place_of(Token stop) override { return std::exchange(stopped_, true) ? stop : 'q'; }
  std::unique_ptr<Constraint> copy() const override { return std::make_unique<NotYet>(*this); }

 private:
  bool stopped_ = false;
};

TEST_F(EngineOfAlphabet, ATokenInPlaceOfAStopHasItsOwnLogProbability) {
  auto engine = open();
  Request request = request_of(greedy("y"));
  request.constraint = std::make_unique<NotYet>();
  request.logprobs = 0;
  Heard heard;
  request.on_event = [&](const Event& e) {
    hear(e, heard);
    for (size_t i = 0; i < e.tokens.size(); ++i) EXPECT_EQ(e.logprobs[i].token, e.tokens[i]);
    return true;
  };
  ASSERT_TRUE(engine->submit(std::move(request)));
  engine->run_until_idle();
  EXPECT_EQ(heard.tokens, ids("zqrstuvwxyz"));
}

TEST_F(EngineOfAlphabet, WhatSharesNothingLeavesNothingWithSeveralChoices) {
  auto engine = open();
  for (const auto& [reuse, known] : {std::pair(false, 0), {true, 0}, {true, 7}}) {
    Request request = request_of(greedy("abcdefgh", 3));
    request.n = 3;
    request.reuse = reuse;
    const int64_t before = engine->statistics().prompt_rows;
    std::vector<Heard> heard(3);
    request.on_event = [&](const Event& e) {
      hear(e, heard[size_t(e.choice)]);
      return true;
    };
    ASSERT_TRUE(engine->submit(std::move(request)));
    engine->run_until_idle();
    EXPECT_EQ(heard[0].usage.cached_tokens, known);
    EXPECT_EQ(engine->statistics().prompt_rows - before, 8 - known) << "read once for all";
    for (const Heard& h : heard) EXPECT_EQ(h.tokens, ids("ijk"));
  }
}

TEST_F(EngineOfAlphabet, ChoicesReadThePromptOnce) {
  for (int sequences : {1, 2, 8}) {
    auto engine = open(100, 4, sequences);
    Question q = greedy("abcdefgh", 10);
    q.sampling.temperature = 20;
    std::vector<Heard> heard(5);
    Request request = request_of(q);
    request.n = 5;
    request.on_event = [&](const Event& e) {
      hear(e, heard[size_t(e.choice)]);
      return true;
    };
    ASSERT_TRUE(engine->submit(std::move(request)));
    engine->run_until_idle();
    EXPECT_EQ(engine->statistics().prompt_rows, 8);
    for (int i = 0; i < 5; ++i) {
      q.sampling.choice = i;
      Heard alone = plain_answer(engine->runner(), q);
      EXPECT_EQ(heard[size_t(i)].tokens, alone.tokens) << i;
      EXPECT_EQ(heard[size_t(i)].logits, alone.logits) << i;
      EXPECT_EQ(heard[size_t(i)].ends, 1);
    }
    EXPECT_NE(heard[0].tokens, heard[1].tokens);
  }
}

TEST_F(EngineOfAlphabet, CancellingEndsAllChoices) {
  for (int steps : {0, 1, 2, 5}) {
    auto engine = open(100, 4, 2);
    Question q = greedy("abcdefgh");
    std::vector<Heard> heard(3);
    Request request = request_of(q);
    request.n = 3;
    request.stop = {};
    request.on_event = [&](const Event& e) {
      hear(e, heard[size_t(e.choice)]);
      return true;
    };
    auto id = engine->submit(std::move(request));
    ASSERT_TRUE(id);
    for (int i = 0; i < steps; ++i) engine->step();
    engine->cancel(*id);
    engine->step();
    EXPECT_FALSE(engine->step());
    for (const Heard& h : heard) EXPECT_EQ(h.finish, Finish::Cancelled) << steps;
    EXPECT_EQ(engine->statistics().state.pages.live, 0);
  }
}

TEST_F(EngineOfAlphabet, TokenDigestIsOverLittleEndianIds) {
  std::vector<Token> tokens = {1, 258};
  EXPECT_EQ(digest_tokens(tokens), sha256(std::as_bytes(std::span("\1\0\0\0\2\1\0\0", 8))));
}

}  // namespace
}  // namespace invar
