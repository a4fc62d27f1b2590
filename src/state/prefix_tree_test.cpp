// The tree against a plain list of texts, and what eviction frees against what the pool says.
#include "state/prefix_tree.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <malloc.h>
#include <random>

namespace invar {
namespace {

using Text = std::vector<Token>;

constexpr int64_t kMost = 128 << 20;

const StateSpec kHybrid[] = {{StateSpec::PerToken, 8}, {StateSpec::Fixed, 8}};
const StateSpec kPlain[] = {{StateSpec::PerToken, 8}};

std::unique_ptr<StatePool> pool_of(std::span<const StateSpec> layout, int64_t blocks) {
  return StatePool::make(layout, blocks * 4096).take();
}

Text text(int n, Token first = 0) {
  Text t(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) t[size_t(i)] = first + i;
  return t;
}
Text joined(Text a, const Text& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A tiny recurrent model: the state after a text is a function of the text, row by row.
uint64_t next(uint64_t state, Token token) {
  return (state + uint64_t(token) + 1) * 0x9E3779B97F4A7C15 ^ state >> 29;
}
void feed(SequenceState& state, std::span<const Token> tokens, uint64_t& recurrent) {
  ASSERT_TRUE(state.reserve(int64_t(tokens.size())));
  int64_t p = state.position();
  for (Token t : tokens) {
    recurrent = next(recurrent, t);
    std::memcpy(state.pages()[size_t(p / 64)] + p % 64 * 8, &recurrent, 8);
    ++p;
  }
  state.commit(int64_t(tokens.size()));
}
// True when the snapshot holds what the tokens give.  `recurrent`: after them.
bool holds(StatePool& pool, const Snapshot& snapshot, std::span<const Token> tokens,
           uint64_t* recurrent = {}) {
  uint64_t state = 0;
  for (int64_t p = 0; p < snapshot.position; ++p) {
    state = next(state, tokens[size_t(p)]);
    if (std::memcmp(snapshot.pages[size_t(p / 64)].data() + p % 64 * 8, &state, 8) != 0) return false;
  }
  if (recurrent) *recurrent = state;
  return !snapshot || pool.set_bytes() == 0 || std::memcmp(snapshot.fixed.data(), &state, 8) == 0;
}

// The state of a text, read from its beginning.
Snapshot state_of(StatePool& pool, std::span<const Token> tokens) {
  auto state = SequenceState::make(pool);
  uint64_t recurrent = 0;
  feed(*state, tokens, recurrent);
  if (pool.set_bytes() > 0) std::memcpy(state->fixed(1), &recurrent, 8);
  return SequenceState::freeze(std::move(state));
}

TEST(PrefixTree, LongestSnapshotBeforeTheLastToken) {
  auto pool = pool_of(kHybrid, 100);
  PrefixTree tree(*pool, kMost);
  EXPECT_EQ(tree.match(text(10)).snapshot.position, 0);
  EXPECT_EQ(tree.match({}).known, 0);
  for (int n : {20, 5, 10}) tree.insert(text(n), state_of(*pool, text(n)));
  EXPECT_EQ(tree.match(text(4)).snapshot.position, 0);
  EXPECT_EQ(tree.match(text(5)).snapshot.position, 0);  // one row remains for its logits
  EXPECT_EQ(tree.match(text(6)).snapshot.position, 5);
  EXPECT_EQ(tree.match(text(20)).snapshot.position, 10);
  EXPECT_EQ(tree.match(text(30)).snapshot.position, 20);
  EXPECT_EQ(tree.match(text(30)).known, 20);
  EXPECT_EQ(tree.match(joined(text(12), text(9, 500))).snapshot.position, 10);
  EXPECT_EQ(tree.match(joined(text(12), text(9, 500))).known, 12);
  EXPECT_TRUE(tree.has(text(10)));
  EXPECT_FALSE(tree.has(text(11)));
  EXPECT_FALSE(tree.has({}));
}

// The place where a second question leaves the first one's path is where the system prompt ends.
TEST(PrefixTree, KnownTextTellsWhereARequestLeftThePath) {
  auto pool = pool_of(kHybrid, 100);
  PrefixTree tree(*pool, kMost);
  const Text system = text(100), one = joined(system, text(20, 1000)), two = joined(system, text(20, 2000)),
             three = joined(system, text(20, 3000));
  tree.insert(one, state_of(*pool, one));
  EXPECT_EQ(tree.match(two).snapshot.position, 0);
  EXPECT_EQ(tree.match(two).known, 100);
  tree.insert(system, state_of(*pool, system));
  tree.insert(two, state_of(*pool, two));
  EXPECT_EQ(tree.match(three).snapshot.position, 100);
  tree.learn(three);
  EXPECT_EQ(tree.match(joined(three, {7})).known, 120);
  EXPECT_EQ(tree.match(joined(three, {7})).snapshot.position, 100);
}

TEST(PrefixTree, EqualPagesAreKeptOnce) {
  auto pool = pool_of(kHybrid, 100);
  PrefixTree tree(*pool, kMost);
  tree.insert(text(130), state_of(*pool, text(130)));  // three pages and a set
  EXPECT_EQ(pool->used_bytes(), 4 * 4096);
  tree.insert(text(200), state_of(*pool, text(200)));  // shares two of its four pages
  EXPECT_EQ(pool->used_bytes(), 7 * 4096);
  tree.insert(text(200), state_of(*pool, text(200)));
  EXPECT_EQ(pool->used_bytes(), 7 * 4096);
  EXPECT_TRUE(holds(*pool, tree.match(text(201)).snapshot, text(200)));
}

TEST(PrefixTree, WithoutFixedStateEveryPositionCanBeResumed) {
  auto pool = pool_of(kPlain, 100);
  PrefixTree tree(*pool, kMost);
  tree.insert(text(200), state_of(*pool, text(200)));
  EXPECT_EQ(tree.match(text(200)).snapshot.position, 199);
  EXPECT_EQ(tree.match(text(77)).snapshot.position, 76);
  EXPECT_EQ(tree.match(joined(text(130), {5})).snapshot.position, 130);
  EXPECT_EQ(tree.match(joined(text(130), {5})).snapshot.pages.size(), 3u);
  EXPECT_TRUE(tree.has(text(50)));
  tree.insert(text(50), state_of(*pool, text(50)));  // adds nothing
  EXPECT_EQ(tree.use().snapshots, 1);
  const Text longer = joined(text(150), text(60, 900));
  tree.insert(longer, state_of(*pool, longer));
  EXPECT_EQ(tree.use().snapshots, 2);
  const Text longest = joined(longer, text(10, 5000));
  tree.insert(longest, state_of(*pool, longest));  // in place of its beginning
  EXPECT_EQ(tree.use().snapshots, 2);
  EXPECT_EQ(tree.match(joined(longer, {1, 2})).snapshot.position, 210);
}

TEST(PrefixTree, ThinsDenseSnapshotsFirst) {
  auto pool = pool_of(kHybrid, 200);
  PrefixTree tree(*pool, kMost);
  const Text all = text(640);
  for (int n : {128, 256, 264, 512}) tree.insert(std::span(all).first(size_t(n)), state_of(*pool, text(n)));
  EXPECT_EQ(tree.evict(1), 2 * 4096);  // the set of 264, and the page that it does not share
  EXPECT_FALSE(tree.has(text(264)));
  EXPECT_TRUE(tree.has(text(128)) && tree.has(text(256)) && tree.has(text(512)));
}

// An old conversation keeps its end, where it will go on, and loses what lies between.
TEST(PrefixTree, ThinsBetweenBeforeItDropsEnds) {
  auto pool = pool_of(kHybrid, 200);
  PrefixTree tree(*pool, kMost);
  for (Token first : {0, 5000})
    for (int n = 128; n <= 1024; n += 128) tree.insert(text(n, first), state_of(*pool, text(n, first)));
  EXPECT_EQ(tree.evict(6 * 4096), 6 * 4096) << "sets alone";
  EXPECT_TRUE(tree.has(text(1024, 0)) && tree.has(text(1024, 5000)));
  EXPECT_EQ(tree.use().snapshots, 10);
  EXPECT_EQ(tree.match(text(1025, 5000)).snapshot.position, 1024);
  // Where texts part is no place between.
  tree.evict(int64_t(1) << 40);
  const Text one = joined(text(256), text(64, 1000)), two = joined(text(256), text(64, 2000));
  for (const Text& t : {text(128), text(256), one, two}) tree.insert(t, state_of(*pool, t));
  EXPECT_EQ(tree.evict(1), 4096);
  EXPECT_FALSE(tree.has(text(128)));
  EXPECT_TRUE(tree.has(text(256)) && tree.has(one) && tree.has(two));
}

TEST(PrefixTree, WithoutFixedStateTheEndGoesFirst) {
  auto pool = pool_of(kPlain, 200);
  PrefixTree tree(*pool, kMost);
  const Text other = joined(text(650), text(200, 5000));
  tree.insert(text(1000), state_of(*pool, text(1000)));
  EXPECT_EQ(tree.evict(1), 4096);
  EXPECT_EQ(tree.match(text(1001)).snapshot.position, 960);
  EXPECT_EQ(tree.match(text(1001)).known, 1000) << "the text stays known";
  EXPECT_EQ(tree.evict(3 * 4096), 3 * 4096);
  EXPECT_EQ(tree.match(text(1001)).snapshot.position, 768);
  EXPECT_TRUE(holds(*pool, tree.match(text(1001)).snapshot, text(768)));
  {
    auto state = SequenceState::make(*pool, tree.match(other).snapshot);
    uint64_t recurrent = 0;
    ASSERT_TRUE(holds(*pool, tree.match(other).snapshot, other, &recurrent));
    feed(*state, std::span(other).subspan(650), recurrent);
    tree.insert(other, SequenceState::freeze(std::move(state)));
  }
  EXPECT_EQ(pool->used_bytes(), (12 + 4) * 4096) << "ten pages are the same";
  EXPECT_EQ(tree.match(text(1001)).snapshot.position, 768);
  EXPECT_EQ(tree.evict(5 * 4096), 5 * 4096) << "what only the older one has, then the end of the other";
  EXPECT_EQ(tree.match(text(1001)).snapshot.position, 704);
  EXPECT_EQ(tree.match(joined(other, {1})).snapshot.position, 650);
  EXPECT_EQ(tree.use().snapshots, 1);
  EXPECT_EQ(tree.evict(11 * 4096), 11 * 4096);
  EXPECT_EQ(tree.use().snapshots, 0);
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST(PrefixTree, AmongEqualOnesTheOldestGoes) {
  auto pool = pool_of(kHybrid, 200);
  PrefixTree tree(*pool, kMost);
  for (int i = 0; i < 4; ++i) tree.insert(text(100, i * 1000), state_of(*pool, text(100, i * 1000)));
  EXPECT_EQ(tree.match(text(101, 0)).snapshot.position, 100);
  EXPECT_EQ(tree.evict(1), 3 * 4096);
  EXPECT_FALSE(tree.has(text(100, 1000)));
  EXPECT_TRUE(tree.has(text(100, 0)));
  EXPECT_EQ(tree.match(text(101, 1000)).known, 100);  // the text stays known
}

TEST(PrefixTree, PinnedStatesStay) {
  auto pool = pool_of(kHybrid, 200);
  PrefixTree tree(*pool, kMost);
  tree.pin("a", text(100), state_of(*pool, text(100)));
  tree.pin("b", text(200), state_of(*pool, text(200)));
  tree.insert(text(300), state_of(*pool, text(300)));
  tree.evict(int64_t(1) << 40);
  EXPECT_FALSE(tree.has(text(300)));
  EXPECT_TRUE(tree.pins() == (std::vector<std::string>{"a", "b"}));
  {
    const auto pin = tree.pinned("b");
    ASSERT_TRUE(pin);
    EXPECT_TRUE(pin->tokens == text(200) && holds(*pool, pin->snapshot, text(200)));
  }
  tree.pin("b", text(200), state_of(*pool, text(200)));  // the same again
  tree.evict(int64_t(1) << 40);
  EXPECT_TRUE(tree.has(text(200)));
  tree.pin("b", text(50), state_of(*pool, text(50)));
  tree.evict(int64_t(1) << 40);
  EXPECT_FALSE(tree.has(text(200)));
  EXPECT_TRUE(tree.unpin("a") && tree.unpin("b"));
  EXPECT_FALSE(tree.unpin("a"));
  EXPECT_FALSE(tree.pinned("a"));
  tree.evict(int64_t(1) << 40);
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST(PrefixTree, APinWithoutFixedStateSurvivesTheLongerText) {
  auto pool = pool_of(kPlain, 200);
  PrefixTree tree(*pool, kMost);
  tree.pin("a", text(100), state_of(*pool, text(100)));
  tree.insert(text(300), state_of(*pool, text(300)));
  tree.evict(int64_t(1) << 40);
  EXPECT_EQ(tree.match(text(300)).snapshot.position, 100);
  tree.insert(text(300), state_of(*pool, text(300)));
  tree.pin("c", text(200), state_of(*pool, text(200)));
  EXPECT_TRUE(tree.unpin("a") && tree.unpin("c"));
  EXPECT_EQ(tree.use().snapshots, 1);
}

TEST(PrefixTree, BookkeepingStaysWithinItsBound) {
  auto pool = pool_of(kHybrid, 300);
  PrefixTree tree(*pool, 20000);
  tree.pin("kept", text(500, -1000), state_of(*pool, text(500, -1000)));
  for (int i = 0; i < 200; ++i) {
    tree.learn(text(100, i * 1000));
    if (i % 10 == 0) tree.insert(text(50, i * 1000), state_of(*pool, text(50, i * 1000)));
    ASSERT_LE(tree.use().bytes, 20000);
  }
  EXPECT_TRUE(tree.has(text(50, 190 * 1000)));
  EXPECT_TRUE(tree.has(text(500, -1000)));
  EXPECT_EQ(tree.match(text(100, 5000)).known, 0);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(PrefixTree, ItsBytesAreThoseThatItAllocates) {
  auto pool = pool_of(kPlain, 1);
  PrefixTree tree(*pool, int64_t(1) << 30);
  std::mt19937 random(1);
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return double(info.uordblks + info.hblkhd);
  };
  const double before = allocated();
  for (int i = 0; i < 100000; ++i) {
    Text t(5 + random() % 40);
    for (Token& token : t) token = Token(random() % 1000);
    tree.learn(t);
  }
  const double grown = allocated() - before;
  EXPECT_NEAR(double(tree.use().bytes), grown, 0.1 * grown);
}
#endif

TEST(PrefixTree, AVeryDeepTreeEnds) {
  auto pool = pool_of(kPlain, 1);
  PrefixTree tree(*pool, int64_t(1) << 30);
  const Text all = text(3000);
  for (size_t n = all.size(); n > 0; --n) {
    Text branch(all.begin(), all.begin() + ptrdiff_t(n));
    branch.push_back(-1);
    tree.learn(branch);
  }
  EXPECT_GT(tree.use().nodes, 5000);
}

struct Reference {
  std::vector<Text> known, stored, pinned;

  static int64_t common(const Text& a, const Text& b) {
    const auto n = std::min(a.size(), b.size());
    return std::mismatch(a.begin(), a.begin() + ptrdiff_t(n), b.begin()).first - a.begin();
  }
  int64_t known_of(const Text& t) const {
    int64_t most = 0;
    for (const Text& k : known) most = std::max(most, common(k, t));
    return most;
  }
  int64_t resumable(const Text& t, bool cuttable) const {
    int64_t most = 0;
    for (const Text& s : stored) {
      const int64_t n = common(s, t);
      if (cuttable) most = std::max(most, std::min(n, int64_t(t.size()) - 1));
      else if (n == int64_t(s.size()) && s.size() < t.size()) most = std::max(most, n);
    }
    return most;
  }
};

// Conversations that grow, fork, are edited and forgotten.
void random_life(std::span<const StateSpec> layout, int turns, uint32_t seed) {
  auto pool = pool_of(layout, 120);
  const bool cuttable = pool->set_bytes() == 0;
  std::mt19937 random(seed);
  {
    PrefixTree tree(*pool, kMost);
    Reference plain;
    std::vector<Text> talks(8);
    for (int turn = 0; turn < turns; ++turn) {
      Text& talk = talks[random() % talks.size()];
      if (random() % 6 == 0) talk = talks[random() % talks.size()];
      if (random() % 4 == 0) talk.resize(random() % (talk.size() + 1));
      if (talk.size() > 400) talk.resize(random() % 40);
      for (size_t n = random() % 60 + 1; n > 0; --n) talk.push_back(Token(random() % 2));

      PrefixTree::Match match = tree.match(talk);
      ASSERT_EQ(match.known, plain.known_of(talk)) << turn;
      ASSERT_EQ(match.snapshot.position, plain.resumable(talk, cuttable)) << turn;
      uint64_t recurrent = 0;
      ASSERT_TRUE(holds(*pool, match.snapshot, talk, &recurrent)) << turn;

      const int64_t wanted = 4096 * int64_t(2 + random() % 12);
      if (pool->room_bytes() < wanted + 8 * 4096) {
        match.snapshot = {};
        const int64_t used = pool->used_bytes(), freed = tree.evict(wanted);
        ASSERT_EQ(used - pool->used_bytes(), freed);
        if (cuttable)  // of each the beginning may be left
          for (Text& t : plain.stored) t.resize(size_t(tree.match(joined(t, {-1})).snapshot.position));
        std::erase_if(plain.stored, [&](const Text& t) { return t.empty() || !tree.has(t); });
        for (const Text& t : plain.pinned) ASSERT_TRUE(tree.has(t));
        ASSERT_LT(freed, cuttable ? wanted + 4096 : int64_t(1) << 40) << turn;
        if (freed < wanted) { ASSERT_LE(tree.use().snapshots, int64_t(plain.pinned.size())) << turn; }
        continue;
      }
      auto state = SequenceState::make(*pool, match.snapshot);
      ASSERT_TRUE(state);
      const size_t from = size_t(match.snapshot.position);
      const size_t cut = from + random() % (talk.size() - from);  // a snapshot on the way
      match.snapshot = {};
      for (auto [first, last] : {std::pair(from, cut), std::pair(cut, talk.size())}) {
        feed(*state, std::span(talk).subspan(first, last - first), recurrent);
        if (!cuttable) std::memcpy(state->fixed(1), &recurrent, 8);
        if (last == 0 || (last == cut && random() % 2)) continue;
        const Text part(talk.begin(), talk.begin() + ptrdiff_t(last));
        std::optional<Snapshot> snapshot = state->snapshot();
        ASSERT_TRUE(snapshot);
        if (random() % 40 == 0 && plain.pinned.size() < 4) {
          tree.pin(std::to_string(turn) + "/" + std::to_string(last), part, *std::move(snapshot));
          plain.pinned.push_back(part);
        } else {
          tree.insert(part, *std::move(snapshot));
        }
        plain.stored.push_back(part);
        plain.known.push_back(part);
      }
      if (!plain.pinned.empty() && random() % 50 == 0) {
        for (const std::string& name : tree.pins()) ASSERT_TRUE(tree.unpin(name));
        plain.pinned.clear();
      }
    }
    EXPECT_TRUE(tree.use().snapshots > 3 && tree.use().nodes > 10);
    for (const std::string& name : tree.pins()) tree.unpin(name);
    tree.evict(int64_t(1) << 40);
    EXPECT_EQ(tree.use().snapshots, 0);
    EXPECT_EQ(pool->used_bytes(), 0);
  }
}

TEST(PrefixTree, RandomLifeWithFixedStates) {
  for (uint32_t seed : {1, 2, 3}) random_life(kHybrid, 1500, seed);
}
TEST(PrefixTree, RandomLifeWithoutFixedStates) {
  for (uint32_t seed : {1, 2, 3}) random_life(kPlain, 1500, seed);
}

}  // namespace
}  // namespace invar
