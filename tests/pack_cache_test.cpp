// A pack cache changes the time of a start and nothing else: whatever lies in its folder, the logits are
// those of a start without it.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/model_runner.h"
#include "files/fingerprint.h"
#include "files/model_file.h"
#include "models/synth/synth.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

struct Start {
  std::vector<float> logits;
  std::vector<std::string> notes;
  std::string fingerprint;
};

class Packs : public testing::Test {
 protected:
  Packs() { fs::create_directories(folder_); }
  ~Packs() override { fs::remove_all(folder_); }

  std::string model(const char* shape, const char* mix, uint64_t seed) {
    const std::string path = folder_ + "/" + std::to_string(seed) + ".gguf";
    ThreadPool pool(2);
    EXPECT_TRUE(synthesize(*find_shape(shape), path, {mix, seed, false}, pool, [](double) { return true; }));
    return path;
  }

  Start start(const std::string& path, const std::string& packs) {
    Start s;
    ModelFile file = ModelFile::open(path).take();
    RunnerOptions options;
    options.threads = 2;
    options.context = 64;
    options.pack_cache = packs;
    auto engine =
        ModelRunner::open(file, options, {{}, [&](const std::string& line) { s.notes.push_back(line); }});
    EXPECT_TRUE(engine) << engine.error().message;
    s.fingerprint = (*engine)->fingerprint();
    auto sequence = (*engine)->new_sequence();
    const std::vector<Token> tokens = {1, 2, 3};
    EXPECT_TRUE((*engine)->forward(*sequence, tokens, ModelRunner::Rows::All,
                                   [&](int64_t, std::span<const float> row) {
                                     s.logits.insert(s.logits.end(), row.begin(), row.end());
                                     return true;
                                   }));
    return s;
  }

  std::vector<fs::path> files(const std::string& ending) {
    std::vector<fs::path> list;
    if (!fs::exists(cache_)) return list;
    for (const auto& entry : fs::directory_iterator(cache_))
      if (entry.path().string().ends_with(ending)) list.push_back(entry.path());
    return list;
  }

  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string folder_ = testing::TempDir() + "pack_cache_test_" + std::to_string(getpid());
  std::string cache_ = folder_ + "/packs";
};

