// Activations for every format with integer dots: 32 codes share one scale (docs/numbers.md, N7).
// Codes are -127..127.  A block is one cache line; the sums serve the offsets and minimums of weights.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace invar {

struct I8x32 {
  using Activation = I8x32;
  static constexpr const char* name = "I8x32";
  static constexpr int gguf_id = -1, block_values = 32;

  struct alignas(64) Block {
    int8_t code[32];
    float scale;        // amax / 127
    float sum;          // scale * float(code_sum)
    float half_sum[2];  // scale * float(half_code_sum[h])
    int32_t code_sum;   // of all 32 codes
    int32_t half_code_sum[2];
    int32_t unused;
  };
  static_assert(sizeof(Block) == 64);
  using Tile = Block;  // never a weight
};

}  // namespace invar
