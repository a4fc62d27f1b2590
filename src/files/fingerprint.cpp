#include "files/fingerprint.h"

#include <algorithm>
#include <vector>

namespace invar {

void Fingerprint::add(const TensorEntry& tensor, const Digest& digest_of_bytes) {
  std::string line = tensor.name + " " + tensor.format + " [";
  for (const int64_t n : tensor.shape) line += std::to_string(n) + ",";
  lines_[tensor.name] = line + "] " + hex(digest_of_bytes) + "\n";
}

std::string Fingerprint::finish(const Metadata& keys, const std::string& architecture) const {
  std::map<std::string, std::string> values;  // by key
  for (const Metadata::Entry& entry : keys.entries()) {
    if (entry.key != "general.architecture" && !entry.key.starts_with(architecture + ".")) continue;
    const Value& value = entry.value;
    values[entry.key] = entry.key + " " + name_of(value.type) + (value.is_array ? "[] " : " ") +
                        std::to_string(value.count) + " " +
                        hex(sha256(std::as_bytes(std::span(value.bytes)))) + "\n";
  }
  Sha256 hash;
  for (const auto& [name, line] : lines_) hash.update(line);
  for (const auto& [key, line] : values) hash.update(line);
  return hex(hash.finish());
}

Result<Digest> digest_of(const ModelFile& file, const TensorEntry& tensor) {
  constexpr uint64_t kPiece = 4 << 20;
  std::vector<std::byte> piece(std::min(kPiece, tensor.bytes));
  Sha256 hash;
  for (uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), tensor.bytes - at));
    TRY(file.read(tensor, at, piece));
    hash.update(piece);
  }
  return hash.finish();
}

Result<std::string> fingerprint_of(const ModelFile& file) {
  Fingerprint fingerprint;
  for (const TensorEntry& tensor : file.tensors()) fingerprint.add(tensor, TRY(digest_of(file, tensor)));
  return fingerprint.finish(file.keys(), file.architecture());
}

}  // namespace invar
