// Engines that die, disks that fill, folders that are shared or foreign: nothing of it shows in an answer.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "questions.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

class Faults : public testing::Test {
 protected:
  Faults() : path_(tiny_model("qwen35:tiny")), file_(ModelFile::open(path_).take()) {
    folder_ = testing::TempDir() + "faults-" + std::to_string(getpid());
    fs::remove_all(folder_);
    runner_ = runner();
    // Conversations that begin alike: each goes on from another, or leaves it somewhere.
    const std::vector<Token> text = random_tokens(400, 5, runner_->vocab());
    for (int64_t n : {60, 130, 131, 200, 270, 330}) {
      Question q{{text.begin(), text.begin() + n}, 6, {}};
      if (n % 20 == 0) q.prompt.back() ^= 1;
      q.sampling.temperature = 0;
      q.marks = {n / 2};
      want_.push_back(plain_answer(*runner_, q));
      questions_.push_back(std::move(q));
    }
  }
  ~Faults() override {
    fs::remove_all(folder_);
    std::remove(path_.c_str());
  }

  // One thread: a child has the same.
  std::unique_ptr<ModelRunner> runner(const char* kv = "f16") {
    RunnerOptions options;
    options.threads = 1;
    options.chunk = 128;
    options.sequences = 3;
    options.context = 600;
    options.memory_bytes = int64_t(256) << 20;
    options.kv = kv;
    return ModelRunner::open(file_, options).take();
  }
  EngineOptions options(int64_t disk_bytes = 64 << 20) {
    EngineOptions o;
    o.cache_folder = folder_;
    o.cache_disk_bytes = disk_bytes;
    o.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    return o;
  }

  bool right(size_t i, const Heard& h) {
    return h.ends == 1 && h.tokens == want_[i].tokens && h.logits == want_[i].logits;
  }
  void expect_all_right(Engine& engine, const std::string& where) {
    for (size_t i = 0; i < questions_.size(); ++i)
      EXPECT_TRUE(right(i, answer(engine, questions_[i]))) << where << ", question " << i;
  }

  // In a child: serves and checks until it is killed; leaves with a status only when something is wrong.
  [[noreturn]] void serve_for_ever(uint32_t seed, int64_t disk_bytes) {
    EngineOptions o = options(disk_bytes);
    o.log = {};
    std::mt19937 random(seed);
    for (;;) {
      Engine engine(*runner_, o);
      for (int turn = 0; turn < 4; ++turn) {
        std::vector<size_t> asked;
        std::vector<Heard> heard(3);
        for (Heard& h : heard) {
          asked.push_back(random() % questions_.size());
          ask(engine, questions_[asked.back()], h);
        }
        engine.run_until_idle();
        for (size_t i = 0; i < heard.size(); ++i)
          if (!right(asked[i], heard[i])) _exit(1);
        const size_t saves = 1 + random() % 2;
        if (!right(saves, answer_named(engine, questions_[saves], "kept", ""))) _exit(2);
        if (random() % 2) engine.forget();
      }
    }
  }

