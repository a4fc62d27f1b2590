// The vector operations of the kernels, in plain C++: the tier that runs everywhere and defines the others'
// bits. simd_avx2.h and simd_avx512.h give the same names.  A vector has 16 lanes: F fp32, I int32, B 16 x 4
// bytes. `max` and `min` return their second operand when the comparison is false, as the instructions do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace invar::cpu {

struct Scalar {
  static constexpr const char* name = "scalar";
  static constexpr int kRows = 2, kTiles = 1;  // of activations, of weights, whose sums fit the registers
  static constexpr int kWideTiles = 1;         // the same for up to two rows
  struct F {
    float v[16];
  };
  struct I {
    int32_t v[16];
  };
  struct B {
    uint8_t v[64];
  };
  struct Mask {
    bool v[16];
  };

  template <class T, class Fn>
  static T lanes(Fn fn) {
    T r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }

  static F set(float x) {
    return lanes<F>([&](int) { return x; });
  }
  static F zero() { return set(0); }
  static F load(const float* p) {
    return lanes<F>([&](int i) { return p[i]; });
  }
  static void store(float* p, const F& a) { std::memcpy(p, a.v, sizeof a.v); }
  // The first n < 16 lanes; a load leaves 0 in the others.
  static F load_first(const float* p, int n) {
    return lanes<F>([&](int i) { return i < n ? p[i] : 0; });
  }
  static void store_first(float* p, const F& a, int n) { std::memcpy(p, a.v, size_t(n) * 4); }
  static F load_f16(const uint16_t* p) {
    return lanes<F>([&](int i) { return float_of_f16(p[i]); });
  }
  static F load_bf16(const uint16_t* p) {
    return lanes<F>([&](int i) { return float_of_bf16(p[i]); });
  }
  static F load_u8(const uint8_t* p) {
    return lanes<F>([&](int i) { return float(p[i]); });
  }
  static F load_i8(const int8_t* p) {
    return lanes<F>([&](int i) { return float(p[i]); });
  }
  static void store_f16(uint16_t* p, const F& a) {  // of finite values below 65520
    for (int i = 0; i < 16; ++i) p[i] = f16_of_float(a.v[i]);
  }
  static void store_bf16(uint16_t* p, const F& a) {  // of finite values
    for (int i = 0; i < 16; ++i) p[i] = bf16_of_float(a.v[i]);
  }

  static F add(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F sqrt(const F& a) {
    return lanes<F>([&](int i) { return std::sqrt(a.v[i]); });
  }
  // a * b + c and c - a * b, rounded once.
  static F fma(const F& a, const F& b, const F& c) {
    return lanes<F>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  static F fnma(const F& a, const F& b, const F& c) {
    return lanes<F>([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
  }
  static F max(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F min(const F& a, const F& b) {
    return lanes<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F abs(const F& a) {
    return lanes<F>([&](int i) { return std::fabs(a.v[i]); });
  }
  static Mask less(const F& a, const F& b) {
    return lanes<Mask>([&](int i) { return a.v[i] < b.v[i]; });
  }
  static F select(const Mask& m, const F& yes, const F& no) {
    return lanes<F>([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; });
  }
  static Mask first(int n) {
    return lanes<Mask>([&](int i) { return i < n; });
  }
  // The fixed tree: lane i += lane i + 8, then 4, 2, 1 (docs/numbers.md).
  static float sum(F a) {
    for (int n = 8; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) a.v[i] += a.v[i + n];
    return a.v[0];
  }
  static float largest(const F& a) {
    float m = a.v[0];
    for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
    return m;
  }

  static I set_int(int32_t x) {
    return lanes<I>([&](int) { return x; });
  }
  static I add_int(const I& a, const I& b) {
    return lanes<I>([&](int i) { return a.v[i] + b.v[i]; });
  }
  static I sub_int(const I& a, const I& b) {
    return lanes<I>([&](int i) { return a.v[i] - b.v[i]; });
  }
  template <int n>
  static I shift_left_int(const I& a) {
    return lanes<I>([&](int i) { return int32_t(uint32_t(a.v[i]) << n); });
  }
  template <int n>
  static I shift_right_int(const I& a) {  // arithmetic
    return lanes<I>([&](int i) { return a.v[i] >> n; });
  }
  static F to_float(const I& a) {
    return lanes<F>([&](int i) { return float(a.v[i]); });
  }
  static I to_int(const F& a) {  // of integral values below 2^31
    return lanes<I>([&](int i) { return int32_t(a.v[i]); });
  }
  static F as_float(const I& a) { return std::bit_cast<F>(a); }
  static I as_int(const F& a) { return std::bit_cast<I>(a); }
  static void store_i8(int8_t* p, const I& a) {  // of values -128..127
    for (int i = 0; i < 16; ++i) p[i] = int8_t(a.v[i]);
  }
  static int32_t sum_int(const I& a) {
    int32_t s = 0;
    for (int i = 0; i < 16; ++i) s += a.v[i];
    return s;
  }

  static B load_bytes(const void* p) {
    B r;
    std::memcpy(r.v, p, 64);
    return r;
  }
  static void store_bytes(void* p, const B& a) { std::memcpy(p, a.v, 64); }
  static B set_byte(uint8_t x) {
    B r;
    std::memset(r.v, x, 64);
    return r;
  }
  static B and_bytes(const B& a, const B& b) {
    B r;
    for (int i = 0; i < 64; ++i) r.v[i] = a.v[i] & b.v[i];
    return r;
  }
  static B or_bytes(const B& a, const B& b) {
    B r;
    for (int i = 0; i < 64; ++i) r.v[i] = a.v[i] | b.v[i];
    return r;
  }
  // Each 16-bit pair of bytes is shifted: mask what came over from the neighbour.
  template <int n>
  static B shift_right(const B& a) {
    uint16_t u[32];
    std::memcpy(u, a.v, 64);
    for (uint16_t& x : u) x = uint16_t(x >> n);
    return load_bytes(u);
  }
  template <int n>
  static B shift_left(const B& a) {
    uint16_t u[32];
    std::memcpy(u, a.v, 64);
    for (uint16_t& x : u) x = uint16_t(x << n);
    return load_bytes(u);
  }
  // table[byte] for bytes 0..15.
  static B lookup(const uint8_t* table, const B& a) {
    B r;
    for (int i = 0; i < 64; ++i) r.v[i] = table[a.v[i]];
    return r;
  }

  // Four activation codes, for `dot`.
  static int32_t four(const int8_t* p) {
    int32_t x;
    std::memcpy(&x, p, 4);
    return x;
  }
  // acc[lane] += sum of (weight byte - kDotOffset) * code over the lane's 4 bytes.  `dot7` has no offset and
  // wants bytes below 128.
  static constexpr int kDotOffset = 0;
  static I dot(const I& acc, const B& w, int32_t codes) {
    int8_t c[4];
    std::memcpy(c, &codes, 4);
    return lanes<I>([&](int i) {
      const uint8_t* b = w.v + 4 * i;
      return acc.v[i] + b[0] * c[0] + b[1] * c[1] + b[2] * c[2] + b[3] * c[3];
    });
  }
  static I dot7(const I& acc, const B& w, int32_t codes) { return dot(acc, w, codes); }

  // How many groups of four products may be added in 16 bits (simd_avx2.h); 1: they go into 32 at once.
  struct S {};
  static constexpr int groups_of_16_bits(int, int) { return 1; }

  // Fetches part s of n of the tile into the first-level cache; it may lie behind the last one.
  template <class Tile>
  static void fetch(const Tile*, int, int) {}
};

}  // namespace invar::cpu
