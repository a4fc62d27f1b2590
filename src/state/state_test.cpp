// Sequences, their snapshots, and pages that several of them share.
#include "state/state.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace invar {
namespace {

const StateSpec kLayout[] = {
    {StateSpec::PerToken, 100}, {StateSpec::Fixed, 40}, {StateSpec::PerToken, 8}, {StateSpec::Fixed, 100}};
const StateSpec kOnlyPages[] = {{StateSpec::PerToken, 8}};

std::unique_ptr<StatePool> pool_of(std::span<const StateSpec> layout, int64_t pages, int64_t sets) {
  return StatePool::make(layout, pages * StatePool::page_bytes(layout) + sets * StatePool::set_bytes(layout))
      .take();
}

// What a layer does in a pass: a row of each position, and a fixed state that depends on the certain ones.
void draft(SequenceState& state, int64_t rows, int64_t certain, int seed) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t p = state.position() + i;
    const auto value = std::byte(p * 7 + seed);
    state.pages()[size_t(p / 64)][state.page_offset(2) + p % 64 * 8] = value;
    if (i < certain) state.fixed(3)[0] = std::byte(int(state.fixed(3)[0]) * 3 + int(value));
  }
  state.commit(rows, certain);
}

void write(SequenceState& state, int64_t rows, int seed) {
  ASSERT_TRUE(state.reserve(rows));
  draft(state, rows, rows, seed);
}

std::vector<std::byte> read(const SequenceState& state) {
  std::vector<std::byte> bytes{state.fixed(3)[0]};
  for (int64_t p = 0; p < state.position(); ++p)
    bytes.push_back(state.pages()[size_t(p / 64)][state.page_offset(2) + p % 64 * 8]);
  return bytes;
}

TEST(State, ReserveTakesPagesOrNothing) {
  auto pool = pool_of(kLayout, 3, 2);
  auto a = SequenceState::make(*pool), b = SequenceState::make(*pool);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->reserve(64));
  a->commit(64);
  EXPECT_TRUE(b->reserve(65));
  EXPECT_EQ(SequenceState::make(*pool), nullptr);
  EXPECT_EQ(a->wanted_pages(1), 1);
  EXPECT_FALSE(a->reserve(1));
  EXPECT_EQ(a->pages().size(), 1u);
  b.reset();
  EXPECT_TRUE(a->reserve(128));
  EXPECT_EQ(a->wanted_pages(128), 0);
  EXPECT_EQ(a->pages().size(), 3u);
  EXPECT_NE(a->pages()[0], a->pages()[1]);
}

TEST(State, ANewSequenceStartsWithZeroFixedState) {
  auto pool = pool_of(kLayout, 0, 1);
  {
    auto a = SequenceState::make(*pool);
    std::memset(a->fixed(1), 1, 40);
    std::memset(a->fixed(3), 2, 100);
  }
  auto b = SequenceState::make(*pool);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(b->fixed(1)[i], std::byte{0});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(b->fixed(3)[i], std::byte{0});
}

TEST(State, ASnapshotTakesWhatItLacksOrIsOfNoUse) {
  auto pool = pool_of(kLayout, 4, 2);
  for (int64_t rows : {1, 64, 130, 256}) {
    Snapshot s{rows, {}, {}};
    ASSERT_TRUE(s.take_rest(*pool)) << rows;
    EXPECT_EQ(s.bytes(*pool), pool->used_bytes());
    EXPECT_TRUE(s.take_rest(*pool)) << "it lacks nothing";
    EXPECT_EQ(s.bytes(*pool), pool->used_bytes());
    Snapshot more{256, {s.pages[0]}, {}};
    EXPECT_EQ(more.take_rest(*pool), rows <= 64) << "three more pages and a set";
  }
  Snapshot most{10000, {}, {}};
  EXPECT_FALSE(most.take_rest(*pool));
  most = {};
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST(State, ASnapshotStaysWhileItsOwnerWritesOn) {
  auto pool = pool_of(kLayout, 6, 4);
  auto a = SequenceState::make(*pool);
  write(*a, 70, 1);
  const std::vector<std::byte> then = read(*a);
  const std::optional<Snapshot> snapshot = a->snapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(pool->use().pages.live, 2);
  EXPECT_EQ(a->wanted_pages(1), 1);  // the copy of the page it shares
  const std::byte* const shared = a->pages()[1];
  write(*a, 5, 2);
  EXPECT_NE(a->pages()[1], shared);
  EXPECT_EQ(a->wanted_pages(1), 0);
  EXPECT_EQ(pool->use().pages.kept, 1);
  auto b = SequenceState::make(*pool, *snapshot);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->position(), 70);
  EXPECT_TRUE(read(*b) == then);
  EXPECT_EQ(b->pages()[0], a->pages()[0]);
  write(*b, 1, 3);
  EXPECT_EQ(int(a->pages()[1][a->page_offset(2) + 6 * 8]), (70 * 7 + 2) % 256);
}

