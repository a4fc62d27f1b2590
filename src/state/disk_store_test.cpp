// The store against everything that can happen to a folder: whatever it gives back is right, or it says so.
#include "state/disk_store.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "state/store_format.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using Text = std::vector<Token>;

const StateSpec kHybrid[] = {{StateSpec::PerToken, 8}, {StateSpec::Fixed, 16}};
const StateSpec kPlain[] = {{StateSpec::PerToken, 8}};
const StateSpec kOther[] = {{StateSpec::PerToken, 80}, {StateSpec::Fixed, 16}};

std::unique_ptr<StatePool> pool_of(std::span<const StateSpec> layout, int64_t blocks = 200) {
  return StatePool::make(layout, blocks * 4096).take();
}

Text text(int n, Token first = 0) {
  Text t(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) t[size_t(i)] = first + i;
  return t;
}

uint64_t next(uint64_t state, Token token) {
  return (state + uint64_t(token) + 1) * 0x9E3779B97F4A7C15 ^ state >> 29;
}

// The state that a tiny recurrent model has after a text; none: no room.
Snapshot state_of(StatePool& pool, const Text& tokens, Snapshot base = {}) {
  auto state = SequenceState::make(pool, base);
  if (!state || !state->reserve(int64_t(tokens.size()) - base.position)) return {};
  uint64_t recurrent = 0;
  for (size_t p = 0; p < tokens.size(); ++p) {
    recurrent = next(recurrent, tokens[p]);
    if (int64_t(p) >= base.position) std::memcpy(state->pages()[p / 64] + p % 64 * 8, &recurrent, 8);
  }
  if (pool.set_bytes() > 0) std::memcpy(state->fixed(1), &recurrent, 8);
  state->commit(int64_t(tokens.size()) - base.position);
  return SequenceState::freeze(std::move(state));
}

bool holds(StatePool& pool, const Snapshot& snapshot, const Text& tokens) {
  uint64_t state = 0;
  for (size_t p = 0; p < size_t(snapshot.position); ++p) {
    state = next(state, tokens[p]);
    if (std::memcmp(snapshot.pages[p / 64].data() + p % 64 * 8, &state, 8) != 0) return false;
  }
  return pool.set_bytes() == 0 || std::memcmp(snapshot.fixed.data(), &state, 8) == 0;
}

// In one go.  NoRoom: the pool is full.
Result<Snapshot> load(DiskStore& disk, const DiskStore::Found& found, std::span<const Token> tokens,
                      const Snapshot& base = {}) {
  Result<Snapshot> loaded = Error{Code::NoRoom, "state", "full"};
  if (disk.load(found, tokens, base, [&](Result<Snapshot> s) { loaded = std::move(s); })) disk.drain();
  return loaded;
}

class DiskStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "invar-store-" + std::to_string(getpid());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  DiskStoreOptions options() {
    DiskStoreOptions o;
    o.folder = folder_;
    o.budget_bytes = 64 << 20;
    o.key[3] = 77;
    o.numerics = 5;
    o.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    return o;
  }
  std::unique_ptr<DiskStore> open(StatePool& pool) { return DiskStore::open(pool, options()); }

  // Stores the texts and closes.
  void store(StatePool& pool, const std::vector<Text>& texts) {
    auto disk = open(pool);
    for (const Text& t : texts) ASSERT_TRUE(disk->put(t, state_of(pool, t)));
    disk->drain();
    ASSERT_EQ(disk->use().written, int64_t(texts.size()));
  }
  // What a new process finds for a text, at most one token shorter: its position, or 0; -1: it was wrong.
  int64_t found(std::span<const StateSpec> layout, const Text& t) {
    auto pool = pool_of(layout);
    auto disk = open(*pool);
    const DiskStore::Found f = disk->find(t);
    if (f.position == 0) return 0;
    Result<Snapshot> snapshot = load(*disk, f, t);
    if (!snapshot) return 0;
    return holds(*pool, *snapshot, t) && snapshot->position == f.position ? f.position : -1;
  }
  std::vector<fs::path> files(const std::string& extension = {}) {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (extension.empty() || entry.path().extension() == extension) all.push_back(entry.path());
    std::sort(all.begin(), all.end());
    return all;
  }
  static void overwrite(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  static std::string bytes_of(const fs::path& path) { return read_file(path, 1 << 24).take(); }

  std::string folder_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(DiskStoreTest, WhatWasWrittenComesBack) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100), text(200), text(50, 900)});
  EXPECT_EQ(pool->used_bytes(), 0);
  auto disk = open(*pool);
  EXPECT_EQ(disk->use().snapshots, 3);
  EXPECT_EQ(disk->find(text(100)).position, 0);  // one row remains for its logits
  EXPECT_EQ(disk->find(text(101)).position, 100);
  EXPECT_EQ(disk->find(text(300)).position, 200);
  EXPECT_EQ(disk->find(text(60, 901)).position, 0);
  Result<Snapshot> snapshot = load(*disk, disk->find(text(300)), text(300));
  ASSERT_TRUE(snapshot) << snapshot.error().message;
  EXPECT_TRUE(holds(*pool, *snapshot, text(200)));
  EXPECT_EQ(pool->use().pages.kept, 4);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(DiskStoreTest, WithoutFixedStateAPrefixOfAStoredTextIsFound) {
  auto pool = pool_of(kPlain);
  store(*pool, {text(200)});
  EXPECT_EQ(found(kPlain, text(201)), 200);
  EXPECT_EQ(found(kPlain, text(200)), 192);
  EXPECT_EQ(found(kPlain, text(130)), 128);
  EXPECT_EQ(found(kPlain, text(64)), 0);
}

TEST_F(DiskStoreTest, EqualPagesAreStoredOnceAndSharedInMemory) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(128), text(192), text(256)});
  EXPECT_EQ(files(".state").size(), 3u);
  EXPECT_EQ(files(".blob").size(), 4u + 3u);
  auto disk = open(*pool);
  Result<Snapshot> first = load(*disk, disk->find(text(129)), text(129));
  ASSERT_TRUE(first);
  const int64_t used = pool->used_bytes();
  Result<Snapshot> second = load(*disk, disk->find(text(300)), text(300), *first);
  ASSERT_TRUE(second);
  EXPECT_EQ(pool->used_bytes() - used, 3 * 4096);
  EXPECT_TRUE(holds(*pool, *second, text(256)) && second->pages[1] == first->pages[1]);
}

// The same memory may hold other bytes under the same number of the page: the writer must not be misled.
TEST_F(DiskStoreTest, APageThatGrewIsWrittenAnew) {
  auto pool = pool_of(kHybrid);
  auto disk = open(*pool);
  Snapshot snapshot = state_of(*pool, text(70));
  for (int n : {100, 128, 130, 191, 192, 250}) {
    EXPECT_TRUE(disk->put(text(int(snapshot.position)), snapshot));
    disk->drain();
    snapshot = state_of(*pool, text(n), std::move(snapshot));
  }
  for (int n : {70, 100, 128, 130, 191, 192}) EXPECT_EQ(found(kHybrid, text(n + 1)), n);
}

TEST_F(DiskStoreTest, NoRoomIsNotDamage) {
  auto pool = pool_of(kHybrid, 4);
  store(*pool, {text(100)});
  auto disk = open(*pool);
  Snapshot other = state_of(*pool, text(60));
  Result<Snapshot> snapshot = load(*disk, disk->find(text(101)), text(101));
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().code, Code::NoRoom);
  EXPECT_EQ(pool->used_bytes(), other.bytes(*pool));
  other = {};
  EXPECT_TRUE(load(*disk, disk->find(text(101)), text(101)));
}

TEST_F(DiskStoreTest, TheQueueIsBounded) {
  auto pool = pool_of(kHybrid);
  DiskStoreOptions o = options();
  o.queue_bytes = 1;
  auto disk = DiskStore::open(*pool, o);
  int taken = 0;
  for (int i = 0; i < 50; ++i) taken += disk->put(text(60, i * 100), state_of(*pool, text(60, i * 100)));
  EXPECT_GE(taken, 1);
  EXPECT_LT(taken, 50);
  disk->drop_queued();
  disk->drain();
  EXPECT_EQ(disk->use().queued_bytes, 0);
  EXPECT_EQ(pool->used_bytes(), 0);
  o.budget_bytes = 8000;
  EXPECT_FALSE(DiskStore::open(*pool, o)->put(text(60), state_of(*pool, text(60))));
}