  std::string path_, folder_;
  ModelFile file_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<Question> questions_;
  std::vector<Heard> want_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(Faults, KilledAtAnyMomentTheNextOneAnswersRight) {
  std::mt19937 random(1);
  int64_t from_disk = 0, from_saved = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const int64_t disk_bytes = turn % 3 ? 64 << 20 : 1 << 20;
    const pid_t child = fork();
    if (child == 0) serve_for_ever(uint32_t(turn), disk_bytes);
    usleep(useconds_t(random() % 60'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child found a wrong answer: " << WEXITSTATUS(status);

    Engine engine(*runner_, options());
    const size_t i = random() % questions_.size();
    ASSERT_TRUE(right(i, answer(engine, questions_[i]))) << "turn " << turn << ", question " << i;
    from_disk += engine.statistics().from_disk;
    const auto saved = engine.saved_tokens("kept");
    if (!saved) {
      ASSERT_EQ(saved.error().code, Code::NotFound) << saved.error().message;
      ASSERT_EQ(from_saved, 0) << "it was there";
      continue;
    }
    const size_t which = *saved == questions_[1].prompt ? 1 : 2;
    ASSERT_EQ(*saved, questions_[which].prompt);
    Question longer = questions_[which];
    longer.prompt.push_back(7);
    const Heard heard = answer_named(engine, longer, "", "kept"), plain = plain_answer(*runner_, longer);
    ASSERT_EQ(heard.tokens, plain.tokens) << (heard.error ? heard.error->message : "");
    ASSERT_EQ(heard.logits, plain.logits);
    ++from_saved;
  }
  EXPECT_GT(from_disk, 50);
  EXPECT_GT(from_saved, 50);
  {
    Engine engine(*runner_,
                  options());  // removes what the last one left; where states are saved, a save does
    EXPECT_TRUE(right(1, answer_named(engine, questions_[1], "kept", "")));
  }
  for (const auto& file : fs::recursive_directory_iterator(folder_))
    EXPECT_NE(file.path().extension(), ".part") << file.path();
  EXPECT_TRUE(lines_.empty()) << lines_[0];
}

TEST_F(Faults, ADiskThatFillsWhileRunning) {
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    Engine engine(*runner_, options());
    EXPECT_TRUE(right(0, answer(engine, questions_[0])));
    engine.drain();
    const rlimit small{100, old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_all_right(engine, "full");
    engine.drain();
    const Heard saves = answer_named(engine, questions_[1], "kept", "");
    engine.forget();
    expect_all_right(engine, "full, forgotten");
    engine.drain();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    ASSERT_TRUE(saves.error) << "it cannot have been saved";
    EXPECT_EQ(saves.error->code, Code::Io);
    EXPECT_NE(saves.error->where.find("kept"), std::string::npos);
    EXPECT_EQ(lines_.size(), 1u);
    engine.forget();
    expect_all_right(engine, "room again");
    EXPECT_EQ(answer_named(engine, questions_[1], "kept", "").finish, Finish::Length);
  }
  std::signal(SIGXFSZ, handler);
  Engine engine(*runner_, options());
  expect_all_right(engine, "after it");
  EXPECT_GT(engine.statistics().from_disk, 0);
}

// The store's thread is held up, by its line about a damaged file: who waits for the disk waits, others go
// on.
TEST_F(Faults, OthersStepOnWhileTheDiskIsSlow) {
  {
    Engine engine(*runner_, options());
    answer(engine, questions_[4]);
  }
  for (const auto& file : fs::recursive_directory_iterator(folder_))
    if (file.path().extension() == ".blob") fs::resize_file(file.path(), 1);
  std::promise<void> release;
  bool held = false, in_time = false;
  EngineOptions slow = options();
  slow.log = [&, released = release.get_future().share()](const std::string&) {
    if (std::exchange(held, true)) return;
    in_time = released.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  };
  {
    Engine engine(*runner_, slow);
    Heard loads, beside, saves;
    ask(engine, questions_[4], loads);
    engine.step();
    const Question other{random_tokens(200, 9, runner_->vocab()), 20, {}};
    ask(engine, other, beside);
    Request request = request_of(questions_[1]);
    request.save_as = "kept";
    request.on_event = [&](const Event& e) {
      hear(e, saves);
      EXPECT_EQ(!saves.tokens.empty(), fs::exists(folder_ + "/saved/kept.saved"));
      return true;
    };
    ASSERT_TRUE(engine.submit(std::move(request)));
    for (int i = 0; i < 1000 && beside.ends == 0; ++i) engine.step();
    for (int i = 0; i < 5; ++i) engine.step();
    EXPECT_EQ(beside.tokens, plain_answer(*runner_, other).tokens);
    EXPECT_TRUE(loads.tokens.empty() && saves.tokens.empty());
    EXPECT_TRUE(engine.saved()->empty()) << "it is not there before it is whole";
    EXPECT_EQ(engine.saved_tokens("kept").error().code, Code::NotFound);
    EXPECT_EQ(saves.usage.prompt_rows, int64_t(questions_[1].prompt.size()));
    release.set_value();
    engine.run_until_idle();
    EXPECT_TRUE(right(4, loads) && right(1, saves));
    EXPECT_EQ(*engine.saved_tokens("kept"), questions_[1].prompt);
    EXPECT_TRUE(held && in_time);
  }
}

TEST_F(Faults, ASaveThatFailsEndsAllChoices) {
  Engine engine(*runner_, options());
  fs::remove_all(folder_ + "/saved");
  std::ofstream(folder_ + "/saved") << "no folder";
  Request request = request_of(questions_[1]);
  request.n = 3;
  request.save_as = "kept";
  std::vector<Heard> heard(3);
  request.on_event = [&](const Event& e) {
    hear(e, heard[size_t(e.choice)]);
    return true;
  };
  ASSERT_TRUE(engine.submit(std::move(request)));
  engine.run_until_idle();
  for (const Heard& h : heard) {
    EXPECT_EQ(h.finish, Finish::Failed);
    EXPECT_TRUE(h.tokens.empty());
  }
}

// Whoever waits for the disk can be cancelled, or pushed out by others; and the engine can end.
TEST_F(Faults, EndsWhileItWaitsForTheDisk) {
  for (const char* save_as : {"", "kept"})
    for (int steps : {1, 2, 3, 4}) {
      Engine engine(*runner_, options());
      Heard a, b;
      Question q = questions_[5], goes_on = q;
      q.save_as = save_as;
      goes_on.prompt.push_back(5);
      const uint64_t id = ask(engine, q, a);
      ask(engine, goes_on, b);
      for (int i = 0; i < steps; ++i) engine.step();
      engine.cancel(id);
      engine.step();
      EXPECT_EQ(a.ends, 1);
      if (steps % 2) continue;
      engine.run_until_idle();
      EXPECT_EQ(b.tokens, plain_answer(*runner_, goes_on).tokens);
      EXPECT_EQ(engine.statistics().state.pages.live, 0);
    }
  EXPECT_EQ(runner_->pool().used_bytes(), 0);
}

// After a restart, all of them at once: what they begin with is read from the disk once.
TEST_F(Faults, ThoseThatComeTogetherLoadOnce) {
  const std::vector<Token> head = random_tokens(300, 3, runner_->vocab());
  {
    Engine engine(*runner_, options());
    Question first{head, 1, {}};
    first.marks = {280};
    answer(engine, first);
  }
  Engine engine(*runner_, options());
  std::vector<Question> questions(3, Question{head, 6, {}});
  std::vector<Heard> heard(3);
  for (size_t i = 0; i < 3; ++i) {
    questions[i].prompt.resize(320, Token(i));
    ask(engine, questions[i], heard[i]);
  }
  engine.run_until_idle();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(heard[i].tokens, plain_answer(*runner_, questions[i]).tokens);
    EXPECT_EQ(heard[i].usage.cached_tokens, 300);
  }
  EXPECT_EQ(engine.statistics().from_disk, 1);
}

// A state is loaded, thrown away before the one that waits for it hears of it, and wanted by another in
// between: that one loads it again.  Room is for little more than two states, so that the third request of a
// step lets the loads end and drops the first of them.
TEST_F(Faults, AStateThatIsGoneBeforeItWasHeardOfIsLoadedAgain) {
  const int64_t vocab = runner_->vocab();
  auto prompt = [&](uint32_t seed, int64_t n, std::initializer_list<Token> more) {
    Question q{random_tokens(n, seed, vocab), 6, {}};
    q.prompt.insert(q.prompt.end(), more);
    return q;
  };
  {
    Engine engine(*runner_, options());
    for (uint32_t seed : {1, 2}) {
      Question q = prompt(seed, 100, {});
      q.most = 1;
      answer(engine, q);
    }
  }
  const int64_t page = runner_->pool().page_bytes(), set = runner_->pool().set_bytes();
  ASSERT_GT(set, 10 * page) << "the numbers below are for large fixed states";
  RunnerOptions small = runner_->settings();
  small.sequences = 4;
  small.context = 128;
  const RunnerMemory memory = ModelRunner::open(file_, small).take()->memory();
  small.memory_bytes = memory.weights_bytes + memory.scratch_bytes + set * 27 / 10;
  auto tight = ModelRunner::open(file_, small).take();
  const int64_t budget = tight->pool().budget_bytes();
  ASSERT_TRUE(budget >= 2 * set + 7 * page && budget < 3 * set) << budget;
  EngineOptions o = options();
  o.growth = 0;
  Engine engine(*tight, o);
  const Question questions[] = {prompt(1, 100, {1}), prompt(2, 100, {1}), prompt(3, 20, {}),
                                prompt(1, 100, {2})};
  Heard heard[4];
  for (int i = 0; i < 4; ++i) ask(engine, questions[i], heard[i]);
  auto ended = [&] { return std::all_of(heard, heard + 4, [](const Heard& h) { return h.ends == 1; }); };
  for (int i = 0; i < 400 && !ended(); ++i) engine.step();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(heard[i].ends, 1) << "request " << i << " waits for ever";
    EXPECT_EQ(heard[i].tokens, plain_answer(*runner_, questions[i]).tokens) << i;
  }
  EXPECT_GE(engine.statistics().from_disk, 3) << "two were loaded, and one of them again";
}

