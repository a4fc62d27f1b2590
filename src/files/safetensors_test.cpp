#include "files/safetensors.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "files/gguf_bytes.h"

namespace invar {
namespace {

Result<std::vector<SafeTensor>> parse(const std::string& bytes) {
  return parse_safetensors(source_of(std::as_bytes(std::span(bytes)), "x.safetensors"));
}

std::string file_of(const std::string& header, size_t data_bytes = 12) {
  return le(uint64_t(header.size())) + header + std::string(data_bytes, '\5');
}

const std::string kA = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})";
const std::string kB = R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]})";

TEST(Safetensors, ReadsASoundFile) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + kA + "," + kB + "}   ";
  const auto tensors = parse(file_of(header));
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "b");  // in the order of the data
  EXPECT_EQ((*tensors)[0].offset, 8 + header.size());
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ((*tensors)[1].bytes, 8u);
  EXPECT_STREQ((*tensors)[1].dtype->name, "F32");
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreLegal) {
  const auto tensors = parse(file_of(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}})",
      4));
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 2u);
}

struct Row {
  const char* name;
  std::string bytes;
  const char* where;
  const char* says;
};

std::string of_a(const std::string& fields) { return file_of("{\"a\":{" + fields + "}}", 8); }

const Row kBroken[] = {
    {"empty", "", "x.safetensors", "truncated"},
    {"seven bytes", std::string(7, '\0'), "x.safetensors", "truncated"},
    {"length 0", file_of(""), "x.safetensors", "JSON object"},
    {"length past the file", le(uint64_t{100}) + "{}", "x.safetensors", "truncated"},
    {"length over the limit", le(uint64_t{100'000'001}) + "{}", "x.safetensors", "100000000"},
    {"length wraps", le(UINT64_MAX) + "{}", "x.safetensors", "18446744073709551615"},
    {"not JSON", file_of("{xxx"), "x.safetensors", "not valid JSON"},
    {"array", file_of("[1]"), "x.safetensors", "JSON object"},
    {"space in front", file_of(" {" + kA + "}"), "x.safetensors", "JSON object"},
    {"two objects", file_of("{" + kA + "," + kB + "}{}"), "b", "not valid JSON"},
    {"not UTF-8", file_of("{\"\xff\":1}"), "x.safetensors", "not valid JSON"},
    {"deep", of_a(R"("shape":[[[[[1]]]]])"), "a", "found an array"},
    {"name twice", file_of("{" + kA + "," + kA + "}"), "a", "twice"},
    {"field twice", of_a(R"("dtype":"F32","dtype":"F32")"), "a", "\"dtype\" occurs twice"},
    {"unknown field", of_a(R"("strides":[1])"), "a", "unknown field"},
    {"field missing", of_a(R"("dtype":"F32","shape":[2])"), "a", "data_offsets is missing"},
    {"begin after end", of_a(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "a", "begin <= end"},
    {"three offsets", of_a(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "a", "[begin, end]"},
    {"offset negative", of_a(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "a",
     "negative number -8"},
    {"offset float", of_a(R"("dtype":"F32","shape":[2],"data_offsets":[0.0,8])"), "a",
     "found the number 0.0"},
    {"offset exponent", of_a(R"("dtype":"F32","shape":[2],"data_offsets":[0,8e0])"), "a",
     "found the number 8e0"},
    {"shape of text", of_a(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), "a", "found a text"},
    {"shape over 63 bits", of_a(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), "a",
     "63 bits"},
    {"shape wraps", of_a(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "a",
     "64 bits"},
    {"shape other", of_a(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "a", "96 bits"},
    {"part of a byte", of_a(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), "a", "12 bits"},
    {"dtype unknown", of_a(R"("dtype":"F7","shape":[2],"data_offsets":[0,8])"), "a", "unknown dtype"},
    {"overlap", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)" + kB + "}"), "a",
     "overlap"},
    {"gap", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})"), "a", "gap"},
    {"data cut", file_of("{" + kA + "," + kB + "}", 11), "a", "truncated"},
    {"data over", file_of("{" + kA + "," + kB + "}", 13), "x.safetensors", "13 bytes of data"},
    {"metadata not text", file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__", "found a number"},
    {"tensor not an object", file_of(R"({"a":1})", 0), "a", "found a number"},
};

TEST(Safetensors, BrokenFilesAreRefusedByName) {
  for (const Row& row : kBroken) {
    const auto tensors = parse(row.bytes);
    ASSERT_FALSE(tensors) << row.name;
    EXPECT_EQ(tensors.error().code, Code::BadFile) << row.name;
    EXPECT_EQ(tensors.error().where, row.where) << row.name << ": " << tensors.error().message;
    EXPECT_NE(tensors.error().message.find(row.says), std::string::npos)
        << row.name << ": " << tensors.error().message;
  }
}

class SafetensorShards : public testing::Test {
 protected:
  SafetensorShards() {
    std::filesystem::create_directories(folder_);
    write("1.safetensors", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
    write("2.safetensors", file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  }
  ~SafetensorShards() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  Result<SafeShards> open(const std::string& index) const {
    write("model.safetensors.index.json", index);
    return open_safetensors(folder_);
  }

  std::string folder_ = testing::TempDir() + "safetensors_test" + std::to_string(getpid());
};

TEST_F(SafetensorShards, OpenTogether) {
  const auto shards =
      open(R"({"metadata":{"total_size":12},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  ASSERT_TRUE(shards) << shards.error().message;
  EXPECT_EQ(shards->files.size(), 2u);
  EXPECT_EQ(shards->tensors[1].file, 1u);
}

TEST_F(SafetensorShards, BadIndexesAreRefused) {
  struct Row {
    const char *index, *where;
  };
  for (const Row& row :
       {Row{R"({"weight_map":5})", "weight_map"},
        {R"({"weight_map":{"a":"../x/1.safetensors"}})", "a"},
        {R"({"weight_map":{"a":"1.safetensors\u0000"}})", "a"},
        {R"({"weight_map":{"a":5}})", "a"},
        {R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})", ""},
        {R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})", "b"},
        {R"({"weight_map":{"a":"1.safetensors"}, "more":{}})", nullptr},
        {R"({"weight_map":{"a":"1.safetensors","ghost":"1.safetensors"}})", "ghost"},
        {R"({"weight_map":{"ghost":"2.safetensors"}})", "b"},
        {R"({"metadata":{"total_size":11},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})",
         "metadata.total_size"}}) {
    const auto shards = open(row.index);
    if (!row.where) {
      EXPECT_TRUE(shards) << "a tensor file that the index does not name is nobody's business";
      continue;
    }
    ASSERT_FALSE(shards) << row.index;
    EXPECT_TRUE(!*row.where || shards.error().where == row.where)
        << shards.error().where << ": " << shards.error().message;
  }
  const auto absent = open(R"({"weight_map":{"a":"absent.safetensors"}})");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::NotFound);
}

TEST_F(SafetensorShards, AFolderWithoutWeightsIsNamed) {
  std::filesystem::remove(folder_ + "/model.safetensors.index.json");
  const auto shards = open_safetensors(folder_);
  ASSERT_FALSE(shards);
  EXPECT_EQ(shards.error().where, folder_);
}

}  // namespace
}  // namespace invar
