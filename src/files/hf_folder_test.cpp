#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "files/fingerprint.h"
#include "files/hf_names.h"
#include "files/json_text.h"
#include "files/model_file.h"

namespace invar {
namespace {

using nlohmann::json;

const std::string kData = std::string(INVAR_TEST_DATA) + "/gguf_from_hf/";

struct Pair {
  const char *folder, *gguf;
};
constexpr Pair kPairs[] = {{"qwen35", "qwen35.gguf"},
                           {"qwen35moe", "qwen35moe.gguf"},
                           {"qwen35moe_unfused", "qwen35moe.gguf"},
                           {"llama", "llama.gguf"}};

std::vector<std::byte> all_of(const ModelFile& model, const TensorEntry& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  EXPECT_TRUE(model.read(tensor, 0, bytes));
  return bytes;
}

// The folder gives, bit by bit, what a converter wrote (tests/data/gguf_from_hf/README.md).
TEST(HfFolder, EqualsTheConvertedFile) {
  for (const Pair& pair : kPairs) {
    const Result<ModelFile> folder = ModelFile::open(kData + pair.folder),
                            gguf = ModelFile::open(kData + pair.gguf);
    ASSERT_TRUE(folder) << folder.error().where << ": " << folder.error().message;
    ASSERT_TRUE(gguf) << gguf.error().message;
    EXPECT_EQ(folder->tensors().size(), gguf->tensors().size()) << pair.folder;
    for (const TensorEntry& expected : gguf->tensors()) {
      const TensorEntry* found = folder->find(expected.name);
      ASSERT_TRUE(found) << pair.folder << " " << expected.name;
      EXPECT_EQ(found->shape, expected.shape) << pair.folder << " " << expected.name;
      EXPECT_STREQ(found->format, expected.format) << pair.folder << " " << expected.name;
      EXPECT_TRUE(all_of(*folder, *found) == all_of(*gguf, expected)) << pair.folder << " " << expected.name;
    }
    for (const Metadata::Entry& entry : gguf->keys().entries()) {
      const Value* found = folder->keys().find(entry.key);
      EXPECT_TRUE(found && *found == entry.value) << pair.folder << " " << entry.key;
    }
    EXPECT_EQ(*fingerprint_of(*folder), *fingerprint_of(*gguf)) << pair.folder;
  }
}

TEST(HfFolder, AnyRangeOfATensorCanBeRead) {
  for (const Pair& pair : kPairs) {
    const Result<ModelFile> model = ModelFile::open(kData + pair.folder);
    ASSERT_TRUE(model);
    for (const TensorEntry& tensor : model->tensors()) {
      const std::vector<std::byte> whole = all_of(*model, tensor);
      for (const size_t step : {1, 7, 50}) {
        std::vector<std::byte> pieces(whole.size());
        for (size_t at = 0; at < whole.size(); at += step)
          ASSERT_TRUE(
              model->read(tensor, at, std::span(pieces).subspan(at, std::min(step, whole.size() - at))));
        EXPECT_TRUE(pieces == whole) << tensor.name << " in steps of " << step;
      }
    }
  }
}

TEST(HfFolder, PlacesOfNames) {
  struct Row {
    const char* name;
    Family family;
    HfPlace::Kind kind;
    const char* gguf;
    int layer, expert;
  };
  for (const Row& row : {
           Row{"model.language_model.layers.12.mlp.up_proj.weight", kQwen35, HfPlace::Layer, "ffn_up.weight",
               12, -1},
           {"model.layers.0.mlp.experts.31.up_proj.weight", kQwen35Moe, HfPlace::Layer, "ffn_up_exps.weight",
            0, 31},
           {"mtp.layers.0.self_attn.q_norm.weight", kQwen35, HfPlace::Mtp, "attn_q_norm.weight", 0, -1},
           {"model.mtp.fc.weight", kQwen35, HfPlace::Mtp, "nextn.eh_proj.weight", 0, -1},
           {"model.visual.blocks.0.norm1.weight", kQwen35, HfPlace::Skipped, nullptr, -1, -1},
           {"model.layers.3.self_attn.rotary_emb.inv_freq", kLlama, HfPlace::Skipped, nullptr, -1, -1},
           {"model.layers.3.linear_attn.A_log", kLlama, HfPlace::Unknown, nullptr, 3, -1},
           {"model.layers.03.mlp.up_proj.weight", kLlama, HfPlace::Unknown, nullptr, -1, -1},
           {"model.layers.99999999.mlp.up_proj.weight", kLlama, HfPlace::Unknown, nullptr, -1, -1},
           {"model.layers.0.mlp.experts.up_proj.weight", kQwen35Moe, HfPlace::Unknown, nullptr, 0, -1},
           {"mtp.fc.weight", kLlama, HfPlace::Unknown, nullptr, 0, -1},
       }) {
    const HfPlace place = place_hf_tensor(row.name, row.family);
    EXPECT_EQ(place.kind, row.kind) << row.name;
    EXPECT_EQ(place.layer, row.layer) << row.name;
    EXPECT_EQ(place.expert, row.expert) << row.name;
    if (row.gguf) {
      ASSERT_TRUE(place.rule) << row.name;
      EXPECT_STREQ(place.rule->gguf, row.gguf);
    }
  }
}

// A copy of a data folder whose files can be changed.
class HfFolderCopy : public testing::Test {
 protected:
  void copy(const char* name) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(kData + name, folder_);
  }
  ~HfFolderCopy() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  json config() const { return *read_json(folder_ + "/config.json", 1 << 20); }

