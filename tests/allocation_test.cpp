// After the start nothing on the path of a token allocates: answers grow by hundreds of tokens, alone and
// together, and operator new is not called on any thread.  Here it counts; sanitizers have their own.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

#include "tiny_models.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INVAR_COUNTS false
#else
#define INVAR_COUNTS true
#endif

namespace {
std::atomic<bool> counting = false;
std::atomic<int64_t> allocations = 0;
}  // namespace

#if INVAR_COUNTS
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // GCC sees through some of them and not the others
void* operator new(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t align) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  const auto to = size_t(align);
  if (void* p = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace invar {
namespace {

class Allocations : public TinyModel {
 protected:
  void SetUp() override {
    if (!INVAR_COUNTS) GTEST_SKIP() << "a sanitizer has its own operator new";
    TinyModel::SetUp();
  }

  static int64_t in_step(Engine& engine) {
    allocations = 0;
    counting = true;
    const bool more = engine.step();
    counting = false;
    EXPECT_TRUE(more);
    return allocations;
  }
};

std::vector<std::pair<const char*, SamplingParams>> samplings() {
  return {
      {"greedy", {.temperature = 0}},
      {"temperature", {.temperature = 0.8f}},
      {"filters", {.temperature = 0.8f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 40}},
      {"whole vocabulary sorted", {.temperature = 1.5f, .top_p = 0.99f}},
      {"penalties",
       {.temperature = 0.8f, .repetition = 1.1f, .presence = 0.1f, .frequency = 0.1f, .bias = {{7, 1.0f}}}}};
}

TEST_P(Allocations, NoneInAStepOfAnswers) {
  constexpr int kSteps = 200;
  for (const size_t n : {1, 4})
    for (const auto& [name, sampling] : samplings()) {
      auto r = runner({2, 64, 4, 1200, 8});
      Engine engine(*r, {});
      std::vector<Heard> heard(n);
      for (size_t i = 0; i < n; ++i) {
        heard[i].tokens.reserve(1000);
        Question q{random_tokens(30 + 7 * int64_t(i), uint32_t(i), r->vocab()), 400, sampling};
        q.sampling.seed = i;
        ask(engine, q, heard[i]);
      }
      while (heard.back().tokens.empty()) engine.step();
      int64_t sum = 0;
      for (int step = 0; step < kSteps; ++step) sum += in_step(engine);
      for (const Heard& h : heard) EXPECT_GE(h.tokens.size(), size_t(kSteps));
      EXPECT_EQ(sum, 0) << n << " answers, " << name << ": " << double(sum) / kSteps << " in a step";
      engine.run_until_idle();
    }
}

// What stays behind a step does: a snapshot on the way, and alternatives that are told.
TEST_P(Allocations, OfASnapshotAndOfAlternatives) {
  constexpr int64_t kMostOfASnapshot = 8;
  for (const int logprobs : {-1, 5}) {
    auto r = runner({2, 64, 4, 1200, 8});
    Engine engine(*r, {});
    Request request = request_of({random_tokens(40, 1, r->vocab()), 1100, {}});
    request.logprobs = logprobs;
    int64_t tokens = 0, snapshots = 0;
    request.on_event = [&](const Event& e) {
      tokens += int64_t(e.tokens.size());
      return true;
    };
    ASSERT_TRUE(engine.submit(std::move(request)));
    while (tokens == 0) engine.step();
    while (tokens < 1090) {
      const int64_t before = engine.statistics().snapshots, found = in_step(engine);
      const bool taken = engine.statistics().snapshots > before;
      snapshots += taken;
      ASSERT_LE(found, (logprobs >= 0) + taken * kMostOfASnapshot) << "at token " << tokens;
    }
    EXPECT_EQ(snapshots, r->pool().set_bytes() > 0 ? 2 : 0);
    engine.run_until_idle();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Allocations, kTinyModels, name_of_model);

}  // namespace
}  // namespace invar
