// What identifies a model: SHA-256 over its tensors (name, format, shape, SHA-256 of the bytes; sorted by
// name) and the keys that the forward pass reads (general.architecture and all below the architecture).
// Equal for a split and a joined file; path, tokenizer and other keys do not matter.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "base/sha256.h"
#include "files/model_file.h"

namespace invar {

class Fingerprint {
 public:
  void add(const TensorEntry& tensor, const Digest& digest_of_bytes);               // in any order
  std::string finish(const Metadata& keys, const std::string& architecture) const;  // 64 hexadecimal digits

 private:
  std::map<std::string, std::string> lines_;  // by tensor name
};

Result<Digest> digest_of(const ModelFile& file, const TensorEntry& tensor);

// Reads all weights once.
Result<std::string> fingerprint_of(const ModelFile& file);

}  // namespace invar
