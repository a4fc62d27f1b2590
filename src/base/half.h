// f16, bf16 and f32 bit by bit, round to nearest even.  Everything is `static`: the tier files include
// this too, and a shared inline function could be emitted there with wide instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace invar {

static inline float float_of_bf16(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

// NaN stays a quiet NaN.
static inline uint16_t bf16_of_float(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t((u >> 16) | 0x40);
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static inline float float_of_f16(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = float(int(fraction)) * 0x1p-24f;  // exact
  return std::bit_cast<float>(std::bit_cast<uint32_t>(tiny) | sign);
}

// Overflow gives infinity.
static inline uint16_t f16_of_float(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return uint16_t(sign | 0x7e00 | ((a >> 13) & 0x3ff));
  if (a >= 0x477ff000) return uint16_t(sign | 0x7c00);  // 65520 and up
  if (a < 0x38800000) {                                 // below 2^-14: subnormal, units of 2^-24
    float r = std::bit_cast<float>(a) + 0.5f;           // 0.5 has an ulp of 2^-24: rounds to even there
    return uint16_t(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000));
  }
  a += 0xfff + ((a >> 13) & 1);
  return uint16_t(sign | ((a - 0x38000000) >> 13));
}

// True for a finite f16.
static inline bool finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

}  // namespace invar
