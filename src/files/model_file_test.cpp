#include "files/model_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "files/fingerprint.h"
#include "files/gguf_bytes.h"
#include "files/roles.h"

namespace invar {
namespace {

class ModelFileTest : public testing::Test {
 protected:
  ~ModelFileTest() override { std::filesystem::remove(path_); }

  Result<ModelFile> open(const GgufBytes& file) const {
    std::ofstream(path_, std::ios::binary) << file.bytes();
    return ModelFile::open(path_);
  }
  std::string print(const GgufBytes& file) const { return *fingerprint_of(*open(file)); }

  std::string path_ = testing::TempDir() + "model_file_test" + std::to_string(getpid()) + ".gguf";
};

TEST_F(ModelFileTest, EntriesAndReads) {
  const Result<ModelFile> model = open(sound_gguf());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->architecture(), "llama");
  EXPECT_FALSE(model->is_folder());
  const TensorEntry* q = model->find("blk.0.attn_q.weight");
  ASSERT_TRUE(q);
  EXPECT_EQ(q->shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(q->rows, 2);
  EXPECT_EQ(q->cols, 32);
  EXPECT_EQ(q->row_bytes, 34u);
  EXPECT_EQ(q->bytes, 68u);
  EXPECT_EQ(q->layer, 0);
  EXPECT_STREQ(q->format, "Q8_0");
  std::byte out[2];
  ASSERT_TRUE(model->read(*q, 66, out));
  EXPECT_EQ(out[1], std::byte{2});
  EXPECT_FALSE(model->find("absent"));
}

TEST_F(ModelFileTest, AnExpertStackIsRowsUponRows) {
  GgufBytes file = sound_gguf();
  file.tensors[0] = {"blk.3.ffn_up_exps.weight", {4, 2, 3}, 0, std::string(96, '\0')};
  const Result<ModelFile> model = open(file);
  ASSERT_TRUE(model);
  const TensorEntry& stack = model->tensors()[0];
  EXPECT_EQ(stack.shape, (std::vector<int64_t>{3, 2, 4}));
  EXPECT_EQ(stack.rows, 6);
  EXPECT_EQ(stack.cols, 4);
}

TEST_F(ModelFileTest, TheArchitectureIsRequired) {
  GgufBytes file = sound_gguf();
  file.keys.erase(file.keys.begin());
  Result<ModelFile> model = open(file);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().where, "general.architecture");
  file.keys.push_back({"general.architecture", u32_value(7)});
  model = open(file);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().where, "general.architecture");
}

TEST_F(ModelFileTest, TheFingerprintSeesWhatTheForwardPassReads) {
  const std::string plain = print(sound_gguf());
  EXPECT_EQ(plain.size(), 64u);

  GgufBytes same = sound_gguf();
  std::swap(same.keys[0], same.keys[1]);
  std::swap(same.tensors[0], same.tensors[2]);
  same.keys.push_back({"general.name", text_value("another name")});
  EXPECT_EQ(print(same), plain) << "order and other keys do not matter";

  const auto differs = [&](const char* what, auto edit) {
    GgufBytes other = sound_gguf();
    edit(other);
    EXPECT_NE(print(other), plain) << what;
  };
  differs("a byte", [](GgufBytes& f) { f.tensors[1].data[67] ^= 1; });
  differs("a name", [](GgufBytes& f) { f.tensors[1].name = "blk.0.attn_k.weight"; });
  differs("a shape", [](GgufBytes& f) { f.tensors[0].ne = {2, 4}; });
  differs("a format", [](GgufBytes& f) {
    f.tensors[0] = {"token_embd.weight", {16}, 1, std::string(32, '\1')};
  });
  differs("a key of the architecture", [](GgufBytes& f) { f.keys[1].second = u32_value(2); });
  differs("one more such key", [](GgufBytes& f) { f.keys.push_back({"llama.x", u32_value(0)}); });
}

TEST(LayerOf, OnlyBlocks) {
  EXPECT_EQ(layer_of("blk.0.attn_q.weight"), 0);
  EXPECT_EQ(layer_of("blk.63.ssm_a"), 63);
  for (const char* name :
       {"token_embd.weight", "blk.", "blk..x", "blk.1", "blk.1x.y", "blk.99999999.x", "v.blk.1.x"})
    EXPECT_EQ(layer_of(name), -1) << name;
}

TEST(RoleOf, KindsOfTensors) {
  struct Row {
    const char *arch, *name, *role;
  };
  for (const Row& row : {Row{"llama", "token_embd.weight", "embedding"},
                         {"llama", "output.weight", "output"},
                         {"llama", "output_norm.weight", "norm"},
                         {"llama", "rope_freqs.weight", "rope"},
                         {"qwen2", "blk.12.attn_q.bias", "attention"},
                         {"qwen3", "blk.1.attn_q_norm.weight", "norm"},
                         {"phi3", "blk.1.attn_qkv.weight", "attention"},
                         {"qwen35", "blk.1.attn_qkv.weight", "recurrent"},
                         {"qwen35", "blk.1.attn_gate.weight", "recurrent"},
                         {"qwen35", "blk.1.ssm_a", "recurrent"},
                         {"qwen35", "blk.1.ssm_norm.weight", "norm"},
                         {"qwen35", "blk.1.ffn_down.weight", "mlp"},
                         {"qwen35moe", "blk.1.ffn_gate_inp.weight", "router"},
                         {"qwen35moe", "blk.1.ffn_gate_inp_shexp.weight", "router"},
                         {"qwen35moe", "blk.1.ffn_up_exps.weight", "expert"},
                         {"qwen35moe", "blk.1.ffn_up_shexp.weight", "shared expert"},
                         {"qwen35", "blk.8.nextn.hnorm.weight", "mtp"},
                         {"qwen35", "mystery", "other"}})
    EXPECT_STREQ(role_of(row.arch, row.name), row.role) << row.name;
}

}  // namespace
}  // namespace invar
