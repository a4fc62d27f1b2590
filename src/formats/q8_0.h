// Q8_0: 32 signed codes share one f16 scale; value = scale * code.  A file may hold -128.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "formats/encode.h"
#include "formats/format.h"
#include "formats/i8x32.h"

namespace invar {

struct Q8_0 {
  using Activation = I8x32;
  static constexpr const char* name = "Q8_0";
  static constexpr int gguf_id = 8, block_values = 32, kBits = 8, kOffset = 128, kParts = 1;
  static constexpr Minimum kMinimum = Minimum::None;

  struct Block {
    uint16_t scale;  // f16
    int8_t code[32];
  };
  static_assert(sizeof(Block) == 34);

  struct Tile {
    uint8_t code[8][kLanes][4];  // [k / 4][row][k % 4], code + 128
    uint16_t scale[kLanes];
  };

  static void decode(const Block& b, float* values) {
    float d = float_of_f16(b.scale);
    for (int i = 0; i < 32; ++i) values[i] = float(b.code[i]) * d;
  }

  static void encode(const float* values, Block& b) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(values[i]));
    b.scale = f16_clamped(largest / 127);
    for (int i = 0; i < 32; ++i)
      b.code[i] = int8_t(rounded_ratio(values[i], float_of_f16(b.scale), -127, 127));
  }

  static void pack(const Block& b, Tile& t, int lane) {
    for (int i = 0; i < 32; ++i) t.code[i / 4][lane][i % 4] = uint8_t(b.code[i] + 128);
    t.scale[lane] = b.scale;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    for (int i = 0; i < 32; ++i) b.code[i] = int8_t(t.code[i / 4][lane][i % 4] - 128);
    b.scale = t.scale[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.scale); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int) {
    return V::load_bytes(w.code[kGroup]);
  }
  template <class V, int>
  static typename V::F scale(const Tile& w, int) {
    return V::load_f16(w.scale);
  }
};

}  // namespace invar
