// Shares, the budget, and what really lies in physical memory.
#include "state/state_pool.h"

#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace invar {
namespace {

const StateSpec kLayout[] = {
    {StateSpec::PerToken, 100}, {StateSpec::Fixed, 40}, {StateSpec::PerToken, 8}, {StateSpec::Fixed, 100}};
const StateSpec kLarge[] = {{StateSpec::PerToken, 1024},
                            {StateSpec::Fixed, 40000}};  // pages 64 KiB, sets 40 KB

const StateSpec kHuge[] = {{StateSpec::PerToken, 5000},
                           {StateSpec::Fixed, 700000}};  // pages 316 KiB, sets 684 KiB

std::unique_ptr<StatePool> pool_of(std::span<const StateSpec> layout, int64_t pages, int64_t sets) {
  return StatePool::make(layout, pages * StatePool::page_bytes(layout) + sets * StatePool::set_bytes(layout))
      .take();
}

TEST(StatePool, SizesAndOffsets) {
  EXPECT_EQ(StatePool::page_bytes(kLayout), 8192);  // 6400 + 512, in whole pages of the system
  EXPECT_EQ(StatePool::set_bytes(kLayout), 4096);
  auto pool = pool_of(kLayout, 3, 2);
  EXPECT_EQ(pool->offset(0), 0);
  EXPECT_EQ(pool->offset(1), 0);
  EXPECT_EQ(pool->offset(2), 6400);
  EXPECT_EQ(pool->offset(3), 64);
}

TEST(StatePool, CountsShares) {
  auto pool = pool_of(kLayout, 2, 0);
  PageRef a = pool->take_page();
  EXPECT_TRUE(a && !a.shared());
  EXPECT_EQ(pool->use().pages.live, 1);
  {
    PageRef b = a.kept(), c = std::move(b);
    EXPECT_FALSE(b);  // NOLINT: what a move leaves
    EXPECT_TRUE(a.shared() && c == a);
    c = c;  // NOLINT: to itself
    EXPECT_TRUE(c.shared());
    a = {};
    EXPECT_EQ(pool->use().pages.live, 0);
    EXPECT_EQ(pool->use().pages.kept, 1);
    EXPECT_FALSE(c.shared());
  }
  EXPECT_EQ(pool->used_bytes(), 0);
  EXPECT_EQ(pool->use().pages.spare, 1);
  EXPECT_EQ(pool->resident_bytes(), 8192);
}

TEST(StatePool, OneBudgetForBothKinds) {
  auto pool = pool_of(kLayout, 1, 2);  // 16384 bytes: two pages, or four sets
  PageRef page = pool->take_page(), other = pool->take_page();
  EXPECT_TRUE(page && other);
  EXPECT_FALSE(pool->take_page());
  EXPECT_FALSE(pool->take_set());
  other = {};
  SetRef one = pool->take_set(), two = pool->take_set();
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(pool->take_set());
  EXPECT_EQ(pool->used_bytes(), pool->budget_bytes());
  EXPECT_EQ(pool->resident_bytes(), pool->budget_bytes());  // the freed page went back to the system
  EXPECT_EQ(pool->use().pages.spare, 0);
}

TEST(StatePool, ALayoutWithoutAKindGivesNone) {
  const StateSpec only_pages[] = {{StateSpec::PerToken, 8}};
  auto pool = pool_of(only_pages, 2, 0);
  EXPECT_EQ(pool->set_bytes(), 0);
  EXPECT_FALSE(pool->take_set());
  EXPECT_TRUE(pool->take_page());
  auto none = StatePool::make(only_pages, 0).take();
  EXPECT_FALSE(none->take_page());
  auto negative = StatePool::make(only_pages, -5).take();
  EXPECT_FALSE(negative->take_page());
}

TEST(StatePool, AWrittenPageIsAnother) {
  auto pool = pool_of(kLayout, 2, 0);
  PageRef a = pool->take_page();
  const uint64_t first = pool->version(a);
  pool->renew(a);
  EXPECT_NE(pool->version(a), first);
  const uint64_t second = pool->version(a);
  a = {};
  a = pool->take_page();
  EXPECT_NE(pool->version(a), second);
}

int64_t resident_of_process() {
  char text[128] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  EXPECT_GT(read(file, text, sizeof text - 1), 0);
  close(file);
  long long total = 0, resident = 0;
  EXPECT_EQ(std::sscanf(text, "%lld %lld", &total, &resident), 2);
  return resident * sysconf(_SC_PAGESIZE);
}

// Random taking, writing and dropping of both kinds; the process never has more than the pool counts, nor the
// pool than the budget.
void physical_memory_is_counted(std::span<const StateSpec> layout, int64_t budget) {
  auto pool = StatePool::make(layout, budget).take();
  std::mt19937 random(1);
  std::vector<PageRef> pages;
  std::vector<SetRef> sets;
  const int64_t before = resident_of_process();
  int64_t most = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    const bool sets_wanted = turn / 2500 % 2;  // waves, so that memory goes from one kind to the other
    if (random() % 8 < 5) {
      if (sets_wanted) {
        if (SetRef set = pool->take_set(random() % 2)) {
          std::memset(set.data(), 1, size_t(pool->set_bytes()));
          sets.push_back(std::move(set));
        } else if (!pages.empty()) {
          pages.pop_back();
        }
      } else if (PageRef page = pool->take_page(random() % 2)) {
        std::memset(page.data(), 1, size_t(pool->page_bytes()));
        pages.push_back(std::move(page));
      } else if (!sets.empty()) {
        sets.pop_back();
      }
    } else if (!pages.empty() && random() % 2) {
      std::swap(pages[random() % pages.size()], pages.back());
      pages.pop_back();
    } else if (!sets.empty()) {
      std::swap(sets[random() % sets.size()], sets.back());
      sets.pop_back();
    }
    ASSERT_LE(pool->used_bytes(), pool->budget_bytes());
    ASSERT_LE(pool->resident_bytes(), pool->budget_bytes());
    const PoolUse use = pool->use();
    ASSERT_EQ(use.pages.live + use.pages.kept, int64_t(pages.size()));
    ASSERT_EQ(use.sets.live + use.sets.kept, int64_t(sets.size()));
    if (turn % 20 != 0) continue;
    const int64_t grown = resident_of_process() - before;
#if !defined(__SANITIZE_ADDRESS__)
    ASSERT_LE(grown, pool->resident_bytes() + (1 << 20)) << turn;  // and lists
#endif
    most = std::max(most, grown);
  }
  EXPECT_GE(most, pool->budget_bytes() / 2);
}

