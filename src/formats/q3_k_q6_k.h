// Q3_K and Q6_K: 256 weights in 16 sub-blocks of 16 with signed scales under one f16 factor;
// value = (d * scale) * (code - 4) or (code - 32).  Q3_K's scales have 6 bits in the file and are bytes in a
// tile (3.6 % more memory); Q6_K's are bytes in both.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/k_scales.h"
#include "formats/packed.h"

namespace invar {

struct Q3_K_Block {
  uint8_t high[32];  // bit s of byte l: third bit of weight 32s + l
  uint8_t low[64];   // bits 2j, 2j + 1 of byte 32h + l: weight 128h + 32j + l
  uint8_t
      scales[12];  // scale + 32: nibbles of bytes 0..7 (low ones first), then pairs of bits of bytes 8..11
  uint16_t d;      // f16
  static constexpr int kBits = 3, kLargestScale = 31;

  void get(uint8_t* codes, int8_t* scale) const {
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l)
        codes[32 * s + l] = uint8_t((low[32 * (s / 4) + l] >> 2 * (s % 4) & 3) | (high[l] >> s & 1) << 2);
    for (int s = 0; s < 16; ++s) {
      int nibble = scales[s % 8] >> 4 * (s / 8) & 15;
      scale[s] = int8_t((nibble | (scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32);
    }
  }

  void put(const uint8_t* codes, const int8_t* scale) {
    std::memset(high, 0, sizeof high);
    std::memset(low, 0, sizeof low);
    std::memset(scales, 0, sizeof scales);
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l) {
        low[32 * (s / 4) + l] |= uint8_t((codes[32 * s + l] & 3) << 2 * (s % 4));
        high[l] |= uint8_t(codes[32 * s + l] >> 2 << s);
      }
    for (int s = 0; s < 16; ++s) {
      int six = scale[s] + 32;
      scales[s % 8] |= uint8_t((six & 15) << 4 * (s / 8));
      scales[8 + s % 4] |= uint8_t(six >> 4 << 2 * (s / 4));
    }
  }
};
static_assert(sizeof(Q3_K_Block) == 110);

struct Q6_K_Block {
  uint8_t low[128];  // byte 64h + 32j + l: low nibble weight 128h + 32j + l, high nibble 64 later (j < 2)
  uint8_t high[64];  // bits 2j, 2j + 1 of byte 32h + l: high bits of weight 128h + 32j + l
  int8_t scales[16];
  uint16_t d;  // f16
  static constexpr int kBits = 6, kLargestScale = 127;

  void get(uint8_t* codes, int8_t* scale) const {
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l) {
        int h = s / 4, j = s % 4;
        int nibble = low[64 * h + 32 * (j % 2) + l] >> 4 * (j / 2) & 15;
        codes[32 * s + l] = uint8_t(nibble | (high[32 * h + l] >> 2 * j & 3) << 4);
      }
    std::memcpy(scale, scales, 16);
  }

  void put(const uint8_t* codes, const int8_t* scale) {
    std::memset(low, 0, sizeof low);
    std::memset(high, 0, sizeof high);
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l) {
        int h = s / 4, j = s % 4, code = codes[32 * s + l];
        low[64 * h + 32 * (j % 2) + l] |= uint8_t((code & 15) << 4 * (j / 2));
        high[32 * h + l] |= uint8_t(code >> 4 << 2 * j);
      }
    std::memcpy(scales, scale, 16);
  }
};
static_assert(sizeof(Q6_K_Block) == 210);

template <class FileBlock>
struct SignedScale256 {
  using Activation = I8x32;
  using Block = FileBlock;
  static constexpr int block_values = 256, kBits = Block::kBits, kOffset = 1 << (kBits - 1), kParts = 2;
  static constexpr Minimum kMinimum = Minimum::None;

  struct Tile {
    Packed<kBits> code[8];
    int8_t scale[16][kLanes];
    uint16_t d[kLanes];
  };

  static void decode(const Block& b, float* values) {
    uint8_t codes[256];
    int8_t scale[16];
    b.get(codes, scale);
    for (int s = 0; s < 16; ++s) {
      float step = float_of_f16(b.d) * float(scale[s]);
      for (int i = 16 * s; i < 16 * s + 16; ++i) values[i] = step * float(codes[i] - kOffset);
    }
  }

  static void encode(const float* values, Block& b) {
    uint8_t codes[256];
    int8_t scale[16];
    k_encode_signed<kOffset, Block::kLargestScale>(values, b.d, scale, codes);
    b.put(codes, scale);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[256];
    int8_t scale[16];
    b.get(codes, scale);
    for (int s = 0; s < 8; ++s) t.code[s].put(lane, codes + 32 * s);
    for (int s = 0; s < 16; ++s) t.scale[s][lane] = scale[s];
    t.d[lane] = b.d;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[256];
    int8_t scale[16];
    for (int s = 0; s < 8; ++s) t.code[s].get(lane, codes + 32 * s);
    for (int s = 0; s < 16; ++s) scale[s] = t.scale[s][lane];
    b.put(codes, scale);
    b.d = t.d[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int s) {
    return codes_of<V, kGroup>(w.code[s]);
  }
  template <class V, int kPart>
  static typename V::F scale(const Tile& w, int s) {
    return V::mul(V::load_f16(w.d), V::load_i8(w.scale[2 * s + kPart]));
  }
};

struct Q3_K : SignedScale256<Q3_K_Block> {
  static constexpr const char* name = "Q3_K";
  static constexpr int gguf_id = 11;
};

struct Q6_K : SignedScale256<Q6_K_Block> {
  static constexpr const char* name = "Q6_K";
  static constexpr int gguf_id = 14;
};

}  // namespace invar
