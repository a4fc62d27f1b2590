#include "files/safetensors.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "files/json_text.h"

namespace invar {
namespace {

using nlohmann::json;

constexpr SafeDtype kDtypes[] = {
    {"F64", 64, 28},    {"F32", 32, 0},     {"F16", 16, 1},     {"BF16", 16, 30}, {"I64", 64, 27},
    {"I32", 32, 26},    {"I16", 16, 25},    {"I8", 8, 24},      {"U8", 8, -1},    {"BOOL", 8, -1},
    {"F8_E4M3", 8, -1}, {"F8_E5M2", 8, -1}, {"U16", 16, -1},    {"U32", 32, -1},  {"U64", 64, -1},
    {"F8_E8M0", 8, -1}, {"F6_E2M3", 6, -1}, {"F6_E3M2", 6, -1}, {"F4", 4, -1},    {"C64", 64, -1},
};

const SafeDtype* find_dtype(std::string_view name) {
  for (const SafeDtype& dtype : kDtypes)
    if (name == dtype.name) return &dtype;
  return nullptr;
}

// Takes the header's JSON as it streams by; nothing but the tensors is kept.
class HeaderReader {
 public:
  std::vector<SafeTensor> tensors;
  std::string where, fault;

  bool null() { return stray("null"); }
  bool boolean(bool) { return stray("true or false"); }
  bool binary(json::binary_t&) { return stray("binary"); }
  bool number_integer(json::number_integer_t n) { return stray("the negative number " + std::to_string(n)); }
  bool number_float(json::number_float_t, const std::string& text) { return stray("the number " + text); }

  bool number_unsigned(json::number_unsigned_t n) {
    if (at_ != In::Shape && at_ != In::Offsets) return stray("a number");
    if (n > uint64_t(INT64_MAX)) return fail("the number " + std::to_string(n) + " exceeds 63 bits");
    numbers_.push_back(int64_t(n));
    return true;
  }

  bool string(std::string& text) {
    if (at_ == In::Metadata) return true;
    if (at_ != In::Tensor || field_ != "dtype") return stray("a text");
    tensor_.dtype = find_dtype(text);
    return tensor_.dtype || fail("unknown dtype \"" + printable(text) + "\"");
  }

  bool start_object(size_t) {
    if (at_ == In::Nothing) return enter(In::Root);
    if (at_ != In::Root) return stray("an object");
    return enter(where == "__metadata__" ? In::Metadata : In::Tensor);
  }

  bool key(std::string& name) {
    if (at_ == In::Root) {
      where = name;
      tensor_ = {};
      tensor_.name = name;
      return names_.insert(name).second || fail("the name occurs twice");
    }
    field_ = name;
    if (!fields_.insert(name).second) return fail("\"" + printable(name) + "\" occurs twice");
    const bool known = at_ == In::Metadata || name == "dtype" || name == "shape" || name == "data_offsets";
    return known || fail("unknown field \"" + printable(name) + "\"");
  }

  bool end_object() {
    if (at_ == In::Root) return enter(In::Nothing);
    const bool is_tensor = at_ == In::Tensor;
    enter(In::Root);
    if (is_tensor)
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) return fail(std::string(field) + " is missing");
    fields_.clear();
    if (is_tensor) tensors.push_back(std::move(tensor_));
    return true;
  }

  bool start_array(size_t) {
    if (at_ != In::Tensor || field_ == "dtype") return stray("an array");
    numbers_.clear();
    return enter(field_ == "shape" ? In::Shape : In::Offsets);
  }

  bool end_array() {
    if (at_ == In::Shape) {
      tensor_.shape = numbers_;
    } else {
      if (numbers_.size() != 2 || numbers_[0] > numbers_[1])
        return fail("expected data_offsets [begin, end] with begin <= end");
      tensor_.offset = uint64_t(numbers_[0]);
      tensor_.bytes = uint64_t(numbers_[1] - numbers_[0]);
    }
    return enter(In::Tensor);
  }

  bool parse_error(size_t position, const std::string&, const json::exception&) {
    return fail("the header is not valid JSON at byte " + std::to_string(position) + " of it");
  }

 private:
  enum class In { Nothing, Root, Metadata, Tensor, Shape, Offsets };

  bool enter(In place) {
    at_ = place;
    return true;
  }
  bool fail(std::string message) {
    fault = std::move(message);
    return false;
  }
  bool stray(const std::string& what) {
    constexpr const char* kWanted[] = {"an object as the header", "an object for each tensor",
                                       "texts in __metadata__",   "dtype, shape and data_offsets",
                                       "whole numbers in shape",  "whole numbers in data_offsets"};
    return fail("expected " + std::string(kWanted[size_t(at_)]) + ", found " + what);
  }