TEST_F(DiskStoreTest, AnotherModelVersionOrLayoutFindsNothing) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  const auto position = [&](std::span<const StateSpec> layout, auto change) {
    auto other = pool_of(layout);
    DiskStoreOptions o = options();
    change(o);
    return DiskStore::open(*other, o)->find(text(200)).position;
  };
  EXPECT_EQ(position(kHybrid, [](DiskStoreOptions&) {}), 100);
  EXPECT_EQ(position(kHybrid, [](DiskStoreOptions& o) { o.key[31] ^= 1; }), 0);
  EXPECT_EQ(position(kHybrid, [](DiskStoreOptions& o) { o.numerics = 6; }), 0);
  EXPECT_EQ(position(kOther, [](DiskStoreOptions&) {}), 0);
  EXPECT_EQ(position(kPlain, [](DiskStoreOptions&) {}), 0);
  EXPECT_EQ(files(".state").size(), 1u);
}

// Every file cut at every length, and with every byte changed: the state as it was, or none.
TEST_F(DiskStoreTest, EveryDamageCostsSpeedOnly) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(70)});
  const std::vector<fs::path> all = files();
  ASSERT_EQ(all.size(), 4u);
  std::vector<std::string> good;
  for (const fs::path& path : all) good.push_back(bytes_of(path));
  int cases = 0, harmless = 0;
  for (size_t f = 0; f < all.size(); ++f)
    for (size_t at = 0; at < good[f].size(); ++at)
      for (int kind = 0; kind < 3; ++kind) {
        std::string bad = good[f];
        if (kind == 0) bad.resize(at);
        else bad[at] = char(bad[at] ^ (kind == 1 ? 1 << (at % 8) : 0xFF));
        for (size_t i = 0; i < all.size(); ++i)
          if (i == f || !fs::exists(all[i])) overwrite(all[i], i == f ? bad : good[i]);
        const int64_t position = found(kHybrid, text(71));
        // Some bits of a packed blob say how to unpack it, and change nothing: what comes out is right.
        ASSERT_TRUE(position == 0 || (position == 70 && kind > 0 && all[f].extension() == ".blob"))
            << all[f] << " at " << at << " kind " << kind;
        harmless += position > 0;
        overwrite(all[f], good[f]);
        ++cases;
      }
  EXPECT_GT(cases, 1000);
  EXPECT_LT(harmless, cases / 50);
  store(*pool, {text(71)});
  EXPECT_EQ(found(kHybrid, text(72)), 71);
}

TEST_F(DiskStoreTest, LongerFilesAndForeignOnesAreNotTaken) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(70)});
  for (const fs::path& path : files()) {
    const std::string good = bytes_of(path);
    overwrite(path, good + "x");
    EXPECT_EQ(found(kHybrid, text(71)), 0) << path;
    for (const auto& entry : files()) fs::remove(entry);
    store(*pool, {text(70)});
  }
  overwrite(folder_ + "/notes.txt", "mine");
  overwrite(folder_ + "/" + std::string(32, 'a') + ".state", "something else");
  overwrite(folder_ + "/" + std::string(32, 'b') + ".state", "");
  fs::create_directory(folder_ + "/" + std::string(32, 'c') + ".state");
  fs::create_symlink("/dev/zero", folder_ + "/" + std::string(32, 'd') + ".state");
  lines_.clear();
  EXPECT_EQ(found(kHybrid, text(71)), 70);
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(fs::exists(folder_ + "/notes.txt"));
}

