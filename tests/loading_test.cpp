// What loading refuses: values that are not finite, tensors that are missing, unknown, misshaped or of an
// unsupported format, all named together; and a budget that is too small.  Then what loading takes at most.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <unistd.h>

#include "base/machine.h"
#include "engine/model_runner.h"
#include "files/gguf_writer.h"
#include "files/model_file.h"
#include "models/model.h"
#include "models/synth/synth.h"

namespace invar {
namespace {

using Edit = std::function<void(std::vector<NewTensor>&)>;
using Damage = std::function<void(const NewTensor&, std::vector<std::byte>&)>;

class Loading : public testing::Test {
 protected:
  Loading() { std::filesystem::create_directories(folder_); }
  ~Loading() override { std::filesystem::remove_all(folder_); }

  std::string tiny(const std::string& mix) {
    const std::string path = folder_ + "/" + mix + ".gguf";
    ThreadPool pool(2);
    const Shape* shape = find_shape("llama:tiny");
    EXPECT_TRUE(shape);
    EXPECT_TRUE(synthesize(*shape, path, {mix, 1, false}, pool, [](double) { return true; }));
    return path;
  }

  // A copy with other tensors, or other bytes in them; tensors that the source lacks are zeros.
  std::string changed(const std::string& source, const Edit& edit, const Damage& damage) {
    const std::string path = folder_ + "/changed.gguf";
    ModelFile from = ModelFile::open(source).take();
    std::vector<NewTensor> tensors;
    for (const TensorEntry& t : from.tensors()) tensors.push_back({t.name, find_ggml_type(t.type), t.shape});
    edit(tensors);
    Status written =
        write_gguf(path, from.keys(), tensors, [&](const NewTensor& t, const Emit& emit) -> Status {
          std::vector<std::byte> bytes(t.bytes());
          const TensorEntry* entry = from.find(t.name);
          if (entry && entry->bytes == bytes.size()) TRY(from.read(*entry, 0, bytes));
          damage(t, bytes);
          return emit(bytes);
        });
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }

  static Error refusal(const std::string& path, RunnerOptions options = {}) {
    ModelFile file = ModelFile::open(path).take();
    options.threads = 2;
    auto engine = ModelRunner::open(file, options);
    EXPECT_FALSE(engine);
    return engine ? Error{} : engine.error();
  }

