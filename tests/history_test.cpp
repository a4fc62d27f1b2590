// One long random history of an engine: texts grow, are edited and forked, requests are cancelled, states are
// saved and gone on from, memory is forgotten, files are damaged under the engine, the disk is full, the
// engine is replaced.  Every answer is that of one plain sequence; nothing leaks, and the budget is kept.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sys/resource.h>

#include "tiny_models.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// While it lives no file grows, as on a disk that is full.
class FullDisk {
 public:
  FullDisk() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{100, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit old_{};
};

class History {
 public:
  History(ModelRunner& runner, ModelRunner& plain, uint32_t seed)
      : folder_(new_folder()), runner_(runner), plain_(plain), random_(seed) {
    replace();
  }
  ~History() {
    engine_.reset();
    fs::remove_all(folder_);
  }

  // Of 1000 turns each act has so many; the others are steps of the engine.
  void run(int64_t steps) {
    struct Act {
      int64_t share;
      void (History::*does)();
    };
    constexpr Act kActs[] = {{150, &History::submit}, {5, &History::cancel}, {1, &History::forget},
                             {1, &History::replace},  {1, &History::damage}, {4, &History::fill_disk}};
    while (steps_ < steps && !testing::Test::HasFailure()) {
      int64_t what = whole(0, 999);
      const Act* act = kActs;
      while (act != std::end(kActs) && what >= act->share) what -= act++->share;
      if (act != std::end(kActs)) (this->*act->does)();
      else step();
    }
    while (!live_.empty() && !testing::Test::HasFailure()) step();
    engine_->run_until_idle();
    expect_nothing_lives(*engine_);
    add_up();
    engine_->drain();
    engine_->forget();
    EXPECT_EQ(runner_.pool().used_bytes(), 0) << "leaked";
  }

  // What the history came to; else it would have shown little.
  void expect_rich() const {
    EXPECT_GT(answers_, 100);
    EXPECT_GT(cancelled_, 0);
    EXPECT_GT(restored_, 0);
    EXPECT_GT(full_, 0);
    EXPECT_GT(restarts_, 0);
    EXPECT_GT(sum_.cached_tokens, 0);
    EXPECT_GT(sum_.evicted_bytes, 0);
    EXPECT_GT(sum_.from_disk, 0);
  }

 private:
  struct Live {
    uint64_t id = 0;
    Question question;
    Heard heard;
  };

