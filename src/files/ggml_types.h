// Every tensor type a GGUF file may name: number, name and block size.  A file whose types are known here
// can be opened and described; whether the engine computes with a type is decided where weights are loaded
// (formats/all.h).  Source: the GGUF specification's table of ggml types.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace invar {

struct GgmlType {
  int32_t id;
  const char* name;
  int block_values;
  int block_bytes;
};

constexpr int32_t kGgmlF32 = 0, kGgmlF16 = 1, kGgmlBF16 = 30;

std::span<const GgmlType> ggml_types();
const GgmlType* find_ggml_type(int32_t id);  // null: never given out, or retired
const GgmlType* find_ggml_type(std::string_view name);

}  // namespace invar
