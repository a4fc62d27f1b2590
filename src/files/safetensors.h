// safetensors: the index of one file, checked strictly, and the shards of a folder.  What the tensors are for
// is left to hf_folder.h.  Layout: u64 header length, JSON header, data; offsets count from the header's end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "files/byte_source.h"

namespace invar {

struct SafeDtype {
  const char* name;
  int bits;
  int ggml_type;  // -1: none
};

struct SafeTensor {
  std::string name;
  const SafeDtype* dtype = nullptr;
  std::vector<int64_t> shape;  // row-major; empty for a single value
  uint64_t offset = 0;         // from the start of the file
  uint64_t bytes = 0;
  size_t file = 0;  // place among the shards
};

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the limit of the reference implementation

Result<std::vector<SafeTensor>> parse_safetensors(const ByteSource& source);  // in the order of their data

struct SafeShards {
  std::vector<File> files;
  std::vector<SafeTensor> tensors;
};

// model.safetensors, or the files that model.safetensors.index.json names.
Result<SafeShards> open_safetensors(const std::string& folder);

}  // namespace invar
