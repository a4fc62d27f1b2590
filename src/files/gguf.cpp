#include "files/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

namespace invar {
namespace {

constexpr uint64_t kSmallestKey = 8 + 4 + 1;         // empty name, type, one byte
constexpr uint64_t kSmallestTensor = 8 + 4 + 4 + 8;  // empty name, dimensions, type, offset
constexpr uint64_t kReadSizes[] = {64 << 10, 1 << 20, 8 << 20};

std::string str(uint64_t number) { return std::to_string(number); }

// Walks forward through a source; `where` names what is being read, for the errors.
class Cursor {
 public:
  explicit Cursor(const ByteSource& source) : source_(source) {}

  std::string where;

  uint64_t position() const { return loaded_end_ - (buffer_.size() - at_); }
  uint64_t remaining() const { return source_.size - position(); }

  Error bad(const std::string& message) const { return bad_file(where, message, source_.name); }
  Error truncated(uint64_t wanted, const char* what) const {
    return bad(std::string("truncated: ") + what + " at byte " + str(position()) + " needs " + str(wanted) +
               " bytes, but " + str(remaining()) + " remain");
  }

  Status take(void* out, uint64_t size, const char* what) {
    if (size > remaining()) return truncated(size, what);
    auto* to = static_cast<std::byte*>(out);
    while (size > 0) {
      if (at_ == buffer_.size()) TRY(refill());
      const uint64_t n = std::min(size, uint64_t(buffer_.size() - at_));
      std::memcpy(to, &buffer_[at_], n);
      at_ += n;
      to += n;
      size -= n;
    }
    return Ok{};
  }

  template <class T>
  Result<T> number(const char* what) {
    T value{};
    TRY(take(&value, sizeof value, what));
    return value;
  }

  // Appends to `out`; grows it only by what the file holds.
  Status append(std::string& out, uint64_t size, const char* what) {
    if (size > remaining()) return truncated(size, what);
    const size_t old = out.size();
    out.resize(old + size);
    return take(&out[old], size, what);
  }

  Result<std::string> text(uint64_t limit, const char* what) {
    std::string out;
    TRY(append(out, TRY(text_length(limit, what)), what));
    return out;
  }

  Result<uint64_t> text_length(uint64_t limit, const char* what) {
    const uint64_t at = position();
    const auto length = TRY(number<uint64_t>(what));
    if (length > remaining())
      return bad("truncated: the length of " + std::string(what) + " at byte " + str(at) + " is " +
                 str(length) + ", but " + str(remaining()) + " bytes remain");
    if (length > limit)
      return bad("the length of " + std::string(what) + " is " + str(length) + ", at most " + str(limit) +
                 " is allowed");
    return length;
  }

 private:
  Status refill() {
    const uint64_t size = std::min(kReadSizes[turn_], source_.size - loaded_end_);
    turn_ = std::min(turn_ + 1, std::size(kReadSizes) - 1);
    buffer_.resize(size);
    at_ = 0;
    TRY(source_.read(loaded_end_, buffer_));
    loaded_end_ += size;
    return Ok{};
  }

