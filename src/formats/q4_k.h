// Q4_K: 256 weights in 8 sub-blocks of 32; a sub-block has a 6-bit scale and a 6-bit minimum over f16 factors;
// value = (d * sc) * code - (dmin * mn).  In a tile the scales are bytes: 2.8 % more memory, no unpacking.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/k_scales.h"

namespace invar {

struct Q4_K {
  using Activation = I8x32;
  static constexpr const char* name = "Q4_K";
  static constexpr int gguf_id = 12, block_values = 256;

  struct Block {
    uint16_t d, dmin;    // f16
    uint8_t scales[12];  // formats/k_scales.h
    uint8_t code[128];   // byte 32c + l: low nibble weight 64c + l, high nibble weight 64c + 32 + l
  };
  static_assert(sizeof(Block) == 144);

  struct Tile {
    uint8_t code[8][4][kLanes][4];  // [sub-block][load][row][k % 4]; low nibble k / 4 = 2 load, high 2 load + 1
    uint8_t scale[8][kLanes], minimum[8][kLanes];
    uint16_t d[kLanes], dmin[kLanes];
  };

  static int code(const Block& b, int i) {
    uint8_t byte = b.code[32 * (i / 64) + i % 32];
    return i % 64 < 32 ? byte & 15 : byte >> 4;
  }

  static void decode(const Block& b, float* values) {
    for (int s = 0; s < 8; ++s) {
      auto [sc, mn] = k_scale_min(b.scales, s);
      float scale = float_of_f16(b.d) * float(sc), minimum = float_of_f16(b.dmin) * float(mn);
      for (int i = 32 * s; i < 32 * s + 32; ++i) values[i] = scale * float(code(b, i)) - minimum;
    }
  }

  static void encode(const float* values, Block& b) {
    uint8_t codes[256];
    k_encode<8, 15>(values, b.d, b.dmin, b.scales, codes);
    for (int i = 0; i < 128; ++i) {
      const uint8_t* pair = codes + 64 * (i / 32) + i % 32;
      b.code[i] = uint8_t(pair[0] | pair[32] << 4);
    }
  }

  static void pack(const Block& b, Tile& t, int lane) {
    for (int s = 0; s < 8; ++s) {
      auto [sc, mn] = k_scale_min(b.scales, s);
      t.scale[s][lane] = sc;
      t.minimum[s][lane] = mn;
      for (int load = 0; load < 4; ++load)
        for (int j = 0; j < 4; ++j) {
          int i = 32 * s + 8 * load + j;
          t.code[s][load][lane][j] = uint8_t(code(b, i) | code(b, i + 4) << 4);
        }
    }
    t.d[lane] = b.d;
    t.dmin[lane] = b.dmin;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[256], scale[8], minimum[8];
    for (int s = 0; s < 8; ++s) {
      scale[s] = t.scale[s][lane];
      minimum[s] = t.minimum[s][lane];
      for (int i = 0; i < 32; ++i) {
        uint8_t byte = t.code[s][i / 8][lane][i % 4];
        codes[32 * s + i] = i % 8 < 4 ? byte & 15 : byte >> 4;
      }
    }
    for (int i = 0; i < 128; ++i) {
      const uint8_t* pair = codes + 64 * (i / 32) + i % 32;
      b.code[i] = uint8_t(pair[0] | pair[32] << 4);
    }
    k_put_scales(scale, minimum, b.scales);
    b.d = t.d[lane];
    b.dmin = t.dmin[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d) && finite_f16(b.dmin); }

  template <class V, int M>
  static void dot(typename V::F (&acc)[M], const Tile& w, const I8x32::Block* const (&x)[M]) {
    const typename V::F d = V::load_f16(w.d), dmin = V::load_f16(w.dmin);
    const typename V::B low = V::set_byte(15);
    for (int s = 0; s < 8; ++s) {
      V::fetch_ahead(w, s, 8);
      typename V::I sum[M];
      for (int m = 0; m < M; ++m) sum[m] = V::set_int(0);
      for (int load = 0; load < 4; ++load) {
        typename V::B both = V::load_bytes(w.code[s][load]);
        typename V::B even = V::and_bytes(both, low);
        typename V::B odd = V::and_bytes(V::template shift_right<4>(both), low);
        for (int m = 0; m < M; ++m) {
          const int8_t* a = x[m][s].code + 8 * load;
          sum[m] = V::dot7(V::dot7(sum[m], even, V::four(a)), odd, V::four(a + 4));
        }
      }
      typename V::F scale = V::mul(d, V::load_u8(w.scale[s])), minimum = V::mul(dmin, V::load_u8(w.minimum[s]));
      for (int m = 0; m < M; ++m) {
        acc[m] = V::fma(V::to_float(sum[m]), V::mul(scale, V::set(x[m][s].scale)), acc[m]);
        acc[m] = V::fnma(minimum, V::set(x[m][s].sum), acc[m]);
      }
    }
  }
};

}  // namespace invar