TEST(State, APageOfOneOwnerIsWrittenInPlace) {
  auto pool = pool_of(kLayout, 2, 2);
  auto a = SequenceState::make(*pool);
  write(*a, 10, 1);
  std::optional<Snapshot> snapshot = a->snapshot();
  ASSERT_TRUE(snapshot);
  const uint64_t version = pool->version(snapshot->pages[0]);
  snapshot.reset();
  const std::byte* const page = a->pages()[0];
  write(*a, 1, 1);
  EXPECT_EQ(a->pages()[0], page);
  EXPECT_NE(pool->version(a->snapshot()->pages[0]), version);
}

TEST(State, GoesBackToASnapshot) {
  auto pool = pool_of(kLayout, 3, 2);
  auto a = SequenceState::make(*pool);
  write(*a, 10, 1);
  const std::vector<std::byte> then = read(*a);
  const std::optional<Snapshot> snapshot = a->snapshot();
  for (int turn = 0; turn < 3; ++turn) {
    write(*a, 100, turn);
    a->restore(*snapshot);
    EXPECT_TRUE(read(*a) == then);
    EXPECT_EQ(a->pages().size(), 1u);
  }
  EXPECT_TRUE(a->reserve(118));  // a copy and one more
  EXPECT_FALSE(a->reserve(119));
}