  std::string folder_ = testing::TempDir() + "loading_test_" + std::to_string(getpid());
};

const Edit kSame = [](std::vector<NewTensor>&) {};

TEST_F(Loading, ValuesThatAreNotFiniteAreNamed) {
  struct Row {
    const char* mix;
    size_t scale;  // where an f16 scale stands in a block, or the first value
    std::vector<uint8_t> bad;
  };
  const Row rows[] = {{"F32", 0, {0, 0, 0xc0, 0x7f}}, {"F16", 0, {0, 0x7c}},  {"BF16", 0, {0x80, 0xff}},
                      {"Q4_0", 0, {1, 0x7c}},         {"Q4_1", 2, {0, 0xfc}}, {"Q5_0", 0, {0, 0x7c}},
                      {"Q5_1", 2, {0, 0x7e}},         {"Q8_0", 0, {0, 0x7c}}, {"Q2_K", 82, {0, 0x7c}},
                      {"Q3_K", 108, {0, 0x7c}},       {"Q4_K", 2, {0, 0x7c}}, {"Q5_K", 0, {0, 0x7c}},
                      {"Q6_K", 208, {0, 0xfe}},       {"MXFP4", 0, {0xff}},   {"NVFP4", 3, {0x7f}}};
  const std::string name = "blk.0.ffn_up.weight";
  for (const Row& row : rows) {
    const GgmlType* type = nullptr;
    int64_t cols = 0;
    auto damage = [&](const NewTensor& t, std::vector<std::byte>& bytes) {
      if (t.name != name) return;
      type = t.type;
      cols = t.shape.back();
      size_t row_bytes = bytes.size() / size_t(t.shape[0]),
             block = row_bytes / size_t(cols / type->block_values);
      std::memcpy(bytes.data() + 37 * row_bytes + (row_bytes / block > 1 ? block : 0) + row.scale,
                  row.bad.data(), row.bad.size());
    };
    Error error = refusal(changed(tiny(row.mix), kSame, damage));
    EXPECT_EQ(error.code, Code::BadFile) << row.mix;
    EXPECT_EQ(error.where, name) << row.mix;
    EXPECT_NE(error.message.find("row 37"), std::string::npos) << row.mix << ": " << error.message;
  }
}

TEST_F(Loading, ANormThatIsNotFiniteIsNamed) {
  auto damage = [](const NewTensor& t, std::vector<std::byte>& bytes) {
    float infinite = -INFINITY;
    if (t.name == "output_norm.weight") std::memcpy(bytes.data() + 4 * 5, &infinite, 4);
  };
  Error error = refusal(changed(tiny("F32"), kSame, damage));
  EXPECT_EQ(error.code, Code::BadFile);
  EXPECT_EQ(error.where, "output_norm.weight");
}

std::vector<std::string> places(const Error& error) {
  std::vector<std::string> all{error.where};
  for (const Error& e : error.more) all.push_back(e.where);
  std::sort(all.begin(), all.end());
  return all;
}

TEST_F(Loading, AllThatIsUnsupportedIsSaidAtOnce) {
  auto edit = [](std::vector<NewTensor>& tensors) {
    for (NewTensor& t : tensors) {
      if (t.name == "blk.0.attn_q.weight") t.type = find_ggml_type(34);    // TQ1_0
      if (t.name == "blk.0.ffn_down.weight") t.type = find_ggml_type(35);  // TQ2_0
    }
    tensors.push_back({"blk.0.mystery.weight", find_ggml_type(0), {8}});
  };
  Error error = refusal(changed(tiny("F32"), edit, [](auto&, auto&) {}));
  EXPECT_EQ(error.code, Code::Unsupported);
  EXPECT_EQ(places(error), (std::vector<std::string>{"blk.0.attn_q.weight", "blk.0.ffn_down.weight",
                                                     "blk.0.mystery.weight"}));
}

TEST_F(Loading, MissingAndMisshapedTensorsAreDamage) {
  auto edit = [](std::vector<NewTensor>& tensors) {
    std::erase_if(tensors, [](const NewTensor& t) { return t.name == "blk.0.attn_norm.weight"; });
    for (NewTensor& t : tensors)
      if (t.name == "blk.0.attn_k.weight") std::swap(t.shape[0], t.shape[1]);
    tensors.push_back({"blk.0.mystery.weight", find_ggml_type(0), {8}});
  };
  Error error = refusal(changed(tiny("F32"), edit, [](auto&, auto&) {}));
  EXPECT_EQ(error.code, Code::BadFile);
  EXPECT_EQ(places(error), (std::vector<std::string>{"blk.0.attn_k.weight", "blk.0.attn_norm.weight",
                                                     "blk.0.mystery.weight"}));
}

// Llama 3.1 and later divide the frequencies by factors of their own.
TEST_F(Loading, FactorsOfRotaryFrequencies) {
  const std::string plain = tiny("Q8_0");
  auto with = [&](std::vector<float> factors) {
    auto add = [&](std::vector<NewTensor>& tensors) {
      tensors.push_back({"rope_freqs.weight", find_ggml_type(kGgmlF32), {int64_t(factors.size())}});
    };
    return changed(plain, add, [&](const NewTensor& t, std::vector<std::byte>& bytes) {
      if (t.name == "rope_freqs.weight") std::memcpy(bytes.data(), factors.data(), bytes.size());
    });
  };
  auto logits = [](const std::string& path) {
    ModelFile file = ModelFile::open(path).take();
    RunnerOptions options;
    options.threads = 2;
    options.context = 64;
    auto runner = ModelRunner::open(file, options);
    EXPECT_TRUE(runner) << runner.error().message;
    std::vector<float> last;
    auto sequence = (*runner)->new_sequence();
    const std::vector<Token> tokens = {5, 17, 300, 4, 99};
    EXPECT_TRUE((*runner)->forward(*sequence, tokens, ModelRunner::Rows::Last, [&](int64_t, auto row) {
      last.assign(row.begin(), row.end());
      return true;
    }));
    return last;
  };
  const ModelFile file = ModelFile::open(plain).take();
  const auto dims = file.keys().integer(file.arch_key("rope.dimension_count"), 2).take();
  const std::vector<float> ones(size_t(dims / 2), 1), eights(size_t(dims / 2), 8);
  EXPECT_EQ(logits(with(ones)), logits(plain));
  EXPECT_NE(logits(with(eights)), logits(plain));
  for (float bad : {0.0f, 0.5f, -1.0f}) {  // an angle would grow beyond what a sine can be told of
    std::vector<float> factors = ones;
    factors[0] = bad;
    EXPECT_EQ(refusal(with(factors)).code, Code::BadFile) << bad;
  }
  EXPECT_EQ(refusal(with({1, 1})).code, Code::BadFile);
}

TEST_F(Loading, AContextOfAnySizeIsRefusedOrFits) {
  const std::string source = tiny("Q8_0"), path = folder_ + "/context.gguf";
  const ModelFile from = ModelFile::open(source).take();
  for (int64_t context :
       {kMaxContext, kMaxContext + 1, int64_t(1) << 40, std::numeric_limits<int64_t>::max()}) {
    Metadata keys = from.keys();
    Value value{ValueType::U64, false, 1, std::string(sizeof context, 0)};
    std::memcpy(value.bytes.data(), &context, sizeof context);
    keys.set(from.arch_key("context_length"), value);
    std::vector<NewTensor> tensors;
    for (const TensorEntry& t : from.tensors()) tensors.push_back({t.name, find_ggml_type(t.type), t.shape});
    ASSERT_TRUE(write_gguf(path, keys, tensors, [&](const NewTensor& t, const Emit& emit) -> Status {
      std::vector<std::byte> bytes(t.bytes());
      TRY(from.read(*from.find(t.name), 0, bytes));
      return emit(bytes);
    }));
    const ModelFile file = ModelFile::open(path).take();
    RunnerOptions options;
    options.threads = 4;
    options.sequences = 16;
    options.memory_bytes = 64 << 20;
    auto runner = ModelRunner::open(file, options);
    EXPECT_EQ(bool(runner), context <= kMaxContext) << context;
    if (runner) EXPECT_LT((*runner)->context(), context);
    else EXPECT_EQ(runner.error().code, Code::BadFile) << runner.error().message;
  }
}

// What does not fit is no reason to hold scratch for it.
TEST_F(Loading, ScratchIsOfTheContextThatFits) {
  const ModelFile file = ModelFile::open(tiny("Q8_0")).take();
  RunnerOptions options;
  options.threads = 16;
  options.context = 64;
  const int64_t least = ModelRunner::open(file, options).take()->memory().scratch_bytes;
  options.context = 0;
  const auto whole = ModelRunner::open(file, options).take();
  ASSERT_GT(whole->memory().scratch_bytes, least);
  options.memory_bytes = whole->memory().weights_bytes + least + whole->memory().state_bytes / 8;
  const auto some = ModelRunner::open(file, options).take();
  EXPECT_LT(some->memory().scratch_bytes, whole->memory().scratch_bytes);
  EXPECT_GE(some->context(), 64);
  EXPECT_LT(some->context(), whole->context());
  const RunnerMemory& m = some->memory();
  EXPECT_LE(m.weights_bytes + m.scratch_bytes + m.state_bytes, options.memory_bytes);
}

TEST_F(Loading, ABudgetIsKeptBeforeAnythingIsRead) {
  const std::string path = tiny("Q8_0");
  ModelFile file = ModelFile::open(path).take();
  RunnerOptions options;
  options.threads = 2;  // as refusal() has
  options.context = 128;
  auto roomy = ModelRunner::open(file, options);
  ASSERT_TRUE(roomy) << roomy.error().message;
  const RunnerMemory& m = (*roomy)->memory();
  const int64_t sum = m.weights_bytes + m.state_bytes + m.scratch_bytes;
  options.memory_bytes = sum;
  auto exact = ModelRunner::open(file, options);
  EXPECT_TRUE(exact) << exact.error().message;
  options.memory_bytes = sum - 1;
  Error error = refusal(path, options);
  EXPECT_EQ(error.code, Code::NoRoom);
  for (int64_t n : {sum, sum - 1, m.weights_bytes})
    EXPECT_NE(error.message.find(std::to_string(n)), std::string::npos) << error.message;
}

// The most that the process ever has: packed weights, state, scratch and 5 %.  With packed weights from a
// file as well, while that is written and when it is there.
TEST_F(Loading, NoSecondCopyOfTheWeights) {
  constexpr Shape kWide = {"llama", "wide", 4, 2048, 5632, 32, 8, 64, 2048, 4096, false};
  const std::string path = folder_ + "/wide.gguf";
  {
    ThreadPool pool(2);
    ASSERT_TRUE(synthesize(kWide, path, {"Q8_0", 1, false}, pool, [](double) { return true; }));
  }
  const ModelFile file = ModelFile::open(path).take();
  RunnerOptions options;
  options.threads = 2;
  options.chunk = 128;
  options.context = 256;
  for (const char* packs : {"", "written", "there"}) {
    if (*packs) options.pack_cache = folder_ + "/packs";
    const int64_t before = rss_bytes();
    ASSERT_TRUE(forget_peak_memory());
    auto runner = ModelRunner::open(file, options);
    ASSERT_TRUE(runner) << runner.error().message;
    const RunnerMemory& m = (*runner)->memory();
    const int64_t all = m.weights_bytes + m.state_bytes + m.scratch_bytes;
    ASSERT_GT(m.weights_bytes, 180 << 20);
    const int64_t loaded = peak_rss_bytes() - before;
    EXPECT_LE(loaded, all + m.weights_bytes / 20) << packs;
    auto sequence = (*runner)->new_sequence();
    const std::vector<Token> tokens(200, 1);
    ASSERT_TRUE(
        (*runner)->forward(*sequence, tokens, ModelRunner::Rows::Last, [](auto, auto) { return true; }));
    const int64_t ran = peak_rss_bytes() - before;
    EXPECT_LE(ran, all + m.weights_bytes / 20) << packs;
    EXPECT_GE(ran, m.weights_bytes * 95 / 100) << "all of them are in memory now";
    std::printf(
        "%s: weights %.1f MiB, state %.1f, scratch %.1f; peak after loading %.1f, after a pass %.1f\n",
        *packs ? packs : "no packs", double(m.weights_bytes) / 0x1p20, double(m.state_bytes) / 0x1p20,
        double(m.scratch_bytes) / 0x1p20, double(loaded) / 0x1p20, double(ran) / 0x1p20);
  }
}

TEST_F(Loading, WithoutAContextTheBudgetDecidesIt) {
  const std::string path = tiny("Q8_0");
  ModelFile file = ModelFile::open(path).take();
  RunnerOptions options;
  options.threads = 1;
  auto all = ModelRunner::open(file, options);
  ASSERT_TRUE(all) << all.error().message;
  options.memory_bytes =
      (*all)->memory().weights_bytes + (*all)->memory().scratch_bytes + (*all)->memory().state_bytes / 2;
  auto half = ModelRunner::open(file, options);
  ASSERT_TRUE(half) << half.error().message;
  EXPECT_LT((*half)->context(), (*all)->context());
  EXPECT_GT((*half)->context(), (*all)->context() / 4);
  EXPECT_LE((*half)->memory().weights_bytes + (*half)->memory().scratch_bytes + (*half)->memory().state_bytes,
            options.memory_bytes);
}

}  // namespace
}  // namespace invar
