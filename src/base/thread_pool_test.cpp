#include "base/thread_pool.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

#include "base/float_env.h"

namespace invar {
namespace {

TEST(ThreadPool, RunsEachPieceOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 7, 1000})
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> count(static_cast<size_t>(n));
        pool.run(n, [&](int64_t i) { ++count[size_t(i)]; });
        for (auto& c : count) ASSERT_EQ(c, 1);
      }
  }
}

TEST(ThreadPool, PiecesUnderflowGraduallyWhateverTheHostSet) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  ThreadPool pool(3);
  std::vector<float> tiny(64, 0);
  pool.run(64, [&](int64_t i) {
    volatile float x = 0x1p-126f;
    tiny[size_t(i)] = x * 0.5f;
  });
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & 0x8040, 0x8040u);
  for (float x : tiny) EXPECT_EQ(std::fpclassify(x), FP_SUBNORMAL);
}

TEST(ThreadPool, CountsHowLongThreadsWait) {
  ThreadPool pool(2);
  auto uneven = [&](int ms) {
    std::atomic<int> begun{0};  // a piece for each thread, however late it wakes
    pool.run(2, [&](int64_t i) {
      for (++begun; begun < 2;) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 0 : ms));
    });
  };
  uneven(20);
  EXPECT_EQ(pool.waited_seconds(), 0) << "nobody asked for it";
  pool.watch();
  uneven(20);
  EXPECT_GE(pool.waited_seconds(), 0.015);
  const double before = pool.waited_seconds();
  pool.run(1, [](int64_t) {});  // the caller alone
  EXPECT_EQ(pool.waited_seconds(), before);
  uneven(20);
  EXPECT_GE(pool.waited_seconds(), before + 0.015);
}

TEST(ThreadPool, NoMoreProcessorsThanThisThreadMayUse) {
  cpu_set_t whole, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof whole, &whole), 0);
  EXPECT_LE(available_processors(), CPU_COUNT(&whole));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &whole)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_processors(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof whole, &whole), 0);
}

}  // namespace
}  // namespace invar
