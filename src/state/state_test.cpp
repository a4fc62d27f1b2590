#include "state/state.h"

#include <cstring>
#include <gtest/gtest.h>

namespace invar {
namespace {

const StateSpec kLayout[] = {
    {StateSpec::PerToken, 100}, {StateSpec::Fixed, 40}, {StateSpec::PerToken, 8}, {StateSpec::Fixed, 100}};

TEST(State, SizesAndOffsets) {
  EXPECT_EQ(StatePool::page_bytes(kLayout), 6400 + 512);
  EXPECT_EQ(StatePool::fixed_bytes(kLayout), 64 + 128);
  auto pool = StatePool::make(kLayout, 3, 2);
  ASSERT_TRUE(pool);
  EXPECT_EQ((*pool)->offset(0), 0);
  EXPECT_EQ((*pool)->offset(1), 0);
  EXPECT_EQ((*pool)->offset(2), 6400);
  EXPECT_EQ((*pool)->offset(3), 64);
}

TEST(State, ReserveTakesPagesOrNothing) {
  auto pool = StatePool::make(kLayout, 3, 2).take();
  auto a = SequenceState::make(*pool), b = SequenceState::make(*pool);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(SequenceState::make(*pool), nullptr);
  EXPECT_TRUE(a->reserve(64));
  a->commit(64);
  EXPECT_TRUE(b->reserve(65));
  EXPECT_FALSE(a->reserve(1));
  EXPECT_EQ(a->pages().size(), 1u);
  b.reset();
  EXPECT_TRUE(a->reserve(128));
  EXPECT_EQ(a->pages().size(), 3u);
  EXPECT_NE(a->pages()[0], a->pages()[1]);
}

TEST(State, ANewSequenceStartsWithZeroFixedState) {
  auto pool = StatePool::make(kLayout, 1, 1).take();
  {
    auto a = SequenceState::make(*pool);
    std::memset(a->fixed(1), 1, 40);
    std::memset(a->fixed(3), 2, 100);
  }
  auto b = SequenceState::make(*pool);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(b->fixed(1)[i], std::byte{0});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(b->fixed(3)[i], std::byte{0});
}

TEST(State, GoesBackToAMark) {
  auto pool = StatePool::make(kLayout, 2, 1).take();
  auto a = SequenceState::make(*pool);
  ASSERT_TRUE(a->reserve(10));
  a->commit(10);
  std::memset(a->fixed(1), 1, 40);
  const SequenceState::Mark mark = a->mark();
  ASSERT_TRUE(a->reserve(60));
  a->commit(60);
  std::memset(a->fixed(1), 2, 40);
  std::memset(a->fixed(3), 3, 100);
  a->go_back(mark);
  EXPECT_EQ(a->position(), 10);
  EXPECT_EQ(a->fixed(1)[39], std::byte{1});
  EXPECT_EQ(a->fixed(3)[99], std::byte{0});
  EXPECT_TRUE(a->reserve(118));
  EXPECT_FALSE(a->reserve(119));
}

}  // namespace
}  // namespace invar
