#include "files/gguf.h"

#include <gtest/gtest.h>

#include "files/gguf_bytes.h"

namespace invar {
namespace {

constexpr int64_t kHuge = int64_t{1} << 62;

Result<GgufIndex> parse(const std::string& bytes, bool data_needed = true) {
  return parse_gguf(source_of(std::as_bytes(std::span(bytes)), "file.gguf"), data_needed);
}

TEST(Gguf, ReadsASoundFile) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBytes file = sound_gguf();
    file.version = version;
    const Result<GgufIndex> index = parse(file.bytes());
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_EQ(index->version, version);
    ASSERT_EQ(index->tensors.size(), 3u);
    const GgufTensor& q = index->tensors[1];
    EXPECT_EQ(q.name, "blk.0.attn_q.weight");
    EXPECT_EQ(q.ne, (std::vector<int64_t>{32, 2}));
    EXPECT_STREQ(q.type->name, "Q8_0");
    EXPECT_EQ(q.bytes, 68u);
    EXPECT_EQ(q.offset, index->data_start + 32);
    EXPECT_EQ(*index->keys.integer("llama.block_count"), 1);
    EXPECT_EQ(*index->keys.texts("tokenizer.ggml.tokens"), (std::vector<std::string>{"a", "bc"}));
    EXPECT_EQ(index->trailing_bytes, 0u);
  }
}

TEST(Gguf, EveryTypeHasItsBlockSize) {
  for (const GgmlType& type : ggml_types()) {
    GgufBytes file = sound_gguf();
    file.tensors = {{"t", {2 * type.block_values}, type.id, std::string(size_t(2 * type.block_bytes), '\0')}};
    const Result<GgufIndex> index = parse(file.bytes());
    ASSERT_TRUE(index) << type.name << ": " << index.error().message;
    EXPECT_EQ(index->tensors[0].bytes, uint64_t(2 * type.block_bytes));
  }
}

TEST(Gguf, EveryCutIsRefused) {
  const GgufBytes file = sound_gguf();
  const std::string bytes = file.bytes();
  const size_t needed = bytes.size() - 20;  // the pad behind the last tensor may be missing
  ASSERT_TRUE(parse(bytes.substr(0, needed)));
  for (size_t size = 0; size < needed; ++size) {
    const Result<GgufIndex> index = parse(bytes.substr(0, size));
    ASSERT_FALSE(index) << size;
    EXPECT_EQ(index.error().code, Code::BadFile);
    const bool says = index.error().message.find(size ? "truncated" : "empty file") != std::string::npos;
    EXPECT_TRUE(says) << size << ": " << index.error().message;
  }
}

TEST(Gguf, EveryFailedReadIsReported) {
  const std::string bytes = sound_gguf().index();
  const ByteSource good = source_of(std::as_bytes(std::span(bytes)), "file.gguf");
  ByteSource failing = good;
  failing.read = [](uint64_t, std::span<std::byte>) -> Status {
    return Error{Code::Io, "file.gguf", "disk"};
  };
  const Result<GgufIndex> index = parse_gguf(failing);
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::Io);
}

// A vocabulary larger than the first reading ranges: values arrive whole across their borders.
TEST(Gguf, ReadsInRanges) {
  std::string tokens;
  constexpr uint64_t kCount = 100'000;
  for (uint64_t i = 0; i < kCount; ++i) tokens += counted_text("token " + std::to_string(i));
  GgufBytes file = sound_gguf();
  file.keys[2].second = array_value(8, kCount, tokens);
  const std::string bytes = file.bytes();
  ByteSource source = source_of(std::as_bytes(std::span(bytes)), "file.gguf");
  std::vector<size_t> sizes;
  source.read = [&, read = source.read](uint64_t offset, std::span<std::byte> out) {
    sizes.push_back(out.size());
    return read(offset, out);
  };
  const Result<GgufIndex> index = parse_gguf(source);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->keys.texts("tokenizer.ggml.tokens")->back(), "token 99999");
  ASSERT_EQ(sizes.size(), 3u);
  EXPECT_EQ(sizes[0], 64u << 10);
  EXPECT_EQ(sizes[1], 1u << 20);
}

