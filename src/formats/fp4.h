// MXFP4 and NVFP4: E2M1 values under a power of two per 32 weights (E8M0), or an unsigned E4M3 scale per 16.
// Values are doubled to be whole and the scales halved to match.  A per-tensor scale of NVFP4 is outside the
// block.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "formats/codes.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/packed.h"

namespace invar {

constexpr int kFp4Offset = 12;
constexpr uint8_t kFp4[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                              12, 11, 10, 9,  8,  6,  4,  0};  // 2 * value + kFp4Offset

static inline float fp4_value(uint8_t code) { return float(kFp4[code] - kFp4Offset); }

// The nearest value, of two the smaller; never -0.
static inline uint8_t fp4_code(float x) {
  int code = 0;
  for (float middle : {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f}) code += std::fabs(x) > middle;
  return uint8_t(code > 0 && x < 0 ? code | 8 : code);
}

static inline double fp4_error(const float* values, int n, float scale) {
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    double e = double(scale > 0 ? fp4_value(fp4_code(values[i] / scale)) * scale : 0) - double(values[i]);
    sum += e * e;
  }
  return sum;
}

static inline float largest_magnitude(const float* values, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(values[i]));
  return largest;
}

struct MXFP4 {
  using Activation = I8x32;
  static constexpr const char* name = "MXFP4";
  static constexpr int gguf_id = 39, block_values = 32, kBits = 5, kOffset = kFp4Offset, kParts = 1;
  static constexpr Minimum kMinimum = Minimum::None;
  static constexpr int kLargestExponent = 252;  // 12 * 2^(252 - 128) is the last finite product

  struct Block {
    uint8_t exponent;  // scale of doubled values 2^(exponent - 128)
    CodesOf32<4> code;
  };
  static_assert(sizeof(Block) == 17);

  struct Tile {
    Packed<4> code;
    uint8_t exponent[kLanes];
  };

  static float scale_of(uint8_t exponent) {
    return std::bit_cast<float>(exponent == 0 ? 0x00400000u : uint32_t(exponent) << 23) * 0.5f;
  }

  static void decode(const Block& b, float* values) {
    uint8_t codes[32];
    b.code.get(codes);
    for (int i = 0; i < 32; ++i) values[i] = fp4_value(codes[i]) * scale_of(b.exponent);
  }

  // The largest magnitude falls into [4, 8) or [2, 4) of E2M1, whichever is better.
  static void encode(const float* values, Block& b) {
    float largest = largest_magnitude(values, 32);
    int exponent = largest > 0 ? std::clamp(std::ilogb(largest) - 2 + 127, 0, kLargestExponent - 1) : 0;
    float low = scale_of(uint8_t(exponent)), high = scale_of(uint8_t(exponent + 1));
    b.exponent = uint8_t(exponent + (fp4_error(values, 32, high) < fp4_error(values, 32, low)));
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = fp4_code(values[i] / scale_of(b.exponent));
    b.code.put(codes);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[32];
    b.code.get(codes);
    t.code.put(lane, codes);
    t.exponent[lane] = b.exponent;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[32];
    t.code.get(lane, codes);
    b.code.put(codes);
    b.exponent = t.exponent[lane];
  }

  // 255 is NaN, and above kLargestExponent some values overflow.
  static bool finite(const Block& b) {
    if (b.exponent <= kLargestExponent) return true;
    float values[32];
    decode(b, values);
    for (float v : values)
      if (!std::isfinite(v)) return false;
    return true;
  }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int) {
    return V::lookup(kFp4, codes_of<V, kGroup>(w.code));
  }
  template <class V, int>
  static typename V::F scale(const Tile& w, int) {
    const typename V::I bits = V::template shift_left_int<23>(V::to_int(V::load_u8(w.exponent)));
    return V::mul(V::max(V::as_float(bits), V::set(0x1p-127f)), V::set(0.5f));
  }
};

struct NVFP4 {
  using Activation = I8x32;
  static constexpr const char* name = "NVFP4";
  static constexpr int gguf_id = 40, block_values = 64, kBits = 5, kOffset = kFp4Offset, kParts = 2;
  static constexpr Minimum kMinimum = Minimum::None;