  const ByteSource& source_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0, turn_ = 0;
  uint64_t loaded_end_ = 0;  // file offset behind the buffer
};

struct Header {
  uint32_t version;
  uint64_t tensors, keys;
};

Error not_gguf(std::string_view start, const std::string& file) {
  std::string kind;
  if (start.substr(0, 1) == "<") kind = " (looks like HTML)";
  else if (start == "ggjt" || start == "tjgg" || start == "ggml" || start == "lmgg" || start == "ggmf" ||
           start == "fmgg")
    kind = " (older format)";
  return bad_file(
      "", "not a GGUF file" + kind + ": expected the magic \"GGUF\", found \"" + printable(start) + "\"",
      file);
}

Result<uint64_t> counted(Cursor& in, const char* what, uint64_t smallest) {
  const auto count = TRY(in.number<int64_t>(what));
  const std::string says = std::string(what) + " is " + std::to_string(count);
  if (count < 0) return in.bad(says + ", expected at least 0");
  if (uint64_t(count) > kMaxGgufEntries)
    return in.bad(says + ", at most " + str(kMaxGgufEntries) + " is allowed");
  if (uint64_t(count) > in.remaining() / smallest)
    return in.bad("truncated: " + says + ", but the remaining " + str(in.remaining()) +
                  " bytes hold at most " + str(in.remaining() / smallest));
  return uint64_t(count);
}

Result<Header> parse_header(Cursor& in, const ByteSource& source) {
  if (source.size == 0) return in.bad("expected a GGUF file, found an empty file");
  std::array<char, 4> magic{};
  const size_t known = std::min<uint64_t>(magic.size(), source.size);
  TRY(in.take(magic.data(), known, "the magic"));
  const std::string_view start(magic.data(), known);
  if (start != std::string_view("GGUF").substr(0, known)) return not_gguf(start, source.name);
  if (source.size < 24)
    return in.bad("truncated: a GGUF header has 24 bytes, the file has " + str(source.size));
  Header header{};
  header.version = TRY(in.number<uint32_t>("the version"));
  if (header.version != 0 && (header.version & 0xffff) == 0)
    return in.bad("the byte order is big-endian (version " + str(header.version) +
                  " in little-endian), expected little-endian");
  if (header.version != 2 && header.version != 3)
    return in.bad("expected GGUF version 2 or 3, found version " + str(header.version));
  header.tensors = TRY(counted(in, "n_tensors (the number of tensors)", kSmallestTensor));
  header.keys = TRY(counted(in, "n_kv (the number of keys)", kSmallestKey));
  return header;
}

Result<ValueType> parse_type(Cursor& in, const char* what) {
  const auto type = TRY(in.number<int32_t>(what));
  if (type < 0 || type > int32_t(ValueType::F64))
    return in.bad("unknown " + std::string(what) + " " + std::to_string(type) + ", expected 0 to 12");
  return ValueType(type);
}

Status check_booleans(const Cursor& in, const std::string& bytes) {
  for (const char b : bytes)
    if (uint8_t(b) > 1) return in.bad("a bool is " + str(uint8_t(b)) + ", expected 0 or 1");
  return Ok{};
}

Result<Value> parse_array(Cursor& in) {
  Value value;
  value.is_array = true;
  value.type = TRY(parse_type(in, "array element type"));
  if (value.type == ValueType::Array) return in.bad("an array inside an array is not allowed");
  value.count = TRY(in.number<uint64_t>("the array count"));
  const bool texts = value.type == ValueType::Text;
  const uint64_t smallest = texts ? 8 : uint64_t(width_of(value.type));
  if (value.count > in.remaining() / smallest)
    return in.bad("truncated: the array count is " + str(value.count) + ", but the remaining " +
                  str(in.remaining()) + " bytes hold at most " + str(in.remaining() / smallest));
  if (value.count > kMaxGgufElements)
    return in.bad("the array count is " + str(value.count) + ", at most " + str(kMaxGgufElements) +
                  " is allowed");
  if (!texts) {
    TRY(in.append(value.bytes, value.count * smallest, "the array"));
    return value;
  }
  for (uint64_t i = 0; i < value.count; ++i) {
    const uint64_t length = TRY(in.text_length(kMaxGgufText, "an array element"));
    value.bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    TRY(in.append(value.bytes, length, "an array element"));
  }
  return value;
}

Result<Value> parse_value(Cursor& in) {
  Value value;
  value.type = TRY(parse_type(in, "value type"));
  if (value.type == ValueType::Array) value = TRY(parse_array(in));
  else if (value.type == ValueType::Text) value.bytes = TRY(in.text(kMaxGgufText, "the text"));
  else TRY(in.append(value.bytes, uint64_t(width_of(value.type)), "the value"));
  if (value.type == ValueType::Bool) TRY(check_booleans(in, value.bytes));
  return value;
}

Result<std::string> parse_key(Cursor& in) {
  in.where.clear();
  const uint64_t at = in.position();
  std::string key = TRY(in.text(kMaxGgufKey, "a key"));
  if (key.empty()) return in.bad("empty key at byte " + str(at));
  const bool ascii = std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (!ascii) return in.bad("the key \"" + printable(key) + "\" at byte " + str(at) + " is not plain ASCII");
  return key;
}

Result<Metadata> parse_keys(Cursor& in, uint64_t count, const std::string& file) {
  Metadata keys(file);
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = TRY(parse_key(in));
    in.where = key;
    Value value = TRY(parse_value(in));
    bytes += value.bytes.size();
    if (bytes > kMaxGgufKeyBytes)
      return in.bad("the values take more than " + str(kMaxGgufKeyBytes) + " bytes");
    if (!keys.add(std::move(key), std::move(value))) return in.bad("the key occurs twice");
  }
  in.where.clear();
  return keys;
}

Result<uint64_t> parse_alignment(const Metadata& keys) {
  constexpr std::string_view kKey = "general.alignment";
  const Value* value = keys.find(kKey);
  if (!value) return uint64_t{32};
  if (value->is_array || value->type != ValueType::U32)
    return keys.error(kKey, "expected a value of type u32");
  const int64_t alignment = TRY(keys.integer(kKey, 1, int64_t(kMaxGgufAlignment)));
  if (alignment & (alignment - 1))
    return keys.error(kKey, "expected a power of two, found " + std::to_string(alignment));
  return uint64_t(alignment);
}

// The bytes of a tensor; its dimensions are positive.
Result<uint64_t> tensor_bytes(const Cursor& in, const GgufTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t n : tensor.ne)
    if (__builtin_mul_overflow(elements, n, &elements))
      return in.bad("the product of the dimensions exceeds 63 bits");
  if (tensor.ne[0] % tensor.type->block_values)
    return in.bad("a row has " + std::to_string(tensor.ne[0]) +
                  " values, expected a multiple of the block of " +
                  std::to_string(tensor.type->block_values) + " values of " + tensor.type->name);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / tensor.type->block_values, int64_t(tensor.type->block_bytes), &bytes))
    return in.bad("the size in bytes exceeds 63 bits");
  return uint64_t(bytes);
}