// The owner of the pool goes on meanwhile; what was asked first comes first, and before what is to be
// written.
TEST_F(DiskStoreTest, ReadsOnItsOwnThread) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  std::promise<void> go_on;
  std::vector<std::string> order;
  {
    auto disk = open(*pool);
    const std::thread::id own = std::this_thread::get_id();
    disk->run(
        [&, opened = go_on.get_future().share()]() -> Status {
          opened.wait();
          EXPECT_NE(std::this_thread::get_id(), own);
          return Error{Code::Io, "here", "it does not work"};
        },
        [&](Status s) {
          EXPECT_EQ(std::this_thread::get_id(), own);
          order.push_back(s ? "" : s.error().where);
        });
    ASSERT_TRUE(disk->put(text(300, 7), state_of(*pool, text(300, 7))));
    ASSERT_TRUE(disk->load(disk->find(text(101)), text(101), {}, [&](Result<Snapshot> s) {
      EXPECT_TRUE(s && holds(*pool, *s, text(100)));
      EXPECT_EQ(disk->use().written, 0);
      order.push_back("loaded");
    }));
    disk->collect();
    EXPECT_TRUE(order.empty() && disk->busy());
    EXPECT_GT(pool->used_bytes(), 0);
    go_on.set_value();
    while (order.size() < 2) disk->collect();
    disk->drain();
    EXPECT_FALSE(disk->busy());
    EXPECT_EQ(disk->use().written, 1);
    disk->run([] { return Status(Ok{}); }, [&](Status) { ADD_FAILURE() << "it ends before"; });
  }
  EXPECT_EQ(order, (std::vector<std::string>{"here", "loaded"}));
  EXPECT_EQ(pool->used_bytes(), 0);
}

TEST_F(DiskStoreTest, AFileThatVanishedIsALineOfLog) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  auto disk = open(*pool);
  const DiskStore::Found f = disk->find(text(101));
  fs::remove(files(".blob")[1]);
  EXPECT_FALSE(load(*disk, f, text(101)));
  EXPECT_EQ(pool->used_bytes(), 0);
  EXPECT_EQ(disk->find(text(101)).position, 0);
  EXPECT_EQ(lines_.size(), 1u);
  ASSERT_TRUE(disk->put(text(100), state_of(*pool, text(100))));
  disk->drain();
  EXPECT_EQ(found(kHybrid, text(101)), 100);
}

// A process out of descriptors, or a disk that fails for a moment, must not cost what is stored.
TEST_F(DiskStoreTest, AFileThatCannotBeOpenedNowStays) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  {
    auto disk = open(*pool);
    const DiskStore::Found f = disk->find(text(101));
    ASSERT_EQ(f.position, 100);
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const Result<Snapshot> loaded = load(*disk, f, text(101));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::Io) << loaded.error().message;
    EXPECT_EQ(lines_.size(), 1u);
  }
  EXPECT_EQ(found(kHybrid, text(101)), 100);
}

// One process has a state in its queue; looking over the folder, it finds that another wrote it.
TEST_F(DiskStoreTest, AStateThatAnotherProcessWroteFirstIsKnownOnce) {
  auto pool = pool_of(kHybrid);
  DiskStoreOptions o = options();
  o.budget_bytes = 16 << 10;
  int64_t each = 0;
  {
    auto other = open(*pool);
    ASSERT_TRUE(other->put(text(100), state_of(*pool, text(100))));
    other->drain();
    each = other->use().bytes;
    fs::rename(folder_, folder_ + "-other");
  }
  auto disk = DiskStore::open(*pool, o);
  Token first = 1000;
  for (; disk->use().bytes + each <= o.budget_bytes; first += 1000) {
    ASSERT_TRUE(disk->put(text(100, first), state_of(*pool, text(100, first))));
    disk->drain();
  }
  for (const auto& file : fs::directory_iterator(folder_ + "-other"))
    if (file.is_regular_file()) fs::copy(file.path(), fs::path(folder_) / file.path().filename());
  fs::remove_all(folder_ + "-other");
  // The next of its own is one too many: it looks over the folder while the other's text waits.
  ASSERT_TRUE(disk->put(text(100, first), state_of(*pool, text(100, first))));
  ASSERT_TRUE(disk->put(text(100), state_of(*pool, text(100))));
  disk->drain();
  const DiskStore::Found f = disk->find(text(101));
  ASSERT_EQ(f.position, 100);
  for (const fs::path& file : files()) fs::remove(file);
  EXPECT_FALSE(load(*disk, f, text(101)));
  EXPECT_EQ(disk->find(text(101)).position, 0);
  ASSERT_TRUE(disk->put(text(100), state_of(*pool, text(100))));
  disk->drain();
  EXPECT_EQ(disk->find(text(101)).position, 100) << "it was not written, as if it were there";
}

