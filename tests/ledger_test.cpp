// The memory of many turns: it stays within the budget once every kind of request was there, the books
// account for it, and nothing grows.  bench/ledger.py does the same with a larger model.
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>

#include "base/machine.h"
#include "questions.h"

namespace invar {
namespace {

constexpr int64_t kBudget = 128 << 20;

class Ledger {
 public:
  explicit Ledger(const std::string& model) : file_(ModelFile::open(model).take()) {
    options_.threads = 2;
    options_.sequences = 4;
    options_.context = 2000;
    options_.memory_bytes = kBudget;
    options_.cache_folder = testing::TempDir() + "ledger-" + std::to_string(getpid());
    options_.cache_disk_bytes = 16 << 20;
    engine_ = Engine::open(file_, options_).take();
  }
  ~Ledger() {
    engine_.reset();
    std::filesystem::remove_all(options_.cache_folder);
  }

  // Conversations that grow and begin anew, and beside each turn one request of another kind.
  void turn(int n) {
    const int64_t vocab = engine_->runner().vocab();
    Question& talk = talks_[n % 5];
    if (talk.prompt.size() > 1500 || talk.prompt.empty())
      talk = {random_tokens(200 + n % 90, uint32_t(n), vocab), 20, {}};
    const auto more = random_tokens(60, uint32_t(n + 1000), vocab);
    talk.prompt.insert(talk.prompt.end(), more.begin(), more.end());
    talk.marks = {int64_t(talk.prompt.size()) - 60};
    Question other{random_tokens(100 + n % 300, uint32_t(n + 7000), vocab), 10, {}};
    other.sampling.seed = uint64_t(n);
    if (n % 4 == 0) other.n = 3;
    if (n % 4 == 1) other.save_as = "kept" + std::to_string(n % 3);
    if (n % 4 == 2) other = {talk.prompt, 5, {}};
    Heard heard, beside;
    ask(*engine_, talk, heard);
    Request request = request_of(other);
    request.digest = n % 2 == 0;
    request.on_event = [&](const Event& e) {
      beside.ends += e.finish != Finish::Running;
      return true;
    };
    const auto id = engine_->submit(std::move(request));
    ASSERT_TRUE(id);
    for (int i = 0; i < 3; ++i) engine_->step();
    if (n % 4 == 3) engine_->cancel(*id);
    engine_->run_until_idle();
    EXPECT_EQ(heard.finish, Finish::Length);
    EXPECT_EQ(beside.ends, other.n);
    talk.prompt.insert(talk.prompt.end(), heard.tokens.begin(), heard.tokens.end());
  }

  // What the books say.
  int64_t accounted() {
    engine_->drain();
    return memory_bytes(engine_->statistics());
  }
  Statistics statistics() { return engine_->statistics(); }

 private:
  ModelFile file_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Question talks_[5];
};

TEST(Memory, StaysWithinTheBudgetAndDoesNotGrow) {
  const std::string path = tiny_model("qwen35:tiny");
  const int64_t before = rss_bytes();
  {
    Ledger ledger(path);
    for (int n = 0; n < 50; ++n) ledger.turn(n);
    const int64_t warm = rss_bytes();
    int64_t most = warm;
    for (int n = 50; n < 150; ++n) {
      ledger.turn(n);
      most = std::max(most, rss_bytes());
    }
    EXPECT_GT(ledger.statistics().evicted_bytes, 0) << "the budget was needed";
    EXPECT_LE(most - before, kBudget + kBudget / 20);
    EXPECT_LE(most - warm, kBudget / 20) << "it grows";
    EXPECT_NEAR(double(rss_bytes() - before), double(ledger.accounted()), kBudget / 20);
    std::printf("budget %.1f MiB, accounted %.1f, at turn 50 %.1f, most %.1f\n", double(kBudget) / 0x1p20,
                double(ledger.accounted()) / 0x1p20, double(warm - before) / 0x1p20,
                double(most - before) / 0x1p20);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace invar