Result<std::string> parse_tensor_name(Cursor& in) {
  in.where.clear();
  const uint64_t at = in.position();
  std::string name = TRY(in.text(kMaxGgufTensorName, "a tensor name"));
  if (name.empty()) return in.bad("empty tensor name at byte " + str(at));
  if (name.find('\0') != std::string::npos)
    return in.bad("the tensor name \"" + printable(name) + "\" holds a NUL byte");
  return name;
}

// `expected`: where the data of this tensor must begin; moved behind it.
Result<GgufTensor> parse_tensor(Cursor& in, uint64_t alignment, uint64_t& expected) {
  GgufTensor tensor{};
  tensor.name = TRY(parse_tensor_name(in));
  in.where = tensor.name;
  const auto dimensions = TRY(in.number<uint32_t>("the number of dimensions"));
  if (dimensions < 1 || dimensions > 4)
    return in.bad("has " + str(dimensions) + " dimensions, expected 1 to 4");
  for (uint32_t i = 0; i < dimensions; ++i) {
    tensor.ne.push_back(TRY(in.number<int64_t>("a dimension")));
    if (tensor.ne[i] < 1)
      return in.bad("dimension " + str(i) + " is " + std::to_string(tensor.ne[i]) + ", expected at least 1");
  }
  const auto type = TRY(in.number<int32_t>("the type"));
  tensor.offset = TRY(in.number<uint64_t>("the offset"));
  tensor.type = find_ggml_type(type);
  if (!tensor.type) {
    Error error = in.bad("type number " + std::to_string(type) + " is not a known tensor type");
    if (type >= 0) error.code = Code::Unsupported;
    return error;
  }
  tensor.bytes = TRY(tensor_bytes(in, tensor));
  if (tensor.offset != expected)
    return in.bad("the offset is " + str(tensor.offset) + ", expected " + str(expected) +
                  (tensor.offset % alignment  ? ": not a multiple of the alignment"
                   : tensor.offset < expected ? ": overlaps the tensor before it"
                                              : ": leaves a gap"));
  const uint64_t limit = uint64_t(Metadata::kHighest) - (alignment - 1);
  if (tensor.bytes > limit || expected > limit - tensor.bytes)
    return in.bad("the padded sizes of the tensors up to here exceed 63 bits");
  expected = (expected + tensor.bytes + alignment - 1) / alignment * alignment;
  return tensor;
}

// Turns offsets into file offsets; every tensor must lie in the file.
Status place_data(GgufIndex& index, const ByteSource& source, uint64_t infos_end, bool data_needed) {
  index.data_start = (infos_end + index.alignment - 1) / index.alignment * index.alignment;
  index.has_data = index.tensors.empty() || source.size > index.data_start;
  uint64_t end = index.data_start;
  for (GgufTensor& tensor : index.tensors) {
    if (__builtin_add_overflow(tensor.offset, index.data_start, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.bytes, &end) || end > uint64_t(Metadata::kHighest))
      return bad_file(tensor.name, "the end of its data exceeds 63 bits", source.name);
    if (end > source.size && (index.has_data || data_needed))
      return bad_file(tensor.name,
                      "truncated: its data ends at byte " + str(end) +
                          ", beyond the end of the file at byte " + str(source.size),
                      source.name);
  }
  end = (end + index.alignment - 1) / index.alignment * index.alignment;
  index.trailing_bytes = source.size > end ? source.size - end : 0;
  return Ok{};
}

}  // namespace

Result<GgufIndex> parse_gguf(const ByteSource& source, bool data_needed) {
  Cursor in(source);
  const Header header = TRY(parse_header(in, source));
  GgufIndex index;
  index.version = header.version;
  index.keys = TRY(parse_keys(in, header.keys, source.name));
  index.alignment = TRY(parse_alignment(index.keys));
  std::unordered_set<std::string> names;
  uint64_t expected = 0;
  for (uint64_t i = 0; i < header.tensors; ++i) {
    index.tensors.push_back(TRY(parse_tensor(in, index.alignment, expected)));
    if (!names.insert(index.tensors.back().name).second) return in.bad("the tensor occurs twice");
  }
  TRY(place_data(index, source, in.position(), data_needed));
  return index;
}

}  // namespace invar
