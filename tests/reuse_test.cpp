// Reuse never shows: whatever shares a pass with a request, and whatever of its text was known, kept, thrown
// away or pushed out in between, its tokens and its logits are those of the request alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "base/file.h"
#include "tiny_models.h"

namespace invar {
namespace {

class Reuse : public TinyModel {};

// Prompts of many lengths; several begin alike, one is asked twice, one with other sampling.
std::vector<Question> mixed_questions(int64_t vocab) {
  std::vector<Question> list;
  const std::vector<Token> system = random_tokens(200, 7, vocab);
  for (int64_t n : {1, 3, 17, 63, 64, 65, 128, 190, 300, 513, 700, 1030}) {
    Question q;
    q.prompt = random_tokens(n, uint32_t(n), vocab);
    if (n > 100 && n % 2 == 0)
      std::copy_n(system.begin(), std::min<size_t>(system.size(), size_t(n) - 20), q.prompt.begin());
    q.most = 5 + n % 40;
    q.sampling.seed = uint64_t(n);
    q.sampling.temperature = n % 3 == 0 ? 0.0f : 0.8f;
    if (n % 4 == 1) q.sampling.repetition = 1.2f, q.sampling.top_k = 50;
    q.marks = {n / 3, n / 2, n - 4};
    list.push_back(q);
  }
  list.push_back(list[8]);
  list.push_back(list[9]);
  list.back().sampling.seed = 99;
  list.push_back(list[7]);
  list.back().prompt.resize(100);
  list.push_back(list[10]);
  list.back().prompt.resize(650, 5);
  for (Question& q : list) std::erase_if(q.marks, [](int64_t m) { return m <= 0; });
  return list;
}

TEST_P(Reuse, OneDigest) {
  const std::vector<Question> questions = [&] { return mixed_questions(runner({})->vocab()); }();
  std::vector<Heard> want;
  {
    auto plain = runner({});
    for (const Question& q : questions) want.push_back(plain_answer(*plain, q));
  }
  auto all_at_once = [&](Engine& engine, const std::string& where, size_t first, size_t count) {
    std::vector<Heard> heard(count);
    for (size_t i = 0; i < count; ++i) ask(engine, questions[first + i], heard[i]);
    engine.run_until_idle();
    for (size_t i = 0; i < count; ++i)
      expect_same(want[first + i], heard[i], where + ", request " + std::to_string(first + i));
    expect_nothing_lives(engine);
    return heard;
  };
  std::vector<std::pair<int, int>> settings = {{2, 512}, {1, 64}, {3, 7}};
  if (GetParam() != std::string("qwen35:tiny")) settings = {{3, 64}};
  for (const auto& [threads, chunk] : settings) {
    Setting s;
    s.threads = threads, s.chunk = chunk;
    const std::string name = std::to_string(threads) + " threads, chunk " + std::to_string(chunk);
    {
      auto r = runner(s);
      Engine engine(*r, {});
      all_at_once(engine, name + ", cold, 16 together", 0, questions.size());
      auto again = all_at_once(engine, name + ", known, 16 together", 0, questions.size());
      for (size_t i = 0; i < again.size(); ++i)
        EXPECT_GE(again[i].usage.cached_tokens, int64_t(questions[i].prompt.size()) - 512) << name << i;
      engine.forget();
      EXPECT_EQ(r->pool().used_bytes(), 0) << name;
      for (size_t i = 0; i < questions.size(); i += 3)
        all_at_once(engine, name + ", forgotten, 3 together", i, std::min<size_t>(3, questions.size() - i));
      for (size_t i = 0; i < questions.size(); ++i) all_at_once(engine, name + ", known, alone", i, 1);
    }
    {
      s.memory_of_contexts = 1.7;
      auto r = runner(s);
      Engine engine(*r, {});
      for (int turn = 0; turn < 2; ++turn) all_at_once(engine, name + ", little memory", 0, questions.size());
      EXPECT_GT(engine.statistics().evicted_bytes, 0) << name;
    }
  }
}

// The next prompt goes on behind the last one, but with another text than the answer: what an agent does that
// drops thoughts.
TEST_P(Reuse, BackFromDiskWithoutTheAnswer) {
  const std::string folder = new_folder();
  auto r = runner({}), plain = runner({});
  EngineOptions options;
  options.cache_folder = folder;
  Question q{.prompt = {}, .most = 5, .sampling = {}};
  for (int i = 0; i < 300; ++i) q.prompt.push_back(Token(i * 7 % r->vocab()));
  for (const int more : {0, 90, 90}) {
    const auto before = int64_t(q.prompt.size());
    for (int i = 0; i < more; ++i) q.prompt.push_back(Token((i * 11 + before) % r->vocab()));
    Engine engine(*r, options);
    Heard heard;
    ask(engine, q, heard);
    engine.run_until_idle();
    expect_same(plain_answer(*plain, q), heard, std::to_string(before));
    EXPECT_EQ(heard.usage.cached_tokens, more > 0 ? before : 0);
    engine.drain();
  }
  std::filesystem::remove_all(folder);
}

// An engine ends, another on the same folder goes on as if it had lived; a third has other numbers of rows
// and little memory.
TEST_P(Reuse, BackFromDisk) {
  const std::string folder = new_folder();
  auto r = runner({2, 64, 8, 1200, 40}), small = runner({1, 100, 4, 1200, 1.7}), plain = runner({});
  const std::vector<Question> questions = mixed_questions(r->vocab());
  std::vector<Heard> want;
  for (const Question& q : questions) want.push_back(plain_answer(*plain, q));
  EngineOptions options;
  options.cache_folder = folder;
  for (int turn = 0; turn < 3; ++turn) {
    Engine engine(turn < 2 ? *r : *small, options);
    std::vector<Heard> heard(questions.size());
    for (size_t i = 0; i < questions.size(); ++i) ask(engine, questions[i], heard[i]);
    engine.run_until_idle();
    for (size_t i = 0; i < questions.size(); ++i) {
      expect_same(want[i], heard[i], "turn " + std::to_string(turn) + ", request " + std::to_string(i));
      EXPECT_GE(heard[i].usage.cached_tokens, turn == 1 ? int64_t(questions[i].prompt.size()) - 512 : 0);
    }
    EXPECT_EQ(engine.statistics().from_disk > 0, turn > 0);
    expect_nothing_lives(engine);
  }
  std::filesystem::remove_all(folder);
}

TEST_P(Reuse, SavedStatesAreUsedOrItIsAnError) {
  auto r = runner({}), plain = runner({});
  Engine engine(*r, {});
  Question q{random_tokens(150, 1, r->vocab()), 8, {}};
  auto ask_saved = [&](const Question& question, const char* save_as, const char* from) {
    return answer_named(engine, question, save_as, from);
  };
  expect_same(plain_answer(*plain, q), ask_saved(q, "start", ""), "saves");
  engine.forget();
  Question longer = q;
  longer.prompt.resize(160, 4);
  Heard heard = ask_saved(longer, "", "start");
  expect_same(plain_answer(*plain, longer), heard, "goes on");
  EXPECT_EQ(heard.usage.cached_tokens, 150);
  heard = ask_saved(q, "", "start");
  EXPECT_EQ(heard.finish, Finish::Failed) << "nothing follows the saved text";
  longer.prompt[3] ^= 1;
  heard = ask_saved(longer, "", "start");
  EXPECT_EQ(heard.finish, Finish::Failed);
  EXPECT_EQ(heard.error->code, Code::BadRequest);
  EXPECT_EQ(ask_saved(q, "", "nothing").error->code, Code::NotFound);
  engine.tree().unpin("start");
  engine.forget();
  EXPECT_EQ(r->pool().used_bytes(), 0);
}

// Saved by one engine, used by the next on the folder, whatever became of all else that is there.
TEST_P(Reuse, SavedStatesOutliveTheEngine) {
  const std::string folder = new_folder();
  auto r = runner({2, 64, 4, 1200, 3}), plain = runner({});
  EngineOptions options;
  options.cache_folder = folder;
  options.cache_disk_bytes = 1;  // nothing stays but what is saved
  Question start{random_tokens(333, 1, r->vocab()), 3, {}}, longer = start;
  longer.prompt.resize(345, 4);
  auto ask_saved = [&](const StateKey& key, const Question& question, const char* save_as, const char* from) {
    Engine engine(*r, options, key);
    const Heard heard = answer_named(engine, question, save_as, from);
    expect_nothing_lives(engine);
    return heard;
  };
  expect_same(plain_answer(*plain, start), ask_saved({}, start, "start", ""), "saves");
  const Heard heard = ask_saved({}, longer, "", "start");
  expect_same(plain_answer(*plain, longer), heard, "goes on");
  EXPECT_EQ(heard.usage.cached_tokens, 333);
  EXPECT_EQ(heard.usage.prompt_rows, 12);
  StateKey other;
  other.numerics = 9;
  EXPECT_EQ(ask_saved(other, longer, "", "start").error->code, Code::Unsupported);
  EXPECT_EQ(ask_saved({}, start, "", "start").error->code, Code::BadRequest);
  EXPECT_EQ(ask_saved({}, longer, "", "nothing").error->code, Code::NotFound);
  std::filesystem::resize_file(folder + "/saved/start.saved", 5000);
  const Heard damaged = ask_saved({}, longer, "", "start");
  ASSERT_TRUE(damaged.error);
  EXPECT_NE(damaged.error->where.find("start"), std::string::npos);
  std::filesystem::remove_all(folder);
}

// Many long answers at once on memory for a few of them.
TEST_P(Reuse, PushedOutAndBack) {
  Setting s;
  s.context = 1200, s.memory_of_contexts = 3, s.sequences = 8, s.chunk = 128;
  auto r = runner(s), plain = runner({});
  EngineOptions options;
  options.growth = 0;
  Engine engine(*r, options);
  std::vector<Question> questions;
  for (int i = 0; i < 8; ++i) {
    Question q{random_tokens(20 + 5 * i, uint32_t(i), r->vocab()), 700, {}};
    q.sampling.seed = uint64_t(i);
    questions.push_back(q);
  }
  std::vector<Heard> heard(questions.size());
  for (size_t i = 0; i < questions.size(); ++i) ask(engine, questions[i], heard[i]);
  engine.run_until_idle();
  int64_t preemptions = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    expect_same(plain_answer(*plain, questions[i]), heard[i], "request " + std::to_string(i));
    preemptions += heard[i].usage.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(preemptions, engine.statistics().preemptions);
  expect_nothing_lives(engine);
}

// P, X, P: the same bytes for P whatever X was, and usage tells the truth.
TEST_P(Reuse, OthersDoNotShow) {
  auto r = runner({}), plain = runner({});
  Engine engine(*r, {});
  Question p{random_tokens(600, 1, r->vocab()), 30, {}};
  const Heard want = plain_answer(*plain, p);
  std::vector<Question> others;
  for (int64_t n : {1, 64, 300, 599, 600}) {
    Question x = p;
    x.prompt.resize(size_t(n));
    x.sampling.seed = 5;
    others.push_back(x);
    x.prompt.resize(900, 3);
    others.push_back(x);
  }
  Question with_answer = p;
  with_answer.prompt.insert(with_answer.prompt.end(), want.tokens.begin(), want.tokens.end());
  others.push_back(with_answer);
  int64_t rows = 0;
  auto check = [&](const Question& q, const Heard& h) {
    EXPECT_EQ(h.usage.prompt_tokens, int64_t(q.prompt.size()));
    EXPECT_EQ(h.usage.prompt_tokens - h.usage.cached_tokens, h.usage.prompt_rows);
    EXPECT_EQ(h.usage.answer_tokens, int64_t(h.tokens.size()));
    EXPECT_EQ(h.usage.answer_rows, int64_t(h.tokens.size()) - 1);
    rows += h.usage.prompt_rows;
  };
  Heard first = answer(engine, p);
  expect_same(want, first, "first");
  EXPECT_EQ(first.usage.cached_tokens, 0);
  check(p, first);
  for (const Question& x : others) {
    const Heard other = answer(engine, x);
    expect_same(plain_answer(*plain, x), other, "x");
    check(x, other);
    const Heard again = answer(engine, p);
    expect_same(want, again, "again");
    check(p, again);
    EXPECT_GE(again.usage.cached_tokens, 512);
  }
  EXPECT_EQ(engine.statistics().prompt_rows, rows);
}

// Turns of conversations: what must be known of each next prompt, and the answers of a cold engine.
TEST_P(Reuse, TurnsReadOnlyWhatIsNew) {
  constexpr int64_t kG = 512;
  auto r = runner({2, 512, 4, 4096, 8}), plain = runner({2, 512, 1, 4096, 2});
  for (int64_t length : {16, 63, 64, 65, 200, 900, 3000}) {
    Engine engine(*r, {});
    uint32_t seed = uint32_t(length);
    auto turn = [&](const Question& q, int64_t known, const char* what) {
      const Heard heard = answer(engine, q);
      expect_same(plain_answer(*plain, q), heard, std::string(what) + " at " + std::to_string(length));
      EXPECT_GE(heard.usage.cached_tokens, known) << what << " at " << length;
      return heard.tokens;
    };
    auto more = [&](std::vector<Token>& to, int64_t n) {
      auto t = random_tokens(n, ++seed, r->vocab());
      to.insert(to.end(), t.begin(), t.end());
    };
    Question q{random_tokens(length, seed, r->vocab()), 24, {}};
    q.sampling.temperature = 0;
    auto said = turn(q, 0, "first");
    int64_t before = int64_t(q.prompt.size());
    for (int i = 0; i < 2; ++i) {
      q.prompt.insert(q.prompt.end(), said.begin(), said.end());
      more(q.prompt, 37);
      said = turn(q, before + 20, "append");
      before = int64_t(q.prompt.size());
    }
    turn(q, before - kG, "again");
    q.prompt.resize(q.prompt.size() - 9);
    more(q.prompt, 12 + 37);
    turn(q, before - 9 - kG, "without the thought");
    q.prompt.resize(q.prompt.size() / 2);
    const int64_t half = int64_t(q.prompt.size());
    more(q.prompt, 20);
    turn(q, half - kG, "edited");

    Question other{random_tokens(length, ++seed, r->vocab()), 24, {}};
    other.sampling.temperature = 0;
    Heard heard;
    const uint64_t id = ask(engine, other, heard);
    for (int i = 0; i < 3; ++i) engine.step();
    engine.cancel(id);
    engine.run_until_idle();
    turn(other, length > 2 * kG ? 1 : 0, "after a cancel");
    expect_nothing_lives(engine);
  }
}

// In the file, where the number stands behind its name and type.
void set_context(const std::string& path, uint32_t context) {
  std::string bytes = read_file(path, uint64_t(1) << 32).take();
  const std::string name = ".context_length";
  const size_t at = bytes.find(name) + name.size() + 4;
  ASSERT_LT(at + 4, bytes.size());
  std::memcpy(&bytes[at], &context, sizeof context);
  std::ofstream(path, std::ios::binary) << bytes;
}

// A1 B1 A2 B2 A3 B3: two conversations that share their first half, in turn.
TEST_P(Reuse, ConversationsInTurn) {
  const bool long_one = std::string(GetParam()) == "qwen35:tiny";
  std::vector<int64_t> lengths = {16, 63, 64, 65, 200, 900};
  if (long_one) lengths.insert(lengths.end(), {3000, 6000});
  set_context(path_, 8192);
  file_ = ModelFile::open(path_).take();
  auto r = runner({2, 512, 4, 7000, 40}), plain = runner({2, 512, 1, 7000, 2});
  for (int64_t length : lengths) {
    Engine engine(*r, {});
    const std::vector<Token> half = random_tokens(length / 2, 7, r->vocab());
    std::vector<Question> talks(2);
    for (uint32_t i : {0, 1}) {
      talks[i] = {half, 24, {}};
      talks[i].sampling.temperature = 0;
      auto own = random_tokens(length - length / 2, 100 + i, r->vocab());
      own[0] = Token(i);
      talks[i].prompt.insert(talks[i].prompt.end(), own.begin(), own.end());
    }
    for (int turn = 0; turn < 3; ++turn)
      for (uint32_t i : {0, 1}) {
        Question& q = talks[i];
        const Heard heard = answer(engine, q);
        const std::string where =
            std::string(i ? "B" : "A") + std::to_string(turn + 1) + " of " + std::to_string(length);
        expect_same(plain_answer(*plain, q), heard, where);
        const int64_t before = turn > 0 ? int64_t(q.prompt.size()) - 37 - 24 : 0;
        EXPECT_GE(heard.usage.cached_tokens, before) << where;
        q.prompt.insert(q.prompt.end(), heard.tokens.begin(), heard.tokens.end());
        const auto more = random_tokens(37, uint32_t(turn) * 2 + i, r->vocab());
        q.prompt.insert(q.prompt.end(), more.begin(), more.end());
      }
    expect_nothing_lives(engine);
  }
}

// Snapshots end inside a page while their owner, and the other choices, write on in it and the disk's thread
// reads it.
TEST_P(Reuse, ASnapshotInAPageThatIsWrittenOn) {
  const std::string folder = new_folder();
  auto r = runner({2, 64, 4, 1200, 8}), plain = runner({});
  for (const std::string& where : {std::string(), folder}) {
    EngineOptions options;
    options.cache_folder = where;
    Engine engine(*r, options);
    Question q{random_tokens(85, 4, r->vocab()), 100, {}};
    q.marks = {66, 70, 84};
    q.n = 3;
    std::vector<Heard> heard(3);
    Request request = request_of(q);
    request.save_as = "inside";
    request.on_event = [&](const Event& e) {
      hear(e, heard[size_t(e.choice)]);
      return true;
    };
    ASSERT_TRUE(engine.submit(std::move(request)));
    engine.run_until_idle();
    for (int i = 0; i < 3; ++i) {
      Question one = q;
      one.sampling.choice = i;
      expect_same(plain_answer(*plain, one), heard[size_t(i)], "choice " + std::to_string(i));
    }
    for (int turn = 0; turn < 2; ++turn) {
      Question longer{q.prompt, 5, {}};
      longer.prompt.resize(90, 9);
      Request next = request_of(longer);
      next.from = "inside";
      Heard last;
      next.on_event = [&](const Event& e) {
        hear(e, last);
        return true;
      };
      ASSERT_TRUE(engine.submit(std::move(next)));
      engine.run_until_idle();
      expect_same(plain_answer(*plain, longer), last, "goes on");
      EXPECT_GE(last.usage.cached_tokens, 85);
      engine.forget();
    }
  }
  std::filesystem::remove_all(folder);
}

// Cancelled after any number of steps, with snapshots that wait for the disk: those stay what they are.
TEST_P(Reuse, CancelledWhileItsSnapshotsWait) {
  const std::string folder = new_folder();
  auto r = runner({2, 64, 4, 1200, 4}), plain = runner({});
  EngineOptions options;
  options.cache_folder = folder;
  Question q{random_tokens(400, 21, r->vocab()), 10, {}};
  q.marks = {70, 140, 210, 280, 350};
  const Heard want = plain_answer(*plain, q);
  for (int steps = 0; steps < 14; ++steps) {
    Engine engine(*r, options);
    Heard heard;
    const uint64_t id = ask(engine, q, heard);
    for (int i = 0; i < steps; ++i) engine.step();
    engine.cancel(id);
    engine.step();
    EXPECT_EQ(heard.ends, 1) << steps;
    expect_nothing_lives(engine);
    engine.forget();
    expect_same(want, answer(engine, q), "after " + std::to_string(steps) + " steps");
    if (steps % 3 == 2) std::filesystem::remove_all(folder);
  }
  EXPECT_EQ(r->pool().used_bytes(), 0);
  Engine engine(*r, options);
  expect_same(want, answer(engine, q), "another engine");
  std::filesystem::remove_all(folder);
}

// A system prompt that all share is kept after its second use.
TEST_P(Reuse, WhatSeveralShareIsKept) {
  auto r = runner({});
  Engine engine(*r, {});
  const std::vector<Token> system = random_tokens(400, 3, r->vocab());
  for (int i = 0; i < 4; ++i) {
    Question q{system, 4, {}};
    auto own = random_tokens(90, uint32_t(100 + i), r->vocab());
    own[0] = Token(i);
    q.prompt.insert(q.prompt.end(), own.begin(), own.end());
    const Heard heard = answer(engine, q);
    EXPECT_EQ(heard.usage.cached_tokens >= 400, i >= 2 || (i == 1 && r->pool().set_bytes() == 0)) << i;
  }
}

// What requests that come together begin with is read once, by the first of them.
TEST_P(Reuse, ThoseThatComeTogetherReadOnce) {
  const std::vector<Token> head = random_tokens(1000, 3, 200);
  for (int64_t own : {0, 1, 20, 150}) {
    auto r = runner({2, 128, 6}), plain = runner({});
    Engine engine(*r, {});
    std::vector<Question> questions(6);
    std::vector<Heard> heard(6);
    for (size_t i = 0; i < questions.size(); ++i) {
      Question& q = questions[i];
      q = {head, 8, {}};
      q.sampling.seed = i;
      auto more = random_tokens(own, uint32_t(100 + i), r->vocab());
      if (own > 0) more[0] = Token(i);
      q.prompt.insert(q.prompt.end(), more.begin(), more.end());
      if (i == 4) q.prompt[500] ^= 1;  // leaves the others earlier
      ask(engine, q, heard[i]);
    }
    engine.run_until_idle();
    int64_t cached = 0;
    for (size_t i = 0; i < questions.size(); ++i) {
      expect_same(plain_answer(*plain, questions[i]), heard[i], "request " + std::to_string(i));
      EXPECT_EQ(heard[i].usage.prompt_tokens - heard[i].usage.cached_tokens, heard[i].usage.prompt_rows);
      cached += heard[i].usage.cached_tokens;
    }
    const Statistics s = engine.statistics();
    EXPECT_LE(s.prompt_rows, 1000 + 500 + 6 * (own + 1)) << own;
    EXPECT_EQ(s.cached_tokens, cached);
    expect_nothing_lives(engine);
  }
}

// The one that reads is cancelled while others wait for it.
TEST_P(Reuse, TheNextOneReadsWhenTheReaderIsCancelled) {
  auto plain = runner({});
  const std::vector<Token> head = random_tokens(700, 3, 200);
  for (int steps : {0, 1, 3, 5, 6}) {
    auto r = runner({2, 128, 6});
    Engine engine(*r, {});
    std::vector<Question> questions(3, Question{head, 8, {}});
    std::vector<Heard> heard(3);
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < questions.size(); ++i) {
      questions[i].prompt.resize(710, Token(i));
      ids.push_back(ask(engine, questions[i], heard[i]));
    }
    for (int i = 0; i < steps; ++i) engine.step();
    engine.cancel(ids[0]);
    engine.run_until_idle();
    EXPECT_EQ(heard[0].finish, Finish::Cancelled);
    for (size_t i : {1, 2})
      expect_same(plain_answer(*plain, questions[i]), heard[i], "request " + std::to_string(i));
    EXPECT_LE(heard[2].usage.prompt_rows, 11 + 64) << steps;
  }
}

// Cancelled before any step: all that it held is free in the step after, and the engine goes on.
TEST_P(Reuse, CancelFreesWithinOneStep) {
  auto r = runner({2, 64, 4, 1200, 4});
  Engine engine(*r, {});
  const Question q{random_tokens(300, 11, r->vocab()), 10, {}},
      beside{random_tokens(100, 12, r->vocab()), 30, {}};
  const Heard want = answer(engine, q), want_beside = answer(engine, beside);
  for (int steps = 0; steps < 16; ++steps) {
    engine.forget();
    Heard heard, other;
    const uint64_t id = ask(engine, q, heard);
    ask(engine, beside, other);
    for (int i = 0; i < steps; ++i) engine.step();
    engine.cancel(id);
    engine.step();
    EXPECT_EQ(heard.ends, 1) << steps;
    EXPECT_LE(engine.statistics().running, 1);
    EXPECT_LE(engine.statistics().state.sets.live, 1);
    EXPECT_LE(engine.statistics().state.pages.live, 3);
    engine.run_until_idle();
    expect_same(want_beside, other, "beside");
    expect_same(want, answer(engine, q), "after it");
    expect_nothing_lives(engine);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Reuse, kTinyModels, name_of_model);

}  // namespace
}  // namespace invar
