// Writes GGUF version 3 in one canonical form: tensors sorted by layer, offsets cumulative, zero padding,
// alignment 32.  The data streams through, so a model larger than memory can be written.  The file appears
// under its name when it is complete (base/file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/ggml_types.h"
#include "files/metadata.h"

namespace invar {

struct NewTensor {
  std::string name;
  const GgmlType* type;
  std::vector<int64_t> shape;  // [.., rows, cols]

  uint64_t bytes() const;
};

using Emit = std::function<Status(std::span<const std::byte>)>;

// Called once a tensor, in the order of the file: hands all bytes of the tensor to `emit`, in any pieces.
using TensorData = std::function<Status(const NewTensor& tensor, const Emit& emit)>;

// Keys that say how a file is laid out (general.alignment, split.*) are left out: they are the writer's.
Status write_gguf(const std::string& path, const Metadata& keys, std::vector<NewTensor> tensors,
                  const TensorData& data);

// Everything but the data: enough to describe and to plan (Need::Header).
Status write_gguf_header(const std::string& path, const Metadata& keys, std::vector<NewTensor> tensors);

}  // namespace invar
