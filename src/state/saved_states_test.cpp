// A saved state comes back as it was, or is an error that names it.
#include "state/saved_states.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace invar {
namespace {

namespace fs = std::filesystem;

const StateSpec kHybrid[] = {{StateSpec::PerToken, 8}, {StateSpec::Fixed, 16}};
const StateSpec kPlain[] = {{StateSpec::PerToken, 8}};

class SavedStates : public testing::Test {
 protected:
  SavedStates()
      : pool_(StatePool::make(kHybrid, 200 * 4096).take()),
        folder_(testing::TempDir() + "saved-" + std::to_string(getpid()) + "/saved") {
    fs::remove_all(fs::path(folder_).parent_path());
    key_.key[3] = 77;
    key_.model = std::string(63, 'a') + "7";
    key_.numerics = 5;
  }
  ~SavedStates() override { fs::remove_all(fs::path(folder_).parent_path()); }

  static std::vector<Token> text(int n) {
    std::vector<Token> t;
    for (int i = 0; i < n; ++i) t.push_back(1000 + i);
    return t;
  }
  Snapshot state_of(int n) {
    auto state = SequenceState::make(*pool_);
    EXPECT_TRUE(state->reserve(n));
    for (int i = 0; i < n; ++i) std::memset(state->pages()[size_t(i) / 64] + i % 64 * 8, i + 1, 8);
    std::memset(state->fixed(1), n, 16);
    state->commit(n);
    return SequenceState::freeze(std::move(state));
  }
  static bool holds(const Snapshot& s, int n) {
    bool good = s.position == n && s.fixed.data()[0] == std::byte(n);
    for (int i = 0; i < n; ++i) good &= s.pages[size_t(i) / 64].data()[i % 64 * 8] == std::byte(i + 1);
    return good;
  }
  Status write(const std::string& name, int n) {
    return write_saved(folder_, name, key_, text(n), state_of(n), *pool_);
  }
  Result<Snapshot> read(const std::string& name) {
    const SavedState state = TRY(SavedState::open(folder_, name));
    TRY(state.check(key_, *pool_));
    Snapshot snapshot{int64_t(state.tokens().size()), {}, {}};
    EXPECT_TRUE(snapshot.take_rest(*pool_));
    TRY(state.read(snapshot));
    return snapshot;
  }

  std::unique_ptr<StatePool> pool_;
  std::string folder_;
  StateKey key_;
};

TEST_F(SavedStates, ComeBackByNameUntilForgotten) {
  EXPECT_TRUE(list_saved(folder_)->empty()) << "no folder yet";
  ASSERT_TRUE(write("b", 70));
  ASSERT_TRUE(write("a.1", 128));
  ASSERT_TRUE(write("b", 71)) << "replaces";
  EXPECT_EQ(pool_->used_bytes(), 0);
  auto list = list_saved(folder_);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].name, "a.1");
  EXPECT_EQ((*list)[1].tokens, 71);
  EXPECT_EQ((*list)[1].model, key_.model);
  EXPECT_EQ((*list)[1].bytes, int64_t(fs::file_size(folder_ + "/b.saved")));
  EXPECT_EQ(SavedState::open(folder_, "b")->tokens(), text(71));
  EXPECT_TRUE(holds(*read("b"), 71));
  EXPECT_TRUE(holds(*read("a.1"), 128));
  EXPECT_TRUE(*forget_saved(folder_, "b"));
  EXPECT_FALSE(*forget_saved(folder_, "b"));
  EXPECT_EQ(read("b").error().code, Code::NotFound);
  EXPECT_EQ(read("b").error().where, "b");
}

TEST_F(SavedStates, NamesAreFileNamesAndNoPaths) {
  for (const char* name : {"", ".hidden", "a/b", "../a", "a b", "\xc3\xa9", "a\n"}) {
    EXPECT_EQ(write(name, 5).error().code, Code::BadRequest) << name;
    EXPECT_EQ(forget_saved(folder_, name).error().code, Code::BadRequest) << name;
    EXPECT_EQ(SavedState::open(folder_, name).error().code, Code::BadRequest) << name;
  }
  EXPECT_FALSE(check_state_name(std::string("a\0b", 3)));
  EXPECT_FALSE(check_state_name(std::string(101, 'a')));
  EXPECT_TRUE(check_state_name(std::string(100, 'a')));
  EXPECT_TRUE(check_state_name("Trip-1_b.2"));
}