TEST(Gguf, HeaderAlone) {
  const std::string index = sound_gguf().index();
  EXPECT_FALSE(parse(index));
  const Result<GgufIndex> header = parse(index, false);
  ASSERT_TRUE(header);
  EXPECT_FALSE(header->has_data);
  const std::string cut = sound_gguf().bytes().substr(0, sound_gguf().padded(index).size() + 40);
  EXPECT_FALSE(parse(cut, false)) << "some data, but not all, is a broken file";
}

using Edit = void (*)(GgufBytes&);

struct Row {
  const char* name;
  Edit edit;
  const char* where;  // key, tensor, or the file
  const char* says;
  Code code = Code::BadFile;
};

void add_key(GgufBytes& file, const std::string& key, const std::string& value) {
  file.keys.push_back({key, value});
}
void add_tensor(GgufBytes& file, GgufBytes::Tensor tensor) { file.tensors.push_back(std::move(tensor)); }

// Rows marked [stricter] are files that llama.cpp (release 0.5.0) accepts: we refuse them on purpose, as
// the engine has no use for them or two readers would understand them differently.
const Row kBroken[] = {
    {"magic", [](GgufBytes& f) { f.magic = "GGUX"; }, "file.gguf", "not a GGUF file"},
    {"web page", [](GgufBytes& f) { f.magic = "<htm"; }, "file.gguf", "looks like HTML"},
    {"older format", [](GgufBytes& f) { f.magic = "tjgg"; }, "file.gguf", "older format"},
    {"version 0", [](GgufBytes& f) { f.version = 0; }, "file.gguf", "version 0"},
    {"version 1", [](GgufBytes& f) { f.version = 1; }, "file.gguf", "version 1"},
    {"version 4", [](GgufBytes& f) { f.version = 4; }, "file.gguf", "version 4"},
    {"big-endian", [](GgufBytes& f) { f.version = 3u << 24; }, "file.gguf", "byte order is big-endian"},
    {"n_kv negative", [](GgufBytes& f) { f.n_keys = -1; }, "file.gguf", "n_kv"},
    {"n_kv huge", [](GgufBytes& f) { f.n_keys = kHuge; }, "file.gguf", "at most 1048576"},
    {"n_kv over the rest", [](GgufBytes& f) { f.n_keys = 1000; }, "file.gguf", "truncated: n_kv"},
    {"n_tensors negative", [](GgufBytes& f) { f.n_tensors = -1; }, "file.gguf", "n_tensors"},
    {"n_tensors huge", [](GgufBytes& f) { f.n_tensors = kHuge; }, "file.gguf", "at most 1048576"},
    {"n_tensors over the rest", [](GgufBytes& f) { f.n_tensors = 1000; }, "file.gguf",
     "truncated: n_tensors"},
    {"one tensor more", [](GgufBytes& f) { f.n_tensors = 4; }, "file.gguf", "tensor name"},

    {"key empty", [](GgufBytes& f) { add_key(f, "", u32_value(1)); }, "file.gguf", "empty key"},
    {"key long", [](GgufBytes& f) { add_key(f, std::string(65536, 'k'), u32_value(1)); }, "file.gguf",
     "65535"},
    {"key not ASCII",
     [](GgufBytes& f) {
       add_key(f,
               "gr\xc3\xb6\xc3\x9f"
               "e",
               u32_value(1));
     },
     "file.gguf", "gr\\xc3"},
    {"key with NUL [stricter]", [](GgufBytes& f) { add_key(f, std::string("a\0b", 3), u32_value(1)); },
     "file.gguf", "a\\x00b"},
    {"key twice", [](GgufBytes& f) { add_key(f, "llama.block_count", u32_value(1)); }, "llama.block_count",
     "twice"},
    {"text length wraps", [](GgufBytes& f) { add_key(f, "x", typed(ValueType::Text, le(UINT64_MAX))); }, "x",
     "truncated"},
    {"text over the rest",
     [](GgufBytes& f) { add_key(f, "x", typed(ValueType::Text, le(uint64_t{1} << 30))); }, "x", "truncated"},
    {"type unknown", [](GgufBytes& f) { add_key(f, "x", le(int32_t{13}) + le(0u)); }, "x", "value type 13"},
    {"type negative", [](GgufBytes& f) { add_key(f, "x", le(int32_t{-1}) + le(0u)); }, "x", "value type -1"},
    {"bool 7 [stricter]", [](GgufBytes& f) { add_key(f, "x", typed(ValueType::Bool, "\7")); }, "x",
     "a bool is 7"},
    {"bool 2 in an array [stricter]", [](GgufBytes& f) { add_key(f, "x", array_value(7, 2, "\1\2")); }, "x",
     "a bool is 2"},
    {"array wraps", [](GgufBytes& f) { add_key(f, "x", array_value(12, uint64_t{1} << 61, "")); }, "x",
     "array count"},
    {"array over the rest", [](GgufBytes& f) { add_key(f, "x", array_value(4, 1 << 20, "")); }, "x",
     "truncated: the array count"},
    {"texts over the rest", [](GgufBytes& f) { add_key(f, "x", array_value(8, 1 << 20, "")); }, "x",
     "truncated: the array count"},
    {"a text of an array over the rest",
     [](GgufBytes& f) { add_key(f, "x", array_value(8, 1, le(uint64_t{1} << 40))); }, "x", "array element"},
    {"array type unknown", [](GgufBytes& f) { add_key(f, "x", array_value(99, 0, "")); }, "x",
     "element type 99"},
    {"array in an array", [](GgufBytes& f) { add_key(f, "x", array_value(9, 1, le(4) + le(uint64_t{0}))); },
     "x", "inside an array"},

    {"alignment 0", [](GgufBytes& f) { add_key(f, "general.alignment", u32_value(0)); }, "general.alignment",
     "found 0"},
    {"alignment 3", [](GgufBytes& f) { add_key(f, "general.alignment", u32_value(3)); }, "general.alignment",
     "power of two"},
    {"alignment 2^31 [stricter]", [](GgufBytes& f) { add_key(f, "general.alignment", u32_value(1u << 31)); },
     "general.alignment", "1048576"},
    {"alignment as text", [](GgufBytes& f) { add_key(f, "general.alignment", text_value("32")); },
     "general.alignment", "u32"},
    {"alignment as u64",
     [](GgufBytes& f) { add_key(f, "general.alignment", typed(ValueType::U64, le(uint64_t{32}))); },
     "general.alignment", "u32"},

    {"tensor nameless [stricter]", [](GgufBytes& f) { f.tensors[1].name = ""; }, "file.gguf",
     "empty tensor name"},
    {"tensor name long", [](GgufBytes& f) { f.tensors[1].name = std::string(64, 'n'); }, "file.gguf",
     "at most 63"},
    {"tensor name with NUL [stricter]", [](GgufBytes& f) { f.tensors[1].name = std::string("a\0b", 3); },
     "file.gguf", "NUL"},
    {"tensor twice", [](GgufBytes& f) { f.tensors[1].name = f.tensors[0].name; }, "token_embd.weight",
     "twice"},
    {"no dimensions [stricter]", [](GgufBytes& f) { f.tensors[0].ne = {}; }, "token_embd.weight",
     "0 dimensions"},
    {"five dimensions",
     [](GgufBytes& f) {
       f.tensors[0].ne = {4, 2, 1, 1, 1};
     },
     "token_embd.weight", "5 dimensions"},
    {"dimension 0 [stricter]",
     [](GgufBytes& f) {
       f.tensors[0].ne = {4, 0};
     },
     "token_embd.weight", "dimension 1 is 0"},
    {"dimension negative",
     [](GgufBytes& f) {
       f.tensors[0].ne = {-4, 2};
     },
     "token_embd.weight", "dimension 0 is -4"},
    {"elements wrap to 0 [stricter]",
     [](GgufBytes& f) {
       f.tensors[0].ne = {int64_t{1} << 40, int64_t{1} << 40};
     },
     "token_embd.weight", "product"},
    {"bytes wrap", [](GgufBytes& f) { f.tensors[0].ne = {kHuge}; }, "token_embd.weight",
     "bytes exceeds 63 bits"},
    {"padding wraps [stricter]",
     [](GgufBytes& f) {
       f.tensors[0].ne = {INT64_MAX - 1};
       f.tensors[0].type = 24;
     },
     "token_embd.weight", "padded sizes"},
    {"sum of sizes wraps",
     [](GgufBytes& f) {
       constexpr int64_t kAll = INT64_MAX - 63;  // 2^63 - 64
       f.tensors = {{"a", {kAll}, 24, ""}, {"b", {kAll}, 24, "", uint64_t(kAll)}};
     },
     "b", "padded sizes"},
    {"type retired", [](GgufBytes& f) { f.tensors[0].type = 4; }, "token_embd.weight", "type number 4",
     Code::Unsupported},
    {"type unknown", [](GgufBytes& f) { f.tensors[0].type = 999; }, "token_embd.weight", "type number 999",
     Code::Unsupported},
    {"type negative", [](GgufBytes& f) { f.tensors[0].type = -1; }, "token_embd.weight", "type number -1"},
    {"row of part blocks",
     [](GgufBytes& f) {
       f.tensors[1].ne = {33, 2};
     },
     "blk.0.attn_q.weight", "block of 32"},
    {"offset not aligned", [](GgufBytes& f) { f.tensors[1].offset = 33; }, "blk.0.attn_q.weight",
     "not a multiple"},
    {"offset leaves a gap", [](GgufBytes& f) { f.tensors[1].offset = 64; }, "blk.0.attn_q.weight", "gap"},
    {"offset overlaps", [](GgufBytes& f) { f.tensors[1].offset = 0; }, "blk.0.attn_q.weight", "overlaps"},
    {"offset past the file", [](GgufBytes& f) { f.tensors[1].offset = UINT64_MAX - 31; },
     "blk.0.attn_q.weight", "expected 32"},
    {"order of data",
     [](GgufBytes& f) {
       f.tensors[0].offset = 96;
       f.tensors[1].offset = 0;
     },
     "token_embd.weight", "gap"},
    {"tensor past the file",
     [](GgufBytes& f) {
       add_tensor(f, {"z", {1 << 20}, 0, ""});
     },
     "z", "beyond the end"},
};