  std::string folder_ = testing::TempDir() + "hf_folder_test" + std::to_string(getpid());
};

TEST_F(HfFolderCopy, FaultsOfTheConfigAreNamed) {
  struct Row {
    const char *change, *where;
    Code code;
  };
  for (const Row& row : {
           Row{R"({"architectures":["FrobForCausalLM"]})", "architectures", Code::Unsupported},
           {R"({"architectures":[]})", "architectures", Code::BadFile},
           {R"({"num_hidden_layers":0})", "num_hidden_layers", Code::BadFile},
           {R"({"num_attention_heads":"2"})", "num_attention_heads", Code::BadFile},
           {R"({"num_attention_heads":0})", "num_attention_heads", Code::BadFile},
           {R"({"num_attention_heads":3})", "model.layers.0.self_attn.k_proj.weight", Code::BadFile},
           {R"({"num_attention_heads":13,"head_dim":null})", "num_attention_heads", Code::BadFile},
           {R"({"head_dim":4294967296})", "head_dim", Code::BadFile},
           {R"({"hidden_size":-1})", "hidden_size", Code::BadFile},
           {R"({"hidden_size":null})", "hidden_size", Code::BadFile},
           {R"({"rms_norm_eps":1e999})", "", Code::BadFile},
           {R"({"rms_norm_eps":1e99})", "rms_norm_eps", Code::BadFile},
           {R"({"hidden_act":"gelu"})", "hidden_act", Code::Unsupported},
           {R"({"quantization_config":{}})", "quantization_config", Code::Unsupported},
           {R"({"rope_scaling":{"rope_type":"llama3"}})", "factor", Code::BadFile},
           {R"({"eos_token_id":[-1]})", "eos_token_id", Code::BadFile},
       }) {
    copy("llama");
    json changed = config();
    const json change = json::parse(row.change, nullptr, false);
    if (change.is_discarded())  // not even a number
      write("config.json", row.change);
    else changed.update(change), write("config.json", changed.dump());
    const Result<ModelFile> model = ModelFile::open(folder_);
    ASSERT_FALSE(model) << row.change;
    EXPECT_EQ(model.error().code, row.code) << row.change << ": " << model.error().message;
    EXPECT_TRUE(!*row.where || model.error().where == row.where)
        << model.error().where << ": " << model.error().message;
  }
}

TEST_F(HfFolderCopy, RopeScalingAndWindow) {
  copy("llama");
  json changed = config();
  changed["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  changed["sliding_window"] = 4096;
  write("config.json", changed.dump());
  const Result<ModelFile> model = ModelFile::open(folder_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(*model->keys().text("llama.rope.scaling.type"), "linear");
  EXPECT_EQ(*model->keys().real("llama.rope.scaling.factor"), 4.0);
  EXPECT_EQ(*model->keys().integer("llama.attention.sliding_window"), 4096);
  EXPECT_FALSE(model->find("rope_freqs.weight"));
}

TEST_F(HfFolderCopy, TextFiles) {
  copy("qwen35");
  write("tokenizer.json", "{}");
  write("generation_config.json",
        R"({"eos_token_id":[7,8],"do_sample":true,"temperature":0.5,"top_k":20,"top_p":null,"min_p":0})");
  write("tokenizer_config.json",
        R"({"bos_token":null,"eos_token":{"content":"<end>"},"add_bos_token":false,)"
        R"("chat_template":[{"name":"tool","template":"t"},{"name":"default","template":"from config"}]})");
  Result<ModelFile> model = ModelFile::open(folder_);
  ASSERT_TRUE(model) << model.error().message;
  const FolderText& text = model->folder_text();
  EXPECT_EQ(text.tokenizer_path, folder_ + "/tokenizer.json");
  EXPECT_EQ(text.eos_token, "<end>");
  EXPECT_EQ(text.bos_token, "");
  EXPECT_EQ(text.eos_ids, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(*model->keys().text("tokenizer.chat_template"), "from config");
  EXPECT_EQ(*model->keys().real("general.sampling.temp"), 0.5);
  EXPECT_EQ(*model->keys().integer("general.sampling.top_k"), 20);
  EXPECT_EQ(*model->keys().real("general.sampling.min_p"), 0.0);
  EXPECT_FALSE(model->keys().has("general.sampling.top_p"));

  write("chat_template.jinja", "from file");
  model = ModelFile::open(folder_);
  ASSERT_TRUE(model);
  EXPECT_EQ(*model->keys().text("tokenizer.chat_template"), "from file");
}

TEST_F(HfFolderCopy, LayerTypesThatFollowNoInterval) {
  copy("qwen35");
  json changed = config();
  changed["text_config"]["layer_types"] = {"full_attention", "linear_attention"};
  write("config.json", changed.dump());
  const Result<ModelFile> model = ModelFile::open(folder_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(*model->keys().booleans("qwen35.attention.recurrent_layers"),
            (std::vector<bool>{false, true, false}));
}

TEST_F(HfFolderCopy, MissingAndSurplusTensors) {
  copy("qwen35moe_unfused");
  json changed = config();
  changed["num_experts"] = 4;
  write("config.json", changed.dump());
  Result<ModelFile> model = ModelFile::open(folder_);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("expected experts 0 to 3"), std::string::npos)
      << model.error().message;

  copy("llama");
  changed = config();
  changed["tie_word_embeddings"] = true;
  changed["architectures"] = {"Qwen3ForCausalLM"};
  write("config.json", changed.dump());
  model = ModelFile::open(folder_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->find("output.weight")) << "tied: the embedding is used";

  copy("qwen35");
  changed = config();
  changed["text_config"]["num_hidden_layers"] = 1;
  changed["text_config"].erase("layer_types");
  write("config.json", changed.dump());
  model = ModelFile::open(folder_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->find("model.language_model.layers.1.self_attn.q_proj.weight"))
      << "kept under its own name";
}

}  // namespace
}  // namespace invar
