#include "files/gguf_writer.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "files/fingerprint.h"
#include "files/gguf_bytes.h"
#include "files/model_file.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

class GgufWriter : public testing::Test {
 protected:
  GgufWriter() { fs::create_directories(folder_); }
  ~GgufWriter() override { fs::remove_all(folder_); }

  // Everything of a file into a new one.
  static Status copy(const ModelFile& from, const std::string& path) {
    std::vector<NewTensor> tensors;
    for (const TensorEntry& tensor : from.tensors())
      tensors.push_back({tensor.name, find_ggml_type(tensor.type), tensor.shape});
    return write_gguf(path, from.keys(), tensors, [&](const NewTensor& tensor, const Emit& emit) -> Status {
      std::vector<std::byte> bytes(tensor.bytes());
      TRY(from.read(*from.find(tensor.name), 0, bytes));
      const size_t half = bytes.size() / 2;
      TRY(emit(std::span(bytes).first(half)));
      return emit(std::span(bytes).subspan(half));
    });
  }

  std::string folder_ = testing::TempDir() + "gguf_writer_test" + std::to_string(getpid()),
              path_ = folder_ + "/new.gguf";
};

TEST_F(GgufWriter, ACopyOfACanonicalFileIsTheSameFile) {
  GgufBytes file = sound_gguf();
  std::swap(file.tensors[1], file.tensors[2]);  // the layers last
  const std::string source = folder_ + "/source.gguf", bytes = file.bytes();
  std::ofstream(source, std::ios::binary) << bytes;
  const Result<ModelFile> model = ModelFile::open(source);
  ASSERT_TRUE(model) << model.error().message;
  const Status written = copy(*model, path_);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(*read_file(path_, 1 << 20), bytes);
}

TEST_F(GgufWriter, WritesCanonically) {
  GgufBytes file = sound_gguf();
  file.alignment = 64;
  file.keys.push_back({"general.alignment", u32_value(64)});
  const std::string source = folder_ + "/source.gguf";
  std::ofstream(source, std::ios::binary) << file.bytes();
  const Result<ModelFile> before = ModelFile::open(source);
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_TRUE(copy(*before, path_));

  const Result<ModelFile> after = ModelFile::open(path_);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_FALSE(after->keys().has("general.alignment"));
  std::vector<std::string> names;
  for (const TensorEntry& tensor : after->tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"}));
  EXPECT_EQ(*fingerprint_of(*before), *fingerprint_of(*after));
}

TEST_F(GgufWriter, HeaderAlone) {
  Metadata keys;
  ASSERT_TRUE(keys.add("general.architecture", Value::text("llama")));
  ASSERT_TRUE(write_gguf_header(path_, keys, {{"a", find_ggml_type("Q4_K"), {1 << 20, 1 << 20}}}));
  EXPECT_LT(fs::file_size(path_), 1000u);
  EXPECT_FALSE(ModelFile::open(path_));
  const Result<ModelFile> model = ModelFile::open(path_, Need::Header);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->has_data());
  const TensorEntry& tensor = model->tensors()[0];
  EXPECT_EQ(tensor.bytes, (uint64_t{1} << 40) / 256 * 144);
  std::byte byte;
  const Status read = model->read(tensor, 0, {&byte, 1});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().where, "a");
}

TEST_F(GgufWriter, AFailedCopyLeavesNothing) {
  const std::vector<NewTensor> tensors = {{"a", find_ggml_type("F32"), {4}}};
  const Status written = write_gguf(path_, Metadata(), tensors, [](const NewTensor&, const Emit&) -> Status {
    return Error{Code::Io, "source", "gone"};
  });
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().where, "source");
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace invar