TEST(Gguf, BrokenFilesAreRefusedByName) {
  for (const Row& row : kBroken) {
    GgufBytes file = sound_gguf();
    row.edit(file);
    const Result<GgufIndex> index = parse(file.bytes());
    ASSERT_FALSE(index) << row.name;
    const Error& error = index.error();
    EXPECT_EQ(error.where, row.where) << row.name << ": " << error.message;
    EXPECT_NE(error.message.find(row.says), std::string::npos) << row.name << ": " << error.message;
    EXPECT_EQ(error.code, row.code) << row.name << ": " << error.message;
  }
}

TEST(Gguf, KeyLengthsAreChecked) {
  for (const uint64_t length : {UINT64_MAX, uint64_t{1} << 40, uint64_t{1000}}) {
    std::string bytes = sound_gguf().bytes();
    bytes.replace(24, 8, le(length));
    const Result<GgufIndex> index = parse(bytes);
    ASSERT_FALSE(index);
    EXPECT_NE(index.error().message.find("the length of a key at byte 24 is " + std::to_string(length)),
              std::string::npos);
  }
}

// What upstream readers accept and so do we.
TEST(Gguf, OddButHarmlessFiles) {
  GgufBytes wide = sound_gguf();
  wide.alignment = 4096;
  wide.keys.push_back({"general.alignment", u32_value(4096)});
  EXPECT_TRUE(parse(wide.bytes()));

  const std::string longer = sound_gguf().bytes() + "more";
  ASSERT_TRUE(parse(longer));
  EXPECT_EQ(parse(longer)->trailing_bytes, 4u);

  GgufBytes empty;
  EXPECT_TRUE(parse(empty.bytes())) << "no keys and no tensors";
}

}  // namespace
}  // namespace invar
