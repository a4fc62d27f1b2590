// Q2_K: 256 weights in 16 sub-blocks of 16; a sub-block has a 4-bit scale and a 4-bit minimum over f16
// factors; value = (d * sc) * code - (dmin * mn).  A tile is as large as its file blocks: the scales keep
// their nibbles.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/k_scales.h"
#include "formats/packed.h"

namespace invar {

struct Q2_K {
  using Activation = I8x32;
  static constexpr const char* name = "Q2_K";
  static constexpr int gguf_id = 10, block_values = 256, kBits = 2, kOffset = 0, kParts = 2;
  static constexpr Minimum kMinimum = Minimum::Subtracted;

  struct Block {
    uint8_t scales[16];  // low nibble scale, high nibble minimum
    uint8_t code[64];    // bits 2j, 2j + 1 of byte 32h + l: weight 128h + 32j + l
    uint16_t d, dmin;    // f16
  };
  static_assert(sizeof(Block) == 84);

  struct Tile {
    Packed<2> code[8];
    uint8_t scales[4][kLanes][4];  // [sub-block / 4][row][sub-block % 4]
    uint16_t d[kLanes], dmin[kLanes];
  };

  static void get_codes(const Block& b, uint8_t* codes) {
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l) codes[32 * s + l] = b.code[32 * (s / 4) + l] >> 2 * (s % 4) & 3;
  }

  static void put_codes(const uint8_t* codes, Block& b) {
    for (int i = 0; i < 64; ++i) {
      const uint8_t* c = codes + 128 * (i / 32) + i % 32;
      b.code[i] = uint8_t(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
  }

  static void decode(const Block& b, float* values) {
    uint8_t codes[256];
    get_codes(b, codes);
    for (int s = 0; s < 16; ++s) {
      float scale = float_of_f16(b.d) * float(b.scales[s] & 15);
      float minimum = float_of_f16(b.dmin) * float(b.scales[s] >> 4);
      for (int i = 16 * s; i < 16 * s + 16; ++i) values[i] = scale * float(codes[i]) - minimum;
    }
  }

  static void encode(const float* values, Block& b) {
    uint8_t codes[256], scale[16], minimum[16];
    k_encode<16, 3, 15>(values, b.d, b.dmin, scale, minimum, codes);
    for (int s = 0; s < 16; ++s) b.scales[s] = uint8_t(scale[s] | minimum[s] << 4);
    put_codes(codes, b);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[256];
    get_codes(b, codes);
    for (int s = 0; s < 8; ++s) t.code[s].put(lane, codes + 32 * s);
    for (int s = 0; s < 16; ++s) t.scales[s / 4][lane][s % 4] = b.scales[s];
    t.d[lane] = b.d;
    t.dmin[lane] = b.dmin;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[256];
    for (int s = 0; s < 8; ++s) t.code[s].get(lane, codes + 32 * s);
    put_codes(codes, b);
    for (int s = 0; s < 16; ++s) b.scales[s] = t.scales[s / 4][lane][s % 4];
    b.d = t.d[lane];
    b.dmin = t.dmin[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d) && finite_f16(b.dmin); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int s) {
    return codes_of<V, kGroup>(w.code[s]);
  }

  // The nibbles of scales, from bit kShift on, of sub-block 2 * s + part.
  template <class V, int kPart, int kShift>
  static typename V::F nibbles(const Tile& w, int s) {
    typename V::B bytes = V::load_bytes(w.scales[s / 2]);
    if constexpr (kShift > 0) bytes = V::template shift_right<kShift>(bytes);
    bytes = V::and_bytes(bytes, V::set_byte(15));
    return V::to_float(V::dot7(V::set_int(0), bytes, V::four(kUnit[2 * (s % 2) + kPart])));
  }
  template <class V, int kPart>
  static typename V::F scale(const Tile& w, int s) {
    return V::mul(V::load_f16(w.d), nibbles<V, kPart, 0>(w, s));
  }
  template <class V, int kPart>
  static typename V::F minimum(const Tile& w, int s) {
    return V::mul(V::load_f16(w.dmin), nibbles<V, kPart, 4>(w, s));
  }
};

}  // namespace invar
