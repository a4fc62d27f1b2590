#include "models/synth/synth.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "base/file.h"
#include "files/model_file.h"

namespace invar {
namespace {

std::string scratch_path(const std::string& name) {
  return testing::TempDir() + "synth-" + std::to_string(getpid()) + "-" + name;
}

std::string written(const std::string& shape, const SynthOptions& options, int threads) {
  const std::string path = scratch_path("model.gguf");
  ThreadPool pool(threads);
  auto done = synthesize(*find_shape(shape), path, options, pool, [](double) { return true; });
  EXPECT_TRUE(done) << done.error().message;
  auto bytes = read_file(path, 1 << 28);
  std::filesystem::remove(path);
  return bytes ? bytes.take() : "";
}

std::string format_in(const std::string& shape, const std::string& mix, const std::string& tensor) {
  auto tensors = mixed_tensors(*find_shape(shape), mix);
  EXPECT_TRUE(tensors) << tensors.error().message;
  for (const NewTensor& t : *tensors)
    if (t.name == tensor) return t.type->name;
  return "absent";
}

// Tensors and parameters as published, the draft block included.
TEST(Synth, ShapesHaveThePublishedSizes) {
  struct Case {
    const char* shape;
    size_t tensors;
    double giga_parameters;
  } cases[] = {{"qwen35:0.8B", 335, 0.752 + 0.0205}, {"qwen35:2B", 335, 1.882 + 0.0608},
               {"qwen35:4B", 441, 4.206 + 0.1206},   {"qwen35:9B", 442, 8.954 + 0.2433},
               {"qwen35:27B", 866, 26.896 + 0.4247}, {"llama:135M", 272, 0.1345}};
  for (const Case& c : cases) {
    const auto tensors = tensors_of(*find_shape(c.shape));
    double parameters = 0;
    for (const ShapeTensor& t : tensors) {
      double n = 1;
      for (int64_t d : t.shape) n *= double(d);
      parameters += n;
    }
    EXPECT_EQ(tensors.size(), c.tensors) << c.shape;
    EXPECT_NEAR(parameters / 1e9, c.giga_parameters, 0.001) << c.shape;
  }
}

TEST(Synth, TinyRowsFitEveryFormat) {
  for (const Shape& s : all_shapes()) {
    if (std::string(s.size) != "tiny") continue;
    EXPECT_EQ(s.value_heads, 3 * s.key_heads);  // 0 where there is no recurrence
    for (const std::string& mix : mix_names()) EXPECT_TRUE(mixed_tensors(s, mix)) << s.name() << " " << mix;
  }
}

TEST(Synth, MixFollowsTheTable) {
  struct Case {
    const char *shape, *tensor, *format;
  } cases[] = {
      {"qwen35:27B", "token_embd.weight", "Q4_K"},
      {"qwen35:27B", "output.weight", "Q6_K"},
      {"qwen35:4B", "token_embd.weight", "Q6_K"},
      {"qwen35:4B", "blk.0.ssm_alpha.weight", "F32"},
      {"qwen35:4B", "blk.0.ssm_conv1d.weight", "F32"},
      {"qwen35:4B", "blk.0.attn_gate.weight", "Q4_K"},
      {"qwen35:4B", "blk.32.nextn.eh_proj.weight", "Q4_K"},
      // 33 blocks: an eighth is 4, and seven eighths are 28.
      {"qwen35:4B", "blk.3.ffn_down.weight", "Q6_K"},
      {"qwen35:4B", "blk.4.ffn_down.weight", "Q4_K"},
      {"qwen35:4B", "blk.5.attn_qkv.weight", "Q4_K"},
      {"qwen35:4B", "blk.6.attn_qkv.weight", "Q6_K"},
      {"qwen35:4B", "blk.27.ffn_down.weight", "Q6_K"},
      {"qwen35:4B", "blk.28.attn_qkv.weight", "Q6_K"},
      {"qwen35:4B", "blk.26.ffn_down.weight", "Q4_K"},
      {"qwen35:4B", "blk.32.attn_v.weight", "Q6_K"},
      {"qwen35:4B", "blk.7.attn_v.weight", "Q4_K"},
      {"qwen35moe:35B-A3B", "blk.0.ffn_down_exps.weight", "Q6_K"},
      {"qwen35moe:35B-A3B", "blk.0.ffn_gate_inp.weight", "F32"},
      {"llama:135M", "token_embd.weight", "Q8_0"},
      {"llama:135M", "blk.0.attn_q.weight", "Q5_0"},
      {"llama:135M", "blk.0.ffn_down.weight", "Q6_K"},
      {"llama:135M", "blk.0.attn_v.weight", "Q8_0"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(format_in(c.shape, "Q4_K_M", c.tensor), c.format) << c.shape << " " << c.tensor;
  EXPECT_EQ(format_in("qwen35:tiny", "Q8_0", "blk.0.ssm_alpha.weight"), "Q8_0");
  auto odd = mixed_tensors(*find_shape("llama:135M"), "Q4_K");
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message.find("576"), std::string::npos);
  EXPECT_FALSE(mixed_tensors(*find_shape("llama:135M"), "Q9"));
}

TEST(Synth, TheSeedAloneDecidesTheBytes) {
  for (const char* shape : {"qwen35:tiny", "qwen2:tiny"}) {
    const std::string one = written(shape, {"Q4_K_M", 7, false}, 1);
    EXPECT_GT(one.size(), 100000u);
    EXPECT_EQ(one, written(shape, {"Q4_K_M", 7, false}, 3));
    EXPECT_NE(one, written(shape, {"Q4_K_M", 8, false}, 1));
  }
}

TEST(Synth, RowsOfALargeTensorDiffer) {
  constexpr Shape kLarge{"llama", "large", 1, 576, 256, 4, 2, 64, 49152, 128, true};
  const std::string path = scratch_path("large.gguf");
  ThreadPool pool(2);
  ASSERT_TRUE(synthesize(kLarge, path, {"Q4_0", 1, false}, pool, [](double) { return true; }));
  auto file = ModelFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(file);
  const TensorEntry* table = file->find("token_embd.weight");
  ASSERT_TRUE(table && table->rows == 49152);
  std::string bytes(table->bytes, '\0');
  ASSERT_TRUE(file->read(*table, 0, std::as_writable_bytes(std::span(bytes))));
  std::set<std::string_view> rows;
  for (int64_t r = 0; r < table->rows; ++r)
    rows.insert(std::string_view(bytes).substr(size_t(r) * table->row_bytes, table->row_bytes));
  EXPECT_EQ(rows.size(), size_t(table->rows));
}

TEST(Synth, PiecesAreUniqueAndHaveTheFamilysNumbers) {
  const std::string path = scratch_path("header.gguf");
  ThreadPool pool(1);
  ASSERT_TRUE(synthesize(*find_shape("qwen35:27B"), path, {"Q4_K_M", 0, true}, pool, {}));
  EXPECT_FALSE(ModelFile::open(path));
  auto file = ModelFile::open(path, Need::Header);
  EXPECT_LT(std::filesystem::file_size(path), 64u << 20);
  std::filesystem::remove(path);
  ASSERT_TRUE(file);
  auto pieces = file->keys().texts("tokenizer.ggml.tokens").take();
  EXPECT_EQ(std::set(pieces.begin(), pieces.end()).size(), 248320u);
  EXPECT_EQ(pieces[0], "!");
  EXPECT_EQ(pieces[198], "\xC4\x8A");  // the line end, as in the family's own vocabulary
  EXPECT_EQ(pieces[248046], "<|im_end|>");
  EXPECT_EQ(pieces[248069], "</think>");
  EXPECT_EQ(pieces[248076], "<|audio_pad|>");
}

TEST(Synth, AnInterruptLeavesNoFile) {
  const std::string folder = scratch_path("folder");
  std::filesystem::create_directory(folder);
  ThreadPool pool(1);
  int heard = 0;
  auto done = synthesize(*find_shape("llama:tiny"), folder + "/x.gguf", {}, pool,
                         [&](double) { return ++heard < 5; });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace invar
