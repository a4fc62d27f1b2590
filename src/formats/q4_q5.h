// Q4_0, Q4_1, Q5_0, Q5_1: 32 codes of 4 or 5 bits share an f16 scale and, in the _1 formats, an f16 minimum.
// value = d * (code - half) or d * code + m.  Low nibbles of `low` are weights 0..15, high nibbles 16..31; a
// fifth bit of weight i is bit i of `high`.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "formats/codes.h"
#include "formats/encode.h"
#include "formats/format.h"
#include "formats/i8x32.h"
#include "formats/packed.h"

namespace invar {

// value = d * (code - 2^(kBits - 1))
template <int kCodeBits>
struct Offset32 {
  using Activation = I8x32;
  static constexpr int block_values = 32, kBits = kCodeBits, kOffset = 1 << (kBits - 1), kParts = 1;
  static constexpr Minimum kMinimum = Minimum::None;

  struct Block {
    uint16_t d;  // f16
    CodesOf32<kBits> code;
  };

  struct Tile {
    Packed<kBits> code;
    uint16_t d[kLanes];
  };

  static void decode(const Block& b, float* values) {
    uint8_t codes[32];
    b.code.get(codes);
    for (int i = 0; i < 32; ++i) values[i] = float(codes[i] - kOffset) * float_of_f16(b.d);
  }

  static void encode(const float* values, Block& b) {
    b.d = f16_clamped(fit_step(values, 32, kOffset));
    Grid grid{2 * kOffset - 1, kOffset, float_of_f16(b.d), 0};
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = grid.code(values[i]);
    b.code.put(codes);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[32];
    b.code.get(codes);
    t.code.put(lane, codes);
    t.d[lane] = b.d;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[32];
    t.code.get(lane, codes);
    b.code.put(codes);
    b.d = t.d[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int) {
    return codes_of<V, kGroup>(w.code);
  }
  template <class V, int>
  static typename V::F scale(const Tile& w, int) {
    return V::load_f16(w.d);
  }
};

// value = d * code + m
template <int kCodeBits>
struct Range32 {
  using Activation = I8x32;
  static constexpr int block_values = 32, kBits = kCodeBits, kOffset = 0, kParts = 1;
  static constexpr int kLargest = (1 << kBits) - 1;
  static constexpr Minimum kMinimum = Minimum::Added;

  struct Block {
    uint16_t d, m;  // f16
    CodesOf32<kBits> code;
  };

  struct Tile {
    Packed<kBits> code;
    uint16_t d[kLanes], m[kLanes];
  };

  static void decode(const Block& b, float* values) {
    uint8_t codes[32];
    b.code.get(codes);
    for (int i = 0; i < 32; ++i) values[i] = float(codes[i]) * float_of_f16(b.d) + float_of_f16(b.m);
  }

  static void encode(const float* values, Block& b) {
    StepLow fit = fit_range(values, 32, kLargest, false);
    b.d = f16_clamped(fit.step);
    b.m = f16_clamped(fit.low);
    Grid grid{kLargest, 0, float_of_f16(b.d), float_of_f16(b.m)};
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = grid.code(values[i]);
    b.code.put(codes);
  }

  static void pack(const Block& b, Tile& t, int lane) {
    uint8_t codes[32];
    b.code.get(codes);
    t.code.put(lane, codes);
    t.d[lane] = b.d;
    t.m[lane] = b.m;
  }

  static void unpack(const Tile& t, int lane, Block& b) {
    uint8_t codes[32];
    t.code.get(lane, codes);
    b.code.put(codes);
    b.d = t.d[lane];
    b.m = t.m[lane];
  }

  static bool finite(const Block& b) { return finite_f16(b.d) && finite_f16(b.m); }

  template <class V, int kGroup>
  static typename V::B codes(const Tile& w, int) {
    return codes_of<V, kGroup>(w.code);
  }
  template <class V, int>
  static typename V::F scale(const Tile& w, int) {
    return V::load_f16(w.d);
  }
  template <class V, int>
  static typename V::F minimum(const Tile& w, int) {
    return V::load_f16(w.m);
  }
};

struct Q4_0 : Offset32<4> {
  static constexpr const char* name = "Q4_0";
  static constexpr int gguf_id = 2;
};
static_assert(sizeof(Q4_0::Block) == 18);

struct Q4_1 : Range32<4> {
  static constexpr const char* name = "Q4_1";
  static constexpr int gguf_id = 3;
};
static_assert(sizeof(Q4_1::Block) == 20);

struct Q5_0 : Offset32<5> {
  static constexpr const char* name = "Q5_0";
  static constexpr int gguf_id = 6;
};
static_assert(sizeof(Q5_0::Block) == 22);

struct Q5_1 : Range32<5> {
  static constexpr const char* name = "Q5_1";
  static constexpr int gguf_id = 7;
};
static_assert(sizeof(Q5_1::Block) == 24);

}  // namespace invar