TEST(State, FreezingNeedsNoRoom) {
  auto pool = pool_of(kLayout, 1, 1);
  auto a = SequenceState::make(*pool);
  write(*a, 20, 4);
  const std::vector<std::byte> then = read(*a);
  EXPECT_FALSE(a->snapshot());  // no room for a second set
  Snapshot snapshot = SequenceState::freeze(std::move(a));
  EXPECT_EQ(pool->use().pages.live + pool->use().sets.live, 0);
  EXPECT_EQ(snapshot.bytes(*pool), pool->used_bytes());
  EXPECT_EQ(snapshot.own_bytes(*pool), pool->used_bytes());
  Snapshot other = snapshot;
  EXPECT_EQ(snapshot.own_bytes(*pool), 0);
  EXPECT_EQ(SequenceState::make(*pool, snapshot), nullptr);
  other = {}, snapshot = {};
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST(State, PerTokenStateCanBeCutAnywhere) {
  auto pool = pool_of(kOnlyPages, 5, 0);
  auto a = SequenceState::make(*pool);
  ASSERT_TRUE(a->reserve(200));
  for (int p = 0; p < 200; ++p) a->pages()[size_t(p / 64)][p % 64 * 8] = std::byte(p);
  a->commit(200);
  const std::optional<Snapshot> whole = a->snapshot();
  ASSERT_TRUE(whole);
  auto b = SequenceState::make(*pool, whole->cut(100));
  EXPECT_EQ(b->position(), 100);
  EXPECT_EQ(b->pages().size(), 2u);
  ASSERT_TRUE(b->reserve(1));
  b->pages()[1][36 * 8] = std::byte{255};
  EXPECT_EQ(a->pages()[1][36 * 8], std::byte{100});
  EXPECT_EQ(b->pages()[1][35 * 8], std::byte{99});
  EXPECT_TRUE(whole->cut(128).pages.size() == 2 && whole->cut(0).pages.empty());
}

TEST(State, CommitCountsWhatTheNextPassFolds) {
  auto pool = pool_of(kLayout, 1, 2);
  auto a = SequenceState::make(*pool);
  ASSERT_TRUE(a->reserve(4));
  a->commit(3, 1);
  EXPECT_EQ(a->position(), 3);
  EXPECT_EQ(a->pending(), 2);
  EXPECT_EQ(a->settled(), 1);
  a->folded();
  EXPECT_EQ(a->pending(), 0);
  EXPECT_EQ(a->settled(), 3);
  EXPECT_EQ(a->snapshot()->position, 3);
}

// A request that is cancelled, pushed out or kept between the pass that wrote its journal and the one that
// would have folded it: what is left is the state behind its last certain row, and no page of the others.
TEST(State, EndsBetweenCommitAndFold) {
  for (int64_t certain : {0, 1, 27, 30}) {
    auto pool = pool_of(kLayout, 12, 4);
    auto alone = SequenceState::make(*pool);
    write(*alone, 100, 1);
    write(*alone, certain, 2);
    const auto bytes = read(*alone);
    auto a = SequenceState::make(*pool);
    write(*a, 100, 1);
    ASSERT_TRUE(a->reserve(40));
    draft(*a, 30, certain, 2);
    ASSERT_EQ(a->pending(), 30 - certain);
    const std::optional<Snapshot> on_the_way = a->snapshot();
    ASSERT_TRUE(on_the_way);
    const Snapshot end = SequenceState::freeze(std::move(a));
    for (const Snapshot& s : {*on_the_way, end}) {
      EXPECT_EQ(s.position, 100 + certain);
      EXPECT_EQ(s.pages.size(), 2u + (certain > 28));
      auto b = SequenceState::make(*pool, s);
      ASSERT_TRUE(b);
      EXPECT_EQ(b->pending(), 0);
      EXPECT_EQ(read(*b), bytes);
    }
  }
}

TEST(State, CancelledBetweenCommitAndFoldItFreesAll) {
  auto pool = pool_of(kLayout, 8, 3);
  auto a = SequenceState::make(*pool);
  write(*a, 100, 1);
  const auto bytes = read(*a);
  const std::optional<Snapshot> kept = a->snapshot();
  ASSERT_TRUE(kept && a->reserve(40));
  draft(*a, 30, 1, 2);
  a.reset();
  EXPECT_EQ(pool->used_bytes(), kept->bytes(*pool));
  auto b = SequenceState::make(*pool, *kept);
  ASSERT_TRUE(b && b->reserve(40));
  draft(*b, 30, 1, 2);
  b->restore(*kept);
  EXPECT_EQ(b->pending(), 0);
  EXPECT_EQ(read(*b), bytes);
}

// Without fixed states nothing waits: a row that is final is in the pages.
TEST(State, WithoutFixedStatesDraftedRowsAreSettled) {
  auto pool = pool_of(kOnlyPages, 3, 0);
  auto a = SequenceState::make(*pool);
  ASSERT_TRUE(a->reserve(80));
  a->commit(80, 10);
  EXPECT_EQ(SequenceState::freeze(std::move(a)).position, 80);
}

// Sequences that fork, go back and write on: each has the bytes that it would have alone.
TEST(State, RandomForksKeepTheirBytes) {
  auto pool = pool_of(kLayout, 60, 24);
  struct Life {
    std::unique_ptr<SequenceState> state;
    std::vector<std::byte> bytes;
  };
  std::mt19937 random(7);
  std::vector<Life> lives(6);
  std::vector<std::pair<Snapshot, std::vector<std::byte>>> kept;
  for (int turn = 0; turn < 4000; ++turn) {
    Life& life = lives[random() % lives.size()];
    const auto what = random() % 8;
    if (!life.state) {
      if (kept.empty() || random() % 4 == 0) life.state = SequenceState::make(*pool);
      else life.state = SequenceState::make(*pool, kept[random() % kept.size()].first);
      if (life.state) life.bytes = read(*life.state);
    } else if (what < 4) {
      const int64_t rows = int64_t(random() % 40) + 1;
      const int64_t used = pool->used_bytes();
      if (life.state->position() + rows > 500 || !life.state->reserve(rows)) {
        EXPECT_EQ(pool->used_bytes(), used);
        if (!kept.empty()) kept.erase(kept.begin() + ptrdiff_t(random() % kept.size()));
        life.state.reset();
        continue;
      }
      write(*life.state, rows, int(random() % 100));
      life.bytes = read(*life.state);
    } else if (what == 4 || what == 5) {
      if (std::optional<Snapshot> s = life.state->snapshot()) kept.emplace_back(*std::move(s), life.bytes);
    } else if (what == 6 && !kept.empty()) {
      const auto& [snapshot, bytes] = kept[random() % kept.size()];
      life.state->restore(snapshot);
      life.bytes = bytes;
    } else {
      kept.emplace_back(SequenceState::freeze(std::move(life.state)), life.bytes);
    }
    for (const Life& l : lives) ASSERT_TRUE(!l.state || read(*l.state) == l.bytes) << turn;
    while (kept.size() > 12) kept.erase(kept.begin() + ptrdiff_t(random() % kept.size()));
    if (turn % 50 == 0 && pool->room_bytes() > pool->set_bytes())
      for (const auto& [snapshot, bytes] : kept) {
        auto state = SequenceState::make(*pool, snapshot);
        ASSERT_TRUE(state && read(*state) == bytes) << turn;
      }
  }
  lives.clear(), kept.clear();
  EXPECT_EQ(pool->used_bytes(), 0);
}

}  // namespace
}  // namespace invar
