// One digest for each request, whatever it runs beside, wherever its state comes from, on any number of
// threads and with any chunk.
#include <algorithm>
#include <array>
#include <filesystem>
#include <gtest/gtest.h>

#include "tiny_models.h"

namespace invar {
namespace {

constexpr int64_t kContext = 512;
constexpr size_t kMostTogether = 16;

// Short and long, of one page and of several, alike at their beginning and not, greedy and drawn.
std::vector<Question> questions_for(int64_t vocab) {
  const std::vector<Token> system = random_tokens(90, 7, vocab);
  std::vector<Question> list;
  for (size_t i = 0; i < kMostTogether; ++i) {
    const int64_t n = std::array{1, 20, 63, 64, 66, 120, 128, 250}[i % 8] + int64_t(i) / 8;
    Question q{random_tokens(n, uint32_t(i + 1), vocab), 10 + int64_t(i) % 5, {}};
    if (n > 100) std::copy(system.begin(), system.end(), q.prompt.begin());
    q.sampling.seed = i;
    q.sampling.temperature = i % 3 ? 0.8f : 0;
    if (i % 4 == 1) q.sampling.repetition = 1.2f, q.sampling.top_k = 40;
    if (n > 4) q.marks = {n / 2, n - 3};
    list.push_back(q);
  }
  return list;
}

// Requests that run together on one runner.
class Together {
 public:
  Together(ModelRunner& runner, const std::vector<Question>& questions, const std::vector<Heard>& want,
           std::string where)
      : runner_(runner), questions_(questions), want_(want), where_(std::move(where)) {}

  void run(size_t first, size_t count) {
    first_ = first, count_ = count;
    const std::string folder = new_folder();
    open(folder);
    ask_all();
    end("cold");
    ask_all();
    end("known");
    EXPECT_TRUE(all_cached()) << where_ << ", known";
    engine_->drain();
    engine_->forget();
    const int64_t loads = engine_->statistics().from_disk;
    ask_all();
    end("from disk");
    EXPECT_TRUE(!has_long() || engine_->statistics().from_disk > loads) << where_;
    EXPECT_TRUE(all_cached()) << where_ << ", from disk";
    for (int after : {0, 8}) {
      open({});
      push_out(after);
    }
    std::filesystem::remove_all(folder);
  }
  int64_t pushed_out() const { return pushed_out_; }

 private:
  void open(const std::string& folder) {
    EngineOptions options;
    options.growth = 0;
    options.cache_folder = folder;
    engine_.reset();  // it has the runner's state for itself
    engine_ = std::make_unique<Engine>(runner_, options);
  }
  void ask_all() {
    heard_.assign(count_, {});
    for (size_t i = 0; i < count_; ++i) ask(*engine_, questions_[at(i)], heard_[i]);
  }
  size_t at(size_t i) const { return (first_ + i) % questions_.size(); }

  void end(const char* what) {
    engine_->run_until_idle();
    for (size_t i = 0; i < count_; ++i)
      expect_same(want_[at(i)], heard_[i], where_ + ", " + what + ", request " + std::to_string(at(i)));
    expect_nothing_lives(*engine_);
  }

  // Texts that are shorter may lie between two snapshots.
  static constexpr size_t kLong = 100;
  bool has_long() const {
    for (size_t i = 0; i < count_; ++i)
      if (questions_[at(i)].prompt.size() > kLong) return true;
    return false;
  }
  bool all_cached() const {
    for (size_t i = 0; i < count_; ++i)
      if (questions_[at(i)].prompt.size() > kLong && heard_[i].usage.cached_tokens < 40) return false;
    return true;
  }

  // An elder one takes their memory, from that step on: all that is free is held here, and nothing is kept.
  void push_out(int after) {
    Question elder{random_tokens(150, 1000, runner_.vocab()), 90, {}};
    elder.priority = 1;
    Heard of_elder;
    ask(*engine_, elder, of_elder);
    ask_all();
    for (int i = 0; i < after; ++i) engine_->step();
    auto some_left = [&] {
      return std::any_of(heard_.begin(), heard_.end(), [](auto& h) { return !h.ends; });
    };
    std::vector<PageRef> held;
    while (some_left() && engine_->statistics().preemptions == 0) {
      engine_->step();
      if (heard_.back().usage.prompt_rows == 0) continue;  // it has no memory to take yet
      engine_->forget();
      while (PageRef page = runner_.pool().take_page()) held.push_back(std::move(page));
    }
    held.clear();
    pushed_out_ += engine_->statistics().preemptions;
    end("pushed out");
    EXPECT_EQ(of_elder.finish, Finish::Length);
  }

  ModelRunner& runner_;
  const std::vector<Question>& questions_;
  const std::vector<Heard>& want_;
  const std::string where_;
  std::unique_ptr<Engine> engine_;
  size_t first_ = 0, count_ = 0;
  std::vector<Heard> heard_;
  int64_t pushed_out_ = 0;
};

class Matrix : public TinyModel {};

TEST_P(Matrix, OneDigestForEachRequest) {
  const std::vector<Question> questions = questions_for(runner({2, 512, 1, kContext})->vocab());
  std::vector<Heard> want;
  {
    auto plain = runner({2, 512, 1, kContext});
    for (const Question& q : questions) want.push_back(plain_answer(*plain, q));
  }
  for (int threads : {1, 3})
    for (int chunk : {7, 64, 512}) {
      auto r = runner({threads, chunk, int(kMostTogether) + 1, kContext});
      for (size_t count : {size_t(1), size_t(2), size_t(5), kMostTogether}) {
        const std::string where = std::to_string(threads) + " threads, chunk " + std::to_string(chunk) +
                                  ", " + std::to_string(count) + " together";
        Together together(*r, questions, want, where);
        for (size_t first : {0, 6})
          if (count < kMostTogether || first == 0) together.run(first, count);
        EXPECT_GT(together.pushed_out(), 0) << where;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Matrix, kTinyModels, name_of_model);

}  // namespace
}  // namespace invar