TEST_F(DiskStoreTest, TheOldestUseGoesFirstAlsoWhenTheClockGoesBack) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(60, 0), text(60, 1000)});
  for (const fs::path& path : files())  // written by a machine whose clock is a year ahead
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::hours(24 * 365));
  const int64_t each = open(*pool)->use().bytes / 2;
  DiskStoreOptions o = options();
  o.budget_bytes = each * 40;
  {
    auto disk = DiskStore::open(*pool, o);
    ASSERT_TRUE(load(*disk, disk->find(text(61, 0)), text(61, 0)));  // used again
    for (int i = 2; i < 46; ++i) {
      ASSERT_TRUE(disk->put(text(60, i * 1000), state_of(*pool, text(60, i * 1000))));
      if (i % 10 == 0) {
        ASSERT_TRUE(disk->find(text(61, 0)).position > 0);
        ASSERT_TRUE(load(*disk, disk->find(text(61, 0)), text(61, 0)));
      }
      disk->drain();
    }
    EXPECT_LE(disk->use().bytes, o.budget_bytes);
  }
  int64_t bytes = 0;
  for (const fs::path& path : files()) bytes += int64_t(fs::file_size(path));
  EXPECT_LE(bytes, o.budget_bytes);
  EXPECT_EQ(found(kHybrid, text(61, 45000)), 60);
  EXPECT_EQ(found(kHybrid, text(61, 0)), 60);
  EXPECT_EQ(found(kHybrid, text(61, 1000)), 0);
  EXPECT_EQ(found(kHybrid, text(61, 2000)), 0);
}

TEST_F(DiskStoreTest, AFullDiskIsOneLine) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    auto disk = open(*pool);
    const rlimit small{20, old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 1; i < 5; ++i)
      EXPECT_TRUE(disk->put(text(100, i * 999), state_of(*pool, text(100, i * 999))));
    disk->drain();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_EQ(lines_.size(), 1u);
    EXPECT_EQ(disk->use().failed, 4);
    EXPECT_EQ(disk->find(text(101)).position, 100);
    EXPECT_TRUE(disk->put(text(50), state_of(*pool, text(50))));  // and there is room again
    disk->drain();
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(found(kHybrid, text(51)), 50);
  for (const fs::path& path : files()) EXPECT_NE(path.extension(), ".part");
}

TEST_F(DiskStoreTest, AFolderThatCannotBeUsedIsOneLine) {
  auto pool = pool_of(kHybrid);
  DiskStoreOptions o = options();
  o.folder = "/proc/no-such-folder/cache";  // nobody can make it, root neither
  {
    auto disk = DiskStore::open(*pool, o);
    EXPECT_TRUE(disk->put(text(100), state_of(*pool, text(100))));
    EXPECT_TRUE(disk->put(text(90), state_of(*pool, text(90))));
    disk->drain();
    EXPECT_EQ(disk->find(text(101)).position, 0);
  }
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_EQ(pool->used_bytes(), 0);
}

