#include "files/gguf_split.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "files/fingerprint.h"
#include "files/gguf_bytes.h"
#include "files/model_file.h"

namespace invar {
namespace {

std::string u16_value(uint16_t value) { return typed(ValueType::U16, le(value)); }
std::string i32_value(int32_t value) { return typed(ValueType::I32, le(value)); }

class GgufSplit : public testing::Test {
 protected:
  GgufSplit() {
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < 2; ++i) {
      parts_[i] = sound_gguf();
      if (i == 1) parts_[i].keys.clear();
      parts_[i].tensors.erase(parts_[i].tensors.begin() + (i == 0 ? 2 : 0),
                              parts_[i].tensors.begin() + (i == 0 ? 3 : 2));
      parts_[i].keys.push_back({"split.no", u16_value(uint16_t(i))});
      parts_[i].keys.push_back({"split.count", u16_value(2)});
      parts_[i].keys.push_back({"split.tensors.count", i32_value(3)});
    }
  }
  ~GgufSplit() override { std::filesystem::remove_all(folder_); }

  std::string path(int part) const { return folder_ + "/m-0000" + std::to_string(part) + "-of-00002.gguf"; }

  void lay() const {
    for (int i = 0; i < 2; ++i) std::ofstream(path(i + 1), std::ios::binary) << parts_[i].bytes();
  }

  Error refused() const {
    lay();
    Result<ModelFile> model = ModelFile::open(path(1));
    EXPECT_FALSE(model);
    return model ? Error{} : model.error();
  }

  void set(const std::string& key, const std::string& value) {
    for (auto& [name, bytes] : parts_[1].keys)
      if (name == key) bytes = value;
  }

  std::string folder_ = testing::TempDir() + "gguf_split_test" + std::to_string(getpid());
  GgufBytes parts_[2];
};

TEST_F(GgufSplit, AnyPartOpensTheWhole) {
  lay();
  const std::string whole = folder_ + "/whole.gguf";
  std::ofstream(whole, std::ios::binary) << sound_gguf().bytes();
  std::string prints[3];
  int i = 0;
  for (const std::string& given : {path(1), path(2), whole}) {
    const Result<ModelFile> model = ModelFile::open(given);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->tensors().size(), 3u);
    EXPECT_EQ(model->architecture(), "llama");
    std::byte last[12];
    ASSERT_TRUE(model->read(*model->find("output_norm.weight"), 0, last));
    EXPECT_EQ(last[11], std::byte{3});
    prints[i++] = *fingerprint_of(*model);
  }
  EXPECT_EQ(prints[0], prints[1]);
  EXPECT_EQ(prints[0], prints[2]);
}

TEST_F(GgufSplit, AMissingPartIsNamed) {
  lay();
  std::filesystem::remove(path(2));
  const Result<ModelFile> model = ModelFile::open(path(1));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, Code::NotFound);
  EXPECT_EQ(model.error().where, path(2));
}

TEST_F(GgufSplit, PartsMustAgree) {
  struct Row {
    const char* key;
    std::string value;
  };
  for (const Row& row : {Row{"split.no", u16_value(0)},
                         {"split.count", u16_value(3)},
                         {"split.tensors.count", i32_value(9)},
                         {"split.no", text_value("1")}}) {
    const GgufBytes sound = parts_[1];
    set(row.key, row.value);
    const Error error = refused();
    EXPECT_EQ(error.where, row.key);
    EXPECT_NE(error.message.find(path(2)), std::string::npos) << error.message;
    parts_[1] = sound;
  }
  parts_[1].keys.clear();
  EXPECT_NE(refused().message.find(path(2)), std::string::npos) << "a part without split keys";
}

TEST_F(GgufSplit, TheUnionMustBeWhole) {
  parts_[1].tensors[0].name = "token_embd.weight";
  EXPECT_EQ(refused().where, "token_embd.weight");
  parts_[1].tensors.clear();
  EXPECT_EQ(refused().where, "split.tensors.count");
}

TEST_F(GgufSplit, TheNameMustFitTheCount) {
  std::ofstream(folder_ + "/other.gguf", std::ios::binary) << parts_[0].bytes();
  const Result<ModelFile> model = ModelFile::open(folder_ + "/other.gguf");
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("-00001-of-00002.gguf"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace invar