// The child has no right to write where the superuser may, so the folder changes under it.
TEST_F(Faults, AFolderThatTurnsReadOnlyWhileRunning) {
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms(0777));
  int told[2], answered[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(answered), 0);
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    umask(0);
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(9);
    Engine engine(*runner_, options());
    if (!right(3, answer(engine, questions_[3]))) _exit(1);
    engine.drain();
    if (write(told[1], "x", 1) != 1 || read(answered[0], &byte, 1) != 1) _exit(8);
    for (size_t i = 0; i < questions_.size(); ++i)
      if (!right(i, answer(engine, questions_[i]))) _exit(2);
    engine.drain();
    const Heard saves = answer_named(engine, questions_[1], "kept", "");
    _exit(!saves.error || saves.error->code != Code::Io ? 3 : lines_.size() == 1 ? 0 : 4);
  }
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  fs::permissions(folder_, fs::perms(0555));
  ASSERT_EQ(write(answered[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  fs::permissions(folder_, fs::perms(0755));
  for (int fd : {told[0], told[1], answered[0], answered[1]}) close(fd);
  Engine engine(*runner_, options());
  expect_all_right(engine, "after it");
}

TEST_F(Faults, TwoProcessesOnOneFolder) {
  const pid_t child = fork();
  if (child == 0) serve_for_ever(1, 1 << 20);
  for (int turn = 0; turn < 12; ++turn) {
    Engine engine(*runner_, options(turn % 2 ? 1 << 20 : 64 << 20));
    expect_all_right(engine, "turn " + std::to_string(turn));
    engine.forget();
    expect_all_right(engine, "forgotten, turn " + std::to_string(turn));
    EXPECT_EQ(answer_named(engine, questions_[1 + turn % 2], "kept", "").finish, Finish::Length);
  }
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  // While both ran, each may have removed what the other stored; what is left is a store like any other.
  Engine engine(*runner_, options());
  expect_all_right(engine, "alone");
  engine.drain();
  engine.forget();
  const int64_t before = engine.statistics().from_disk;
  expect_all_right(engine, "alone, forgotten");
  EXPECT_GT(engine.statistics().from_disk, before);
}

// What another model, format, drafter or version wrote is not taken, costs a line, and stays for those.
TEST_F(Faults, AStoreOfOthersIsNotTaken) {
  auto from_disk = [&](const ModelFile& file, const char* kv, bool same) {
    EngineOptions o = options();
    o.threads = 1, o.context = 600, o.memory_bytes = int64_t(256) << 20, o.kv = kv;
    lines_.clear();
    auto engine = Engine::open(file, o).take();
    const Question& q = questions_[4];
    const Heard heard = answer(*engine, q), plain = plain_answer(engine->runner(), q);
    EXPECT_EQ(heard.tokens, plain.tokens) << kv;
    EXPECT_EQ(heard.logits, plain.logits) << kv;
    EXPECT_EQ(heard.logits == want_[4].logits, same) << kv;
    return engine->statistics().from_disk;
  };
  const std::string other_path = tiny_model("llama:tiny");
  const ModelFile other = ModelFile::open(other_path).take();
  auto expect_a_line = [&] {
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_NE(lines_[0].find("of another model, format, drafter"), std::string::npos) << lines_[0];
  };
  EXPECT_EQ(from_disk(file_, "f16", true), 0);
  EXPECT_EQ(from_disk(file_, "f16", true), 1);
  EXPECT_TRUE(lines_.empty()) << lines_[0];
  EXPECT_EQ(from_disk(file_, "f32", false), 0);
  expect_a_line();
  EXPECT_EQ(from_disk(other, "f16", false), 0);
  expect_a_line();
  EXPECT_EQ(from_disk(file_, "f16", true), 1);
  EXPECT_EQ(from_disk(file_, "f32", false), 1);
  std::remove(other_path.c_str());
  std::set<std::pair<std::string, uint32_t>> seen;
  for (const char* drafter : {"", "mtp", "eagle", "mtp", ""})
    for (uint32_t numerics : {1, 2, 2, 1}) {
      StateOrigin origin{std::string(64, 'a'), "f16", drafter, runner_->layout(), numerics};
      lines_.clear();
      Engine engine(*runner_, options(), key_of(origin));
      EXPECT_TRUE(right(4, answer(engine, questions_[4])));
      const bool first = engine.statistics().from_disk == 0;
      EXPECT_EQ(first, seen.insert({drafter, numerics}).second) << drafter << numerics;
      expect_a_line();
    }
}

}  // namespace
}  // namespace invar