bool same(const Start& a, const Start& b) {
  return a.logits.size() == b.logits.size() &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

TEST_F(Packs, TheSecondStartReadsWhatTheFirstKept) {
  for (auto [shape, mix] :
       {std::pair{"llama:tiny", "Q4_K_M"}, {"qwen35moe:tiny", "Q5_K"}, {"qwen35:tiny", "BF16"}}) {
    const std::string path = model(shape, mix, 1);
    const Start plain = start(path, ""), first = start(path, cache_);
    EXPECT_TRUE(plain.fingerprint.empty());
    ASSERT_EQ(first.notes.size(), 1u) << shape;
    EXPECT_NE(first.notes[0].find("kept"), std::string::npos);
    EXPECT_EQ(first.fingerprint, fingerprint_of(ModelFile::open(path).take()).take());
    const Start second = start(path, cache_);
    EXPECT_TRUE(second.notes.empty()) << second.notes[0];
    EXPECT_EQ(second.fingerprint, first.fingerprint);
    EXPECT_TRUE(same(plain, first) && same(plain, second)) << shape;
    fs::remove_all(cache_);
  }
}

TEST_F(Packs, ThePackIsReallyRead) {
  const std::string path = model("llama:tiny", "Q8_0", 1);
  start(path, cache_);
  ASSERT_EQ(files(".pack").size(), 1u);
  const fs::path pack = files(".pack")[0];
  std::string bytes = bytes_of(pack);
  bytes[100] ^= 1;
  put(pack, bytes);
  const Start after = start(path, cache_);
  ASSERT_EQ(after.notes.size(), 2u);
  EXPECT_NE(after.notes[0].find("checksum"), std::string::npos) << after.notes[0];
  EXPECT_NE(after.notes[1].find("kept"), std::string::npos) << after.notes[1];
  EXPECT_TRUE(same(start(path, ""), after));
  EXPECT_TRUE(start(path, cache_).notes.empty());  // the damaged one was replaced
}

TEST_F(Packs, DamageAnywhereCostsTimeOnly) {
  const std::string path = model("llama:tiny", "Q4_K_M", 1);
  const Start plain = start(path, cache_);
  const fs::path pack = files(".pack").at(0), place = files(".place").at(0);
  const std::string whole = bytes_of(pack), told = bytes_of(place);
  auto sound = [&] {
    const Start s = start(path, cache_);
    EXPECT_TRUE(same(plain, s));
    return !s.notes.empty();  // something was said
  };
  const size_t table = whole.find("{\"fingerprint\"");
  ASSERT_NE(table, std::string::npos);
  std::vector<size_t> places = {0, table / 2, table - 1};
  for (size_t at = table; at < whole.size(); at += 1 + (whole.size() - table) / 40) places.push_back(at);
  for (size_t at = whole.size() - 32; at < whole.size(); ++at) places.push_back(at);
  for (size_t at : places) {
    std::string bad = whole;
    bad[at] ^= 0x11;
    put(pack, bad), put(place, told);
    EXPECT_TRUE(sound()) << "byte " << at;
  }
  for (size_t length : {size_t(0), size_t(7), size_t(31), size_t(32), table, whole.size() - 1}) {
    put(pack, whole.substr(0, length)), put(place, told);
    EXPECT_TRUE(sound()) << length << " bytes";
  }
  for (const std::string& text :
       {std::string(), std::string(64, 'g'), std::string(65, 'a'), "../../../" + std::string(55, 'a')}) {
    put(pack, whole), put(place, text);
    EXPECT_TRUE(sound()) << text;
  }
}

TEST_F(Packs, AnotherModelsPackIsNotUsed) {
  const std::string one = model("llama:tiny", "Q4_0", 1), two = model("llama:tiny", "Q4_0", 2);
  start(one, cache_);
  const fs::path pack = files(".pack").at(0);
  const Start plain = start(two, cache_);
  for (const fs::path& other : files(".pack"))
    if (other != pack) fs::copy_file(pack, other, fs::copy_options::overwrite_existing);
  const Start after = start(two, cache_);
  ASSERT_EQ(after.notes.size(), 2u);  // refused, and a sound one kept
  EXPECT_NE(after.notes[0].find("another's"), std::string::npos) << after.notes[0];
  EXPECT_TRUE(same(plain, after));
}

TEST_F(Packs, AModelThatChangedInPlaceIsAnother) {
  const std::string path = model("llama:tiny", "Q4_0", 1), other = model("llama:tiny", "Q4_0", 2);
  const Start before = start(path, cache_);
  fs::copy_file(other, path, fs::copy_options::overwrite_existing);
  const Start after = start(path, cache_);
  EXPECT_FALSE(same(before, after));
  EXPECT_TRUE(same(start(other, ""), after));
  EXPECT_NE(before.fingerprint, after.fingerprint);
}

TEST_F(Packs, TwoPlacesOfOneContentShareAPack) {
  const std::string path = model("llama:tiny", "Q4_0", 1), copy = folder_ + "/copy.gguf";
  fs::copy_file(path, copy);
  start(path, cache_), start(copy, cache_);
  EXPECT_EQ(files(".pack").size(), 1u);
  EXPECT_EQ(files(".place").size(), 2u);
  EXPECT_TRUE(start(copy, cache_).notes.empty());
}

TEST_F(Packs, AFolderThatCannotBeWrittenIsSaid) {
  const std::string path = model("llama:tiny", "Q4_0", 1);
  put(folder_ + "/file", "");
  const Start s = start(path, folder_ + "/file/packs");
  ASSERT_EQ(s.notes.size(), 1u);
  EXPECT_TRUE(same(start(path, ""), s));
}

TEST_F(Packs, WhatAKilledProcessLeftIsRemoved) {
  const std::string path = model("llama:tiny", "Q4_0", 1);
  fs::create_directories(cache_);
  put(cache_ + "/x.place.2147483646.part", "no such process");
  const auto lives = NewFile::create(cache_ + "/x.place");
  ASSERT_TRUE(lives);
  put(cache_ + "/notes.part", "not ours");
  start(path, cache_);
  EXPECT_EQ(files(".part").size(), 2u);
}

}  // namespace
}  // namespace invar
