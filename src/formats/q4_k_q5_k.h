// Q4_K and Q5_K: 256 weights in 8 sub-blocks of 32; a sub-block has a 6-bit scale and a 6-bit minimum over
// f16 factors; value = (d * sc) * code - (dmin * mn).  In a tile the scales are bytes: up to 2.8 % more
// memory, no unpacking.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "formats/codes.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/k_scales.h"
#include "formats/packed.h"

namespace invar {

template <int kCodeBits>
struct ScaleMin256 {
  using Activation = I8x32;
  static constexpr int block_values = 256, kBits = kCodeBits, kOffset = 0, kParts = 1;
  static constexpr Minimum kMinimum = Minimum::Subtracted;

  struct Block {
    uint16_t d, dmin;    // f16
    uint8_t scales[12];  // formats/k_scales.h
    CodesOf256<kBits> code;
  };

  struct Tile {
    Packed<kBits> code[8];
    uint8_t scale[8][kLanes], minimum[8][kLanes];
    uint16_t d[kLanes], dmin[kLanes];
  };

  static void decode(const Block& b, float* values) {
    uint8_t codes[256];
    b.code.get(codes);
    for (int s = 0; s < 8; ++s) {
      auto [sc, mn] = k_scale_min(b.scales, s);
      float scale = float_of_f16(b.d) * float(sc), minimum = float_of_f16(b.dmin) * float(mn);
      for (int i = 32 * s; i < 32 * s + 32; ++i) values[i] = scale * float(codes[i]) - minimum;
    }
  }

  static void encode(const float* values, Block& b) {
    uint8_t codes[256], scale[8], minimum[8];
    k_encode<8, (1 << kBits) - 1, 63>(values, b.d, b.dmin, scale, minimum, codes);
    k_put_scales(scale, minimum, b.scales);
    b.code.put(codes);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[256];
    b.code.get(codes);
    for (int s = 0; s < 8; ++s) {
      auto [sc, mn] = k_scale_min(b.scales, s);
      t.scale[s][lane] = sc;
      t.minimum[s][lane] = mn;
      t.code[s].put(lane, codes + 32 * s);
    }
    t.d[lane] = b.d;
    t.dmin[lane] = b.dmin;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[256], scale[8], minimum[8];
    for (int s = 0; s < 8; ++s) {
      scale[s] = t.scale[s][lane];
      minimum[s] = t.minimum[s][lane];
      t.code[s].get(lane, codes + 32 * s);
    }
    k_put_scales(scale, minimum, b.scales);
    b.code.put(codes);
    b.d = t.d[lane];
    b.dmin = t.dmin[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d) && finite_f16(b.dmin); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int s) {
    return codes_of<V, kGroup>(w.code[s]);
  }
  template <class V, int>
  static typename V::F scale(const Tile& w, int s) {
    return V::mul(V::load_f16(w.d), V::load_u8(w.scale[s]));
  }
  template <class V, int>
  static typename V::F minimum(const Tile& w, int s) {
    return V::mul(V::load_f16(w.dmin), V::load_u8(w.minimum[s]));
  }
};

struct Q4_K : ScaleMin256<4> {
  static constexpr const char* name = "Q4_K";
  static constexpr int gguf_id = 12;
};
static_assert(sizeof(Q4_K::Block) == 144);

struct Q5_K : ScaleMin256<5> {
  static constexpr const char* name = "Q5_K";
  static constexpr int gguf_id = 13;
};
static_assert(sizeof(Q5_K::Block) == 176);

}  // namespace invar