TEST_F(SavedStates, AnotherModelVersionOrLayoutIsAnError) {
  ASSERT_TRUE(write("a", 70));
  auto refusal = [&](StatePool& pool, auto change) {
    StateKey key = key_;
    change(key);
    const Status status = SavedState::open(folder_, "a")->check(key, pool);
    return status ? std::string() : status.error().where + ": " + status.error().message;
  };
  EXPECT_EQ(refusal(*pool_, [](StateKey&) {}), "");
  EXPECT_NE(refusal(*pool_, [](StateKey& k) { k.key[31] ^= 1; }).find("--kv"), std::string::npos);
  EXPECT_NE(
      refusal(*pool_, [](StateKey& k) { k.numerics = 6; }).find("a: expected a state of numerics version 6"),
      std::string::npos);
  EXPECT_NE(refusal(*pool_, [](StateKey& k) { k.model[0] = 'b'; }).find("baaa"), std::string::npos);
  auto plain = StatePool::make(kPlain, 200 * 4096).take();
  EXPECT_NE(refusal(*plain, [](StateKey&) {}), "");
}

// Cut at every length, and with every byte changed: the state as it was, or an error.
TEST_F(SavedStates, EveryDamageIsAnError) {
  ASSERT_TRUE(write("a", 70));
  const std::string path = folder_ + "/a.saved", good = read_file(path, 1 << 20).take();
  int harmless = 0;
  for (size_t at = 0; at < good.size(); ++at)
    for (int kind = 0; kind < 3; ++kind) {
      std::string bad = good;
      if (kind == 0) bad.resize(at);
      else bad[at] = char(bad[at] ^ (kind == 1 ? 1 << (at % 8) : 0xFF));
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
      const auto state = read("a");
      ASSERT_TRUE(!state || (kind > 0 && holds(*state, 70))) << at << " kind " << kind;
      ASSERT_TRUE(state || !state.error().where.empty());
      harmless += bool(state);  // some bits of a packed blob say how to unpack it, and change nothing
      ASSERT_EQ(list_saved(folder_)->size(), 1u);
    }
  EXPECT_LT(harmless, int(good.size()) / 20);
  EXPECT_TRUE(write("a", 71)) << "can be replaced";
  EXPECT_TRUE(holds(*read("a"), 71));
}

TEST_F(SavedStates, AFullDiskLeavesTheOneBefore) {
  ASSERT_TRUE(write("a", 70));
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{600, old.rlim_max};
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status written = write("a", 128);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, before);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::Io);
  EXPECT_NE(written.error().where.find("a.saved"), std::string::npos);
  EXPECT_TRUE(holds(*read("a"), 70));
  std::ofstream(folder_ + "/a.saved.999999999.part") << "left by a killed process";
  ASSERT_TRUE(write("b", 5));
  EXPECT_FALSE(fs::exists(folder_ + "/a.saved.999999999.part"));
}

// Lists, texts and states are read while another thread, or another process, replaces and removes them.
TEST_F(SavedStates, AreReadWhileOthersWrite) {
  ASSERT_TRUE(write("b", 40));
  const Snapshot states[] = {state_of(70), state_of(128)};
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (int turn = 0; turn < 200; ++turn) {
      const Snapshot& s = states[turn % 2];
      EXPECT_TRUE(write_saved(folder_, "a", key_, text(int(s.position)), s, *pool_));
      if (turn % 5 == 4) { EXPECT_TRUE(*forget_saved(folder_, "a")); }
    }
    done = true;
  });
  int lists = 0, found = 0;
  while (!done || lists < 50) {
    const auto list = list_saved(folder_);
    ASSERT_TRUE(list && !list->empty());
    for (const SavedInfo& info : *list) ASSERT_FALSE(info.damage) << info.damage->message;
    ASSERT_EQ(list->back().name, "b") << "it is always there";
    const auto opened = SavedState::open(folder_, "a");
    if (opened) {
      const int n = int(opened->tokens().size());
      ASSERT_TRUE((n == 70 || n == 128) && opened->tokens() == text(n));
    }
    const auto state = read("a");
    if (state) ASSERT_TRUE(holds(*state, int(state->position)));
    else ASSERT_EQ(state.error().code, Code::NotFound) << state.error().message;
    ++lists, found += bool(state);
  }
  other.join();
  EXPECT_GT(found, 0);
}

TEST_F(SavedStates, NoRoomTakesNothing) {
  ASSERT_TRUE(write("a", 130));
  auto small = StatePool::make(kHybrid, 3 * 4096).take();
  const auto state = SavedState::open(folder_, "a");
  ASSERT_TRUE(state);
  {
    Snapshot snapshot{int64_t(state->tokens().size()), {}, {}};
    EXPECT_FALSE(snapshot.take_rest(*small));
  }
  EXPECT_EQ(small->used_bytes(), 0);
}

}  // namespace
}  // namespace invar
