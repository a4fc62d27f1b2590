// For tests: a GGUF file as text, sound by default, each part open to damage.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files/metadata.h"

namespace invar {

template <class T>
std::string le(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string counted_text(std::string_view text) {
  return le(uint64_t(text.size())) + std::string(text);
}

// The encoded type and value of a key.
inline std::string typed(ValueType type, const std::string& bytes) { return le(int32_t(type)) + bytes; }
inline std::string text_value(std::string_view text) { return typed(ValueType::Text, counted_text(text)); }
inline std::string u32_value(uint32_t value) { return typed(ValueType::U32, le(value)); }
inline std::string array_value(int32_t element_type, uint64_t count, const std::string& elements) {
  return typed(ValueType::Array, le(element_type) + le(count) + elements);
}

struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<int64_t> ne;
    int32_t type = 0;
    std::string data;
    std::optional<uint64_t> offset = {};
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<int64_t> n_tensors = {}, n_keys = {};
  std::vector<std::pair<std::string, std::string>> keys;
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;

  std::string index() const {
    std::string out = magic + le(version) + le(n_tensors.value_or(int64_t(tensors.size()))) +
                      le(n_keys.value_or(int64_t(keys.size())));
    for (const auto& [key, value] : keys) out += counted_text(key) + value;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      out += counted_text(tensor.name) + le(uint32_t(tensor.ne.size()));
      for (const int64_t n : tensor.ne) out += le(n);
      out += le(tensor.type) + le(tensor.offset.value_or(offset));
      offset += padded(tensor.data).size();
    }
    return out;
  }

  std::string bytes() const {
    std::string out = padded(index());
    for (const Tensor& tensor : tensors) out += padded(tensor.data);
    return out;
  }

  std::string padded(std::string bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return bytes;
  }
};

// Two keys of interest and three tensors: 4 x 2 F32, 64 values of Q8_0, a vector.
inline GgufBytes sound_gguf() {
  GgufBytes file;
  file.keys = {{"general.architecture", text_value("llama")},
               {"llama.block_count", u32_value(1)},
               {"tokenizer.ggml.tokens", array_value(8, 2, counted_text("a") + counted_text("bc"))}};
  file.tensors = {{"token_embd.weight", {4, 2}, 0, std::string(32, '\1')},
                  {"blk.0.attn_q.weight", {32, 2}, 8, std::string(68, '\2')},
                  {"output_norm.weight", {3}, 0, std::string(12, '\3')}};
  return file;
}

}  // namespace invar
