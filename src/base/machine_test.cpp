#include "base/machine.h"

#include <gtest/gtest.h>
#include <vector>

namespace invar {
namespace {

Usage usage(double wall, double own, double busy, double stolen) { return {wall, own, busy, stolen, 2}; }

TEST(Machine, TellsWhatOthersTook) {
  const Usage before = usage(10, 3, 50, 1);
  struct Case {
    Usage after;
    double others, stolen;
    bool told, noticed;
  } cases[] = {
      {usage(12, 7, 54, 1), 0, 0, true, false},           // all of it was ours
      {usage(12, 5, 54, 1), 0.5, 0, true, true},          // half was not
      {usage(12, 6.85, 54, 1), 0.0375, 0, true, false},   // little was not
      {usage(12, 7, 54, 1.5), 0, 0.125, true, true},      // the host took some
      {usage(12, 7.02, 54, 1), 0, 0, true, false},        // ticks are coarse
      {usage(10.1, 3.1, 50.2, 1), 0.5, 0, false, false},  // too short to tell
      {usage(10, 3, 50, 1), 0, 0, false, false},
  };
  for (const Case& c : cases) {
    const Disturbance d = between(before, c.after);
    EXPECT_NEAR(d.others, c.others, 1e-9);
    EXPECT_NEAR(d.stolen, c.stolen, 1e-9);
    EXPECT_EQ(d.told, c.told);
    EXPECT_EQ(d.noticed(), c.noticed);
  }
}

TEST(Machine, KnowsItsMemory) {
  const int64_t before = rss_bytes();
  EXPECT_GT(before, 1 << 20);
  const std::vector<char> more(64 << 20, 1);
  EXPECT_NEAR(double(rss_bytes() - before), double(more.size()), 4 << 20);
}

TEST(Machine, ReadsTheSystem) {
  const Usage before = Usage::now();
  EXPECT_GE(before.processors, 1);
  EXPECT_FALSE(processor_name().empty());
  const double clock = clock_ghz();
  EXPECT_GT(clock, 0.2);
  EXPECT_LT(clock, 10);
  const Usage after = Usage::now();
  EXPECT_GT(after.wall, before.wall);
  EXPECT_GT(after.own, before.own);
  EXPECT_GE(after.busy, before.busy);
}

}  // namespace
}  // namespace invar
