// What the fuzz targets do with one input.  The unit test of the corpus runs the same functions, so a file
// that once broke something stays in every test run.  True: the input was accepted.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/check.h"
#include "files/gguf.h"
#include "files/hf_config.h"
#include "files/safetensors.h"
#include "state/store_format.h"

namespace invar {

inline void read_byte(const ByteSource& source, uint64_t offset) {
  std::byte byte;
  CHECK(source.read(offset, {&byte, 1}));
}

// Every value can be had by one of the getters; only numbers may be out of all ranges.
inline void decode_all(const Metadata& keys) {
  for (const auto& [key, value] : keys.entries()) {
    const bool decodes = keys.texts(key) || keys.reals(key) || keys.integers(key) || keys.booleans(key);
    CHECK(decodes || value.type == ValueType::U64 || value.type == ValueType::F32 ||
          value.type == ValueType::F64);
  }
}

// Parses, decodes every value, and touches the first and the last byte of each tensor.
inline bool fuzz_gguf(std::span<const std::byte> bytes) {
  const ByteSource source = source_of(bytes, "input");
  const Result<GgufIndex> header = parse_gguf(source, /*data_needed=*/false);
  const Result<GgufIndex> index = parse_gguf(source);
  CHECK(header || !index);  // whole files have a header
  if (!index) {
    CHECK(!index.error().message.empty() && !index.error().where.empty());
    return false;
  }
  decode_all(index->keys);
  for (const GgufTensor& tensor : index->tensors) {
    CHECK(tensor.bytes > 0);
    read_byte(source, tensor.offset);
    read_byte(source, tensor.offset + tensor.bytes - 1);
  }
  return true;
}

inline bool fuzz_safetensors(std::span<const std::byte> bytes) {
  const ByteSource source = source_of(bytes, "input");
  const Result<std::vector<SafeTensor>> tensors = parse_safetensors(source);
  if (!tensors) {
    CHECK(!tensors.error().message.empty());
    return false;
  }
  for (const SafeTensor& tensor : *tensors) {
    if (tensor.bytes == 0) continue;
    read_byte(source, tensor.offset);
    read_byte(source, tensor.offset + tensor.bytes - 1);
  }
  return true;
}

inline bool fuzz_config(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Result<HfConfig> config = parse_hf_config(text, "config.json");
  if (!config) {
    CHECK(!config.error().message.empty() && !config.error().where.empty());
    return false;
  }
  decode_all(config->keys);
  return true;
}

// A file of the disk store: a head with its body, or a page.
inline bool fuzz_stored_state(std::span<const std::byte> bytes) {
  std::vector<std::byte> page(256);
  const Digest digest = sha256(page);  // of zeros
  if (const Status page_read = unpack_blob(bytes, digest, page, "input"); page_read) {
    CHECK(sha256(page) == digest);
    return true;
  } else {
    CHECK(!page_read.error().message.empty() && page_read.error().where == "input");
  }
  const Result<StateHead> head = parse_head(bytes, "input");
  if (!head) return false;
  CHECK(head->position > 0 && head->body_bytes() > 0 && bytes.size() >= kHeadBytes);
  const Result<StateBody> body = parse_body(*head, bytes.subspan(kHeadBytes), "input");
  if (!body) return false;
  CHECK(int64_t(body->tokens.size()) == head->position && int64_t(body->pages.size()) == head->pages());
  return true;
}

}  // namespace invar