TEST(StatePool, PhysicalMemoryStaysWithinTheBudget) { physical_memory_is_counted(kLarge, 32 << 20); }

// The first write to a huge page brings memory for blocks that nobody took.
TEST(StatePool, HugePagesAreCounted) {
  physical_memory_is_counted(kHuge, 32 << 20);
  physical_memory_is_counted(kHuge, 7 << 20);
}

// The budget holds as many blocks as without them: what a huge page holds beside gives way.
TEST(StatePool, HugePagesTakeNoRoomFromBlocks) {
  const int64_t page = StatePool::page_bytes(kHuge), set = StatePool::set_bytes(kHuge);
  for (int64_t pages : {0, 1, 2, 5})
    for (int64_t sets : {0, 1, 3}) {
      auto pool = StatePool::make(kHuge, pages * page + sets * set).take();
      std::vector<PageRef> taken;
      std::vector<SetRef> others;
      for (int64_t i = 0; i < std::max(pages, sets); ++i) {
        if (i < pages) taken.push_back(pool->take_page());
        if (i < sets) others.push_back(pool->take_set());
      }
      for (const PageRef& p : taken) EXPECT_TRUE(p) << pages << " " << sets;
      for (const SetRef& s : others) EXPECT_TRUE(s) << pages << " " << sets;
      EXPECT_EQ(pool->resident_bytes(), pool->budget_bytes()) << pages << " " << sets;
    }
}

}  // namespace
}  // namespace invar