  int64_t whole(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // --- acts ---

  void submit() {
    if (live_.size() >= 8) return step();
    auto live = std::make_unique<Live>();
    Question& q = live->question;
    q.prompt = text();
    q.most = whole(0, 9) ? whole(0, 80) : whole(100, 250);
    q.sampling.temperature = whole(0, 1) ? 0.9f : 0;
    q.sampling.seed = uint64_t(whole(0, 3));
    q.priority = int(whole(-1, 1));
    for (int64_t m = whole(1, 100); m < int64_t(q.prompt.size()); m += whole(1, 200)) q.marks.push_back(m);
    if (whole(0, 7) == 0) {
      q.save_as = "kept";
      saved_ = q.prompt;
    } else if (!saved_.empty() && whole(0, 2) == 0) {  // often: with little memory most find no room
      q.from = "kept";
      q.prompt = saved_;
      more(q.prompt, whole(1, 30));
    }
    live->id = ask(*engine_, q, live->heard);
    live_.push_back(std::move(live));
  }

  // Goes on from an earlier one, asks the same again, is edited, forks, or is new; short, or as long as may
  // be.
  std::vector<Token> text() {
    std::vector<Token> t;
    const int64_t kind = whole(0, 9);
    if (!texts_.empty() && kind < 8) t = texts_[size_t(whole(0, int64_t(texts_.size()) - 1))];
    if (kind < 5) more(t, whole(0, 40));
    else if (kind < 7 && t.size() > 2) {
      t.resize(size_t(whole(1, int64_t(t.size()) - 1)));
      more(t, whole(1, 30));
    } else more(t, whole(1, whole(0, 15) ? 100 : 900));
    if (t.empty()) more(t, 1);
    if (int64_t(t.size()) > (whole(0, 9) ? 250 : runner_.context() - 30)) t.resize(size_t(whole(1, 100)));
    return t;
  }

  void cancel() {
    if (!live_.empty()) engine_->cancel(live_[size_t(whole(0, int64_t(live_.size()) - 1))]->id);
  }

  void forget() { engine_->forget(); }

  void replace() {
    if (engine_) add_up(), ++restarts_;
    live_.clear();
    engine_.reset();
    EXPECT_EQ(runner_.pool().used_bytes(), 0) << "an engine that ends leaves nothing";
    damage();
    EngineOptions options;
    options.growth = whole(0, 1) * 100;
    options.cache_folder = folder_;
    options.cache_disk_bytes = whole(1, 60) << 20;
    engine_ = std::make_unique<Engine>(runner_, options);
  }

  // Some files of the store are cut, changed, emptied or gone; the engine may be writing others.
  void damage() {
    std::error_code gone;
    for (fs::recursive_directory_iterator file(folder_, gone), end; file != end; file.increment(gone)) {
      const auto bytes = int64_t(file->file_size(gone));
      if (gone || !file->is_regular_file(gone) || whole(0, 9) != 0) continue;
      const int64_t what = whole(0, 3);
      if (what == 0) fs::remove(file->path(), gone);
      else if (what == 1) fs::resize_file(file->path(), uintmax_t(whole(0, bytes)), gone);
      else if (bytes > 0) {
        std::fstream stream(file->path(), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekp(whole(0, bytes - 1));
        stream.put(char(whole(0, 255)));
      }
    }
  }

  void fill_disk() {
    const FullDisk full;
    for (int64_t n = whole(1, 20); n > 0; --n) step();
    engine_->drain();
    ++full_;
  }

  void step() {
    ++steps_;
    engine_->step();
    EXPECT_LE(runner_.pool().used_bytes(), runner_.pool().budget_bytes());
    EXPECT_LE(runner_.pool().resident_bytes(), runner_.pool().budget_bytes());
    std::erase_if(live_, [&](const std::unique_ptr<Live>& l) {
      if (l->heard.ends == 0) return false;
      check(*l);
      return true;
    });
    EXPECT_LE(engine_->statistics().state.sets.live, int64_t(live_.size()));
  }

  // --- what became of it ---

  void check(const Live& l) {
    const Question& q = l.question;
    if (l.heard.finish == Finish::Failed) {  // of a name alone: another's state, a damaged file, a full disk
      ASSERT_TRUE(l.heard.error);
      const Code code = l.heard.error->code;  // NotFound: the new file was removed before it had its name
      EXPECT_TRUE(!q.from.empty() || (!q.save_as.empty() && (code == Code::Io || code == Code::NotFound)))
          << l.heard.error->message;
      return;
    }
    const Heard want = plain_answer(plain_, q);
    if (l.heard.finish == Finish::Cancelled) {
      ++cancelled_;
      ASSERT_LE(l.heard.tokens.size(), want.tokens.size());
      EXPECT_TRUE(std::equal(l.heard.tokens.begin(), l.heard.tokens.end(), want.tokens.begin()));
    } else {
      ++answers_;
      restored_ += !q.from.empty();
      expect_same(want, l.heard, "answer " + std::to_string(answers_));
    }
    std::vector<Token> text = q.prompt;
    text.insert(text.end(), l.heard.tokens.begin(), l.heard.tokens.end());
    texts_.push_back(std::move(text));
    if (texts_.size() > 12) texts_.erase(texts_.begin() + whole(0, 11));
  }

  void add_up() {
    const Statistics s = engine_->statistics();
    sum_.cached_tokens += s.cached_tokens;
    sum_.evicted_bytes += s.evicted_bytes;
    sum_.from_disk += s.from_disk;
  }

  void more(std::vector<Token>& to, int64_t n) {
    auto t = random_tokens(n, uint32_t(random_()), runner_.vocab());
    to.insert(to.end(), t.begin(), t.end());
  }

  std::string folder_;
  int64_t steps_ = 0, answers_ = 0, cancelled_ = 0, restored_ = 0, full_ = 0, restarts_ = 0;
  Statistics sum_;
  ModelRunner &runner_, &plain_;
  std::mt19937 random_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Live>> live_;
  std::vector<std::vector<Token>> texts_;
  std::vector<Token> saved_;  // what was saved last, or is about to be
};

class Histories : public TinyModel {};

// With little memory and with enough; 10000 steps of the hybrid model, fewer of the others.
TEST_P(Histories, Random) {
  const bool long_one = std::string(GetParam()) == "qwen35:tiny";
  for (double memory : {1.6, 8.0}) {
    auto r = runner({1, 96, 6, 1100, memory}), plain = runner({1, 512, 1, 1100, 2});
    History history(*r, *plain, uint32_t(memory * 10));
    history.run(long_one ? 5000 : 250);
    if (long_one) history.expect_rich();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Histories, kTinyModels, name_of_model);

}  // namespace
}  // namespace invar