// A process without rights on a folder of another user: reads, and says once that it cannot write.
TEST_F(DiskStoreTest, AReadOnlyFolderIsRead) {
  auto pool = pool_of(kHybrid);
  store(*pool, {text(100)});
  for (const fs::path& path : files()) fs::permissions(path, fs::perms(0444));
  fs::permissions(folder_, fs::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(9);
    auto mine = pool_of(kHybrid);
    auto disk = open(*mine);
    const Result<Snapshot> snapshot = load(*disk, disk->find(text(101)), text(101));
    if (!snapshot || !holds(*mine, *snapshot, text(100))) _exit(1);
    disk->put(text(50), state_of(*mine, text(50)));
    disk->put(text(60), state_of(*mine, text(60)));
    disk->drain();
    _exit(lines_.size() == 1 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  fs::permissions(folder_, fs::perms(0755));
}

// A child writes conversations as fast as it can, with a small budget so that it removes files as well.
[[noreturn]] void write_for_ever(DiskStoreOptions options, uint32_t seed) {
  auto pool = pool_of(kHybrid);
  options.log = {};
  auto disk = DiskStore::open(*pool, options);
  for (std::mt19937 random(seed);;) {
    const Text t = text(int(random() % 150) + 1, Token(random() % 6 * 1000));
    disk->put(t, state_of(*pool, t));
    if (random() % 4 == 0) disk->drain();
    disk->collect();
    while (pool->room_bytes() < 50 * 4096) disk->drain();
  }
}

TEST_F(DiskStoreTest, KilledAtAnyMomentItStartsClean) {
  std::mt19937 random(3);
  DiskStoreOptions o = options();
  o.budget_bytes = 40000;
  int64_t loaded = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const pid_t child = fork();
    if (child == 0) write_for_ever(o, uint32_t(turn));
    usleep(useconds_t(random() % 8000));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    auto pool = pool_of(kHybrid);
    lines_.clear();
    auto disk = DiskStore::open(*pool, o);
    ASSERT_TRUE(lines_.empty()) << lines_[0];
    for (int start = 0; start < 6; ++start) {
      const Text t = text(151, start * 1000);
      const DiskStore::Found f = disk->find(t);
      if (f.position == 0) continue;
      const Result<Snapshot> snapshot = load(*disk, f, t);
      if (!snapshot) continue;  // its parts were just being removed
      ASSERT_TRUE(holds(*pool, *snapshot, t));
      loaded += 1;
    }
    for (const fs::path& path : files()) ASSERT_NE(path.extension(), ".part") << path;
  }
  EXPECT_GT(loaded, 100);
}

TEST_F(DiskStoreTest, TwoProcessesShareAFolder) {
  DiskStoreOptions o = options();
  o.budget_bytes = 60000;
  const pid_t child = fork();
  if (child == 0) write_for_ever(o, 1);
  auto pool = pool_of(kHybrid);
  std::mt19937 random(2);
  int64_t loaded = 0, wrong = 0;
  auto disk = DiskStore::open(*pool, o);
  for (int turn = 0; turn < 400; ++turn) {
    const Text t = text(int(random() % 150) + 1, Token(random() % 6 * 1000));
    Snapshot own = state_of(*pool, t);
    if (own) disk->put(t, std::move(own));
    disk->drain();
    if (turn % 40 == 39) disk = DiskStore::open(*pool, o);  // sees what the other wrote
    const Text longer = text(151, t[0]);
    const DiskStore::Found f = disk->find(longer);
    if (f.position == 0) continue;
    const Result<Snapshot> snapshot = load(*disk, f, longer);
    loaded += bool(snapshot);
    wrong += snapshot && !holds(*pool, *snapshot, longer);
  }
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(loaded, 50);
}

TEST(StoreFormat, BlobsArePackedWhereItPays) {
  std::vector<std::byte> zeros(5000), noise(5000);
  std::mt19937 random(1);
  for (std::byte& b : noise) b = std::byte(random());
  for (const auto* bytes : {&zeros, &noise}) {
    const std::vector<std::byte> file = pack_blob(*bytes);
    EXPECT_EQ(file.size() < 200, bytes == &zeros);
    EXPECT_LE(int64_t(file.size()), most_blob_file_bytes(5000));
    std::vector<std::byte> out(5000), small(4999);
    EXPECT_TRUE(unpack_blob(file, sha256(*bytes), out, "t"));
    EXPECT_TRUE(out == *bytes);
    EXPECT_FALSE(unpack_blob(file, sha256(*bytes), small, "t"));
    EXPECT_FALSE(unpack_blob(file, Digest{}, out, "t"));
  }
}

// A head whose digest is right but whose sizes are not: made by a program, not by accident.
TEST(StoreFormat, SizesAreCheckedBeforeTheyAreUsed) {
  for (int64_t position : {int64_t(-1), int64_t(0), kMostPositions + 1, int64_t(1) << 62}) {
    std::vector<std::byte> file = head_file({5, {}, 1, 64, 0, 0, {}, {}}, text(1), std::vector<Digest>(1));
    ASSERT_TRUE(parse_head(file, "t"));
    std::memcpy(&file[48], &position, 8);
    const Digest digest = sha256(std::span(file).first(144));
    std::memcpy(&file[144], digest.data(), 32);
    EXPECT_FALSE(parse_head(file, "t")) << position;
  }
}

}  // namespace
}  // namespace invar