  In at_ = In::Nothing;
  std::string field_;
  SafeTensor tensor_;
  std::vector<int64_t> numbers_;
  std::unordered_set<std::string> names_, fields_;
};

// The size that dtype and shape give must be that of the range.
Status check_size(const SafeTensor& tensor, const std::string& file) {
  uint64_t bits = uint64_t(tensor.dtype->bits);
  for (const int64_t n : tensor.shape)
    if (__builtin_mul_overflow(bits, uint64_t(n), &bits))
      return bad_file(tensor.name, "the product of its shape exceeds 64 bits", file);
  if (bits % 8 == 0 && bits / 8 == tensor.bytes) return Ok{};
  return bad_file(tensor.name,
                  "its shape and dtype give " + std::to_string(bits) + " bits, but data_offsets hold " +
                      std::to_string(tensor.bytes) + " bytes",
                  file);
}

// One after the other from 0 to the end of the file.  Turns offsets into file offsets.
Status place_data(std::vector<SafeTensor>& tensors, uint64_t data_start, const ByteSource& source) {
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  uint64_t end = 0;
  const uint64_t size = source.size - data_start;
  for (SafeTensor& tensor : tensors) {
    TRY(check_size(tensor, source.name));
    if (tensor.offset != end)
      return bad_file(tensor.name,
                      "its data begins at " + std::to_string(tensor.offset) + ", expected " +
                          std::to_string(end) + (tensor.offset < end ? ": overlap" : ": gap"),
                      source.name);
    end += tensor.bytes;  // at most the 63 bits of data_offsets
    if (end > size)
      return bad_file(tensor.name,
                      "truncated: its data ends at " + std::to_string(end) + ", but the file holds " +
                          std::to_string(size) + " bytes of data",
                      source.name);
    tensor.offset += data_start;
  }
  if (end == size) return Ok{};
  return bad_file("",
                  "the tensors end at " + std::to_string(end) + ", but the file holds " +
                      std::to_string(size) + " bytes of data",
                  source.name);
}

bool plain_name(const std::string& name) {
  return !name.empty() && name != "." && name.find("..") == std::string::npos &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

using WeightMap = std::map<std::string, std::string>;  // tensor to file

Result<WeightMap> parse_weight_map(const json& index, const std::string& path) {
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return bad_file("weight_map", "expected an object that maps tensors to files", path);
  WeightMap files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) return bad_file(tensor, "expected the name of a file", path);
    files[tensor] = file.get<std::string>();
    if (!plain_name(files[tensor]))
      return bad_file(tensor, "expected a plain file name, found \"" + printable(files[tensor]) + "\"", path);
  }
  return files;
}

Status check_total(const json& index, const SafeShards& shards, const std::string& path) {
  if (!index.contains("metadata") || !index["metadata"].is_object()) return Ok{};
  const json& metadata = index["metadata"];
  if (!metadata.contains("total_size")) return Ok{};
  const json& total = metadata["total_size"];
  uint64_t bytes = 0;
  for (const SafeTensor& tensor : shards.tensors) bytes += tensor.bytes;
  if (total.is_number_unsigned() && total.get<uint64_t>() == bytes) return Ok{};
  return bad_file(
      "metadata.total_size",
      "expected " + std::to_string(bytes) + ", the bytes of all tensors, found " + printable(total.dump()),
      path);
}

// Opens one file and appends its tensors.
Status add_shard(SafeShards& shards, const std::string& path) {
  File file = TRY(File::open(path));
  std::vector<SafeTensor> tensors = TRY(parse_safetensors(source_of(file)));
  for (SafeTensor& tensor : tensors) {
    tensor.file = shards.files.size();
    shards.tensors.push_back(std::move(tensor));
  }
  shards.files.push_back(std::move(file));
  return Ok{};
}

Result<SafeShards> open_sharded(const std::string& folder, const std::string& index_path) {
  constexpr uint64_t kLimit = 64 << 20;
  const json index = TRY(read_json(index_path, kLimit));
  WeightMap map = TRY(parse_weight_map(index, index_path));
  std::map<std::string, size_t> places;
  SafeShards shards;
  for (const auto& [tensor, file] : map) {
    if (!places.emplace(file, places.size()).second) continue;
    TRY(add_shard(shards, folder + "/" + file));
  }
  for (const SafeTensor& tensor : shards.tensors) {
    const auto mapped = map.find(tensor.name);
    if (mapped == map.end() || places[mapped->second] != tensor.file)
      return bad_file(tensor.name, "the index does not map the tensor to this file",
                      shards.files[tensor.file].path());
    map.erase(mapped);
  }
  if (!map.empty())
    return bad_file(map.begin()->first,
                    "the index maps the tensor to " + map.begin()->second + ", which does not hold it",
                    index_path);
  TRY(check_total(index, shards, index_path));
  return shards;
}

}  // namespace

Result<std::vector<SafeTensor>> parse_safetensors(const ByteSource& source) {
  uint64_t length = 0;
  if (source.size < sizeof length)
    return bad_file("", "truncated: expected at least 8 bytes, found " + std::to_string(source.size),
                    source.name);
  TRY(source.read(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxSafetensorsHeader)
    return bad_file("",
                    "the header length is " + std::to_string(length) + ", at most " +
                        std::to_string(kMaxSafetensorsHeader) + " is allowed",
                    source.name);
  if (length > source.size - sizeof length)
    return bad_file("",
                    "truncated: the header length is " + std::to_string(length) + ", but " +
                        std::to_string(source.size - sizeof length) + " bytes follow",
                    source.name);
  std::string header(length, '\0');
  TRY(source.read(sizeof length, std::as_writable_bytes(std::span(header))));
  if (!header.starts_with('{')) return bad_file("", "expected a JSON object as the header", source.name);

  HeaderReader reader;
  if (!json::sax_parse(header, &reader)) return bad_file(reader.where, reader.fault, source.name);
  TRY(place_data(reader.tensors, sizeof length + length, source));
  return std::move(reader.tensors);
}

Result<SafeShards> open_safetensors(const std::string& folder) {
  SafeShards shards;
  Status single = add_shard(shards, folder + "/model.safetensors");
  if (single) return shards;
  if (single.error().code != Code::NotFound) return single.error();
  const std::string index = folder + "/model.safetensors.index.json";
  Result<SafeShards> sharded = open_sharded(folder, index);
  if (!sharded && sharded.error().code == Code::NotFound && sharded.error().where == index)
    return Error{Code::NotFound, folder,
                 "the folder holds neither model.safetensors nor model.safetensors.index.json"};
  return sharded;
}

}  // namespace invar
