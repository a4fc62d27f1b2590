// The promise itself: one digest of all logits for a file and its tokens, whatever the threads, the chunk,
// the tier, the number of passes, and what the host program did to the floating-point environment.  Tiny
// random models of each architecture, each in nine formats.
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>
#include <xmmintrin.h>

#include "base/sha256.h"
#include "device/cpu/tiers.h"
#include "engine/model_runner.h"
#include "files/model_file.h"

namespace invar {
namespace {

constexpr int kTokens = 520;       // over two blocks of keys, and over a chunk of 512
constexpr int kScalarTokens = 40;  // the scalar tier is slow; rows are their own, so a prefix is enough

std::vector<Token> tokens(int n, int64_t vocab) {
  std::vector<Token> t;
  uint32_t x = 1;
  for (int i = 0; i < n; ++i) t.push_back(Token((x = x * 1664525 + 1013904223) % uint32_t(vocab)));
  return t;
}

struct Setting {
  int threads, chunk;
  std::string isa;
  bool flush_to_zero = false;
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.threads << " threads, chunk " << s.chunk << ", " << s.isa
             << (s.flush_to_zero ? ", host flushes to zero" : "");
}

// Digests of all logits, and of those of the first kScalarTokens.
struct Digests {
  std::string all, prefix;
};

Digests digests(const ModelFile& file, const Setting& s, int n) {
  unsigned before = _mm_getcsr();
  if (s.flush_to_zero) _mm_setcsr(before | 0x8040);
  RunnerOptions options;
  options.threads = s.threads;
  options.chunk = s.chunk;
  options.isa = s.isa;
  options.context = kTokens;
  auto engine = ModelRunner::open(file, options);
  Digests d;
  EXPECT_TRUE(engine) << engine.error().where << ": " << engine.error().message;
  if (engine) {
    auto sequence = (*engine)->new_sequence();
    Sha256 all, prefix;
    auto status = (*engine)->forward(*sequence, tokens(n, (*engine)->vocab()), ModelRunner::Rows::All,
                                     [&](int64_t position, std::span<const float> row) {
                                       all.update(std::as_bytes(row));
                                       if (position < kScalarTokens) prefix.update(std::as_bytes(row));
                                       return true;
                                     });
    EXPECT_TRUE(status);
    d = {hex(all.finish()), hex(prefix.finish())};
  }
  _mm_setcsr(before);
  return d;
}

class Invariance : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Invariance, OneDigest) {
  auto [shape, mix] = GetParam();
  auto path =
      std::filesystem::temp_directory_path() / ("invar-invariance-" + std::to_string(getpid()) + ".gguf");
  std::string make =
      std::string(INVAR_BINARY) + " synth " + shape + " --mix " + mix + " --seed 3 -q -o " + path.string();
  ASSERT_EQ(std::system(make.c_str()), 0) << make;
  auto file = ModelFile::open(path.string());
  ASSERT_TRUE(file) << file.error().message;
  const std::string widest = cpu::available_tiers().back()->tier;
  const Digests want = digests(*file, {2, 512, widest}, kTokens);
  std::vector<Setting> settings = {
      {1, kTokens, widest}, {3, 64, widest}, {4, 7, widest}, {2, 1, widest}, {2, 512, widest, true}};
  for (const cpu::KernelTable* t : cpu::available_tiers())
    if (std::string(t->tier) == "avx2")
      settings.insert(settings.end(), {{2, 512, "avx2"}, {1, 64, "avx2"}, {4, 7, "avx2", true}});
  for (const Setting& s : settings) EXPECT_EQ(digests(*file, s, kTokens).all, want.all) << s;
  for (const Setting& s : {Setting{2, 512, "scalar"}, Setting{3, 7, "scalar", true}, Setting{1, 1, "scalar"}})
    EXPECT_EQ(digests(*file, s, kScalarTokens).all, want.prefix) << s;
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Models, Invariance,
                         testing::Combine(testing::Values("qwen35:tiny", "qwen35moe:tiny", "llama:tiny"),
                                          testing::Values("F32", "BF16", "Q8_0", "Q2_K", "Q4_K", "Q5_K",
                                                          "Q6_K", "MXFP4", "NVFP4")),
                         [](const auto& p) {
                           std::string name = std::string(std::get<0>(p.param)) + "_" + std::get<1>(p.param);
                           for (char& c : name)
                             if (!isalnum(c)) c = '_';
                           return name;
                         });

// Several sequences in one pass: each gives the bits that it gives alone.
TEST(Batches, RowsAreTheirOwn) {
  auto file = ModelFile::open(INVAR_TEST_DATA "/vehicle-trial-q8_0.gguf");
  ASSERT_TRUE(file) << file.error().message;
  cpu::CpuDevice device(*cpu::available_tiers().back(), 2);
  const ModelDef* def = find_model(file->architecture());
  Loader plan(*file, device, true, KvFormat::F16);
  ASSERT_TRUE(def->load(plan));
  ASSERT_TRUE(device.settle(256 << 20));
  Loader loader(*file, device, false, KvFormat::F16);
  auto model = def->load(loader).take();
  ASSERT_TRUE(loader.finish());
  const std::vector<StateSpec> layout = loader.layout();
  auto pool =
      StatePool::make(layout, 64 * StatePool::page_bytes(layout) + 8 * StatePool::set_bytes(layout)).take();

  // The logits of the last row of each part of a sequence, the parts fed one after the other.
  using Row = std::vector<float>;
  auto run = [&](std::vector<std::vector<std::vector<Token>>> sequences) {
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<std::vector<Row>> rows(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) states.push_back(SequenceState::make(*pool));
    for (size_t part = 0; part < 3; ++part) {
      Batch batch;
      for (size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_TRUE(states[i]->reserve(int64_t(sequences[i][part].size())));
        batch.add(states[i].get(), states[i]->position(), sequences[i][part]);
        batch.logit_rows.push_back(int(batch.tokens.size()) - 1);
      }
      StepViews views;
      Step step(device, batch, views);
      device.begin_step();
      Tensor logits = model->logits(step, model->forward(step), batch.logit_rows);
      for (size_t i = 0; i < sequences.size(); ++i) {
        states[i]->commit(int64_t(sequences[i][part].size()));
        rows[i].emplace_back(logits.row(int64_t(i)), logits.row(int64_t(i)) + logits.cols);
      }
    }
    return rows;
  };
  std::vector<std::vector<std::vector<Token>>> mix;
  for (int i = 0; i < 5; ++i) {
    std::vector<std::vector<Token>> parts;
    for (int n : {3 + 40 * i, 1, 1 + i}) parts.push_back(tokens(n + i, model->vocab()));
    mix.push_back(parts);
  }
  auto together = run(mix);
  for (size_t i = 0; i < mix.size(); ++i) EXPECT_TRUE(run({mix[i]})[0] == together[i]) << "sequence " << i;
}

}  // namespace
}  // namespace invar
