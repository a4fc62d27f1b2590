#include "state/state_key.h"

#include <functional>
#include <gtest/gtest.h>
#include <set>

namespace invar {
namespace {

constexpr StateSpec kLayout[] = {{StateSpec::PerToken, 64}, {StateSpec::Fixed, 256, 16}};
constexpr StateSpec kOtherBytes[] = {{StateSpec::PerToken, 64}, {StateSpec::Fixed, 320, 16}};
constexpr StateSpec kOtherJournal[] = {{StateSpec::PerToken, 64}, {StateSpec::Fixed, 256, 32}};
constexpr StateSpec kOtherKind[] = {{StateSpec::Fixed, 64}, {StateSpec::Fixed, 256, 16}};

TEST(StateKey, EveryPartOfTheOriginCounts) {
  const StateOrigin origin{std::string(64, 'a'), "f16", "mtp", kLayout, 1};
  std::set<Digest> keys{key_of(origin).key};
  auto differs = [&](const std::function<void(StateOrigin&)>& change) {
    StateOrigin other = origin;
    change(other);
    return keys.insert(key_of(other).key).second;
  };
  EXPECT_FALSE(differs([](StateOrigin&) {}));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.model[63] = 'b'; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.kv = "f32"; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.drafter = "eagle"; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.drafter.clear(); }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.kv = "f16m", o.drafter = "tp"; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.layout = kOtherBytes; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.layout = kOtherJournal; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.layout = kOtherKind; }));
  EXPECT_TRUE(differs([](StateOrigin& o) { o.layout = o.layout.first(1); }));
  EXPECT_EQ(key_of(origin).model, origin.model);
  EXPECT_EQ(key_of(origin).numerics, 1u);
}

}  // namespace
}  // namespace invar