  struct Block {
    uint8_t scale[4];    // UE4M3 of 16 weights each
    uint8_t code[4][8];  // [sub-block]: low nibbles its weights 0..7, high nibbles 8..15
  };
  static_assert(sizeof(Block) == 36);

  struct Tile {
    Packed<4> code[2];
    uint8_t scale[kLanes][4];
  };

  // Half of UE4M3: below 8 subnormal, m * 2^-10; from there on the bits of an fp32 moved down, its exponent
  // 119 less.
  static float scale_of(uint8_t byte) {
    if (byte == 0x7f) return 0;
    byte &= 0x7f;
    return byte < 8 ? float(byte) * 0x1p-10f : std::bit_cast<float>((uint32_t(byte) << 20) + (119u << 23));
  }

  static uint8_t nearest_scale(float x) {
    if (x < 0x1p-7f) return uint8_t(std::lrint(x * 0x1p10f));
    uint32_t above = std::bit_cast<uint32_t>(x) - (119u << 23) + (1u << 19);
    return uint8_t(std::min(above >> 20, 0x7eu));
  }

  static void get_codes(const Block& b, uint8_t* codes) {
    for (int i = 0; i < 64; ++i) codes[i] = b.code[i / 16][i % 8] >> 4 * (i % 16 / 8) & 15;
  }

  static void put_codes(const uint8_t* codes, Block& b) {
    for (int s = 0; s < 4; ++s)
      for (int j = 0; j < 8; ++j) b.code[s][j] = uint8_t(codes[16 * s + j] | codes[16 * s + j + 8] << 4);
  }

  static void decode(const Block& b, float* values) {
    uint8_t codes[64];
    get_codes(b, codes);
    for (int i = 0; i < 64; ++i) values[i] = fp4_value(codes[i]) * scale_of(b.scale[i / 16]);
  }

  // The largest magnitude becomes 6 or 4 of E2M1, whichever is better.
  static void encode(const float* values, Block& b) {
    uint8_t codes[64];
    for (int s = 0; s < 4; ++s) {
      const float* part = values + 16 * s;
      float largest = largest_magnitude(part, 16);
      uint8_t six = nearest_scale(largest / 12), four = nearest_scale(largest / 8);
      b.scale[s] = fp4_error(part, 16, scale_of(four)) < fp4_error(part, 16, scale_of(six)) ? four : six;
      float scale = scale_of(b.scale[s]);
      for (int i = 0; i < 16; ++i) codes[16 * s + i] = scale > 0 ? fp4_code(part[i] / scale) : 0;
    }
    put_codes(codes, b);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[64];
    get_codes(b, codes);
    for (int s = 0; s < 2; ++s) t.code[s].put(lane, codes + 32 * s);
    std::memcpy(t.scale[lane], b.scale, 4);
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[64];
    for (int s = 0; s < 2; ++s) t.code[s].get(lane, codes + 32 * s);
    put_codes(codes, b);
    std::memcpy(b.scale, t.scale[lane], 4);
  }

  // UE4M3 has no sign: bytes above the NaN 0x7f are in no valid file, and `scale` relies on it.
  static bool finite(const Block& b) {
    return b.scale[0] < 0x7f && b.scale[1] < 0x7f && b.scale[2] < 0x7f && b.scale[3] < 0x7f;
  }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int s) {
    return V::lookup(kFp4, codes_of<V, kGroup>(w.code[s]));
  }
  template <class V, int kPart>
  static typename V::F scale(const Tile& w, int s) {
    // As in scale_of.
    const typename V::I byte = V::dot7(V::set_int(0), V::load_bytes(w.scale), V::four(kUnit[2 * s + kPart]));
    const typename V::F number = V::to_float(byte);
    const typename V::F normal =
        V::as_float(V::add_int(V::template shift_left_int<20>(byte), V::set_int(119 << 23)));
    return V::select(V::less(number, V::set(8)), V::mul(number, V::set(0x1p-10f)), normal);
  }
};

}  // namespace invar
