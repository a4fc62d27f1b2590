#include "base/work_thread.h"

#include <gtest/gtest.h>
#include <vector>

#include "base/clock.h"

namespace invar {
namespace {

TEST(WorkThread, DoesAllInOrderBeforeItEnds) {
  std::vector<int> done;
  {
    WorkThread thread;
    for (int i = 0; i < 100; ++i) thread.post([&done, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[size_t(i)], i);
}

TEST(WorkThread, CountsWhatWaitsAndItsTime) {
  std::mutex held;
  std::unique_lock hold(held);
  std::atomic<bool> began = false;
  WorkThread thread;
  const double start = steady_seconds();
  thread.post([&] {
    began = true;
    std::lock_guard lock(held);
  });
  while (!began) std::this_thread::yield();
  const double at_least = steady_seconds();
  thread.post([] {});
  EXPECT_EQ(thread.waiting(), 1u);
  EXPECT_EQ(thread.busy_seconds(), 0);
  const double released = steady_seconds();
  hold.unlock();
  while (thread.waiting() > 0) std::this_thread::yield();
  EXPECT_GE(thread.busy_seconds(), released - at_least);
  EXPECT_LE(thread.busy_seconds(), steady_seconds() - start);
}

}  // namespace
}  // namespace invar
