// The index of one GGUF file (versions 2 and 3): keys, tensor infos, where the data begins.  The parser pulls
// bytes through a ByteSource in growing ranges and holds no more than the index; every count, length and
// offset of the file is checked before it is used.  What the keys mean is left to others.
// Layout: the GGUF specification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/byte_source.h"
#include "files/ggml_types.h"
#include "files/metadata.h"

namespace invar {

struct GgufTensor {
  std::string name;
  std::vector<int64_t> ne;  // as in the file: contiguous dimension first
  const GgmlType* type;
  uint64_t offset;  // from the start of the file
  uint64_t bytes;
};

struct GgufIndex {
  uint32_t version = 0;
  uint64_t alignment = 32;
  Metadata keys;
  std::vector<GgufTensor> tensors;  // in the order of their data
  uint64_t data_start = 0;
  uint64_t trailing_bytes = 0;  // behind the padded data of the last tensor; harmless
  bool has_data = true;         // false: the file ends where its data would begin
};

// The limits of a reader (those of a number's own size apart).
constexpr uint64_t kMaxGgufEntries = 1 << 20;                     // keys, and tensors
constexpr uint64_t kMaxGgufText = 64 << 20, kMaxGgufKey = 65535;  // bytes
constexpr uint64_t kMaxGgufTensorName = 63;
constexpr uint64_t kMaxGgufElements = 1 << 26;
constexpr uint64_t kMaxGgufKeyBytes = 1 << 30;  // all values together
constexpr uint64_t kMaxGgufAlignment = 1 << 20;

// `data_needed` false: a file without any tensor data is accepted as well.
Result<GgufIndex> parse_gguf(const ByteSource& source, bool data_needed = true);

}  // namespace invar
