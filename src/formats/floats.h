// F32, F16 and BF16 weights.  A tile is one k of 16 rows; the product is one fp32 fma per k and row,
// ascending.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "formats/encode.h"
#include "formats/format.h"

namespace invar {

struct F32 {
  using Activation = F32;
  static constexpr const char* name = "F32";
  static constexpr int gguf_id = 0, block_values = 1;
  using Block = float;
  struct Tile {
    float value[kLanes];
  };

  static void decode(const Block& b, float* values) { *values = b; }
  static void encode(const float* values, Block& b) { b = *values; }
  static void pack(const Block& b, Tile& t, int lane) { t.value[lane] = b; }
  static void unpack(const Tile& t, int lane, Block& b) { b = t.value[lane]; }
  static bool finite(const Block& b) { return std::isfinite(b); }

  template <class V>
  static typename V::F weights(const Tile& w) {
    return V::load(w.value);
  }
};

struct F16 {
  using Activation = F32;
  static constexpr const char* name = "F16";
  static constexpr int gguf_id = 1, block_values = 1;
  using Block = uint16_t;
  struct Tile {
    uint16_t value[kLanes];
  };

  static void decode(const Block& b, float* values) { *values = float_of_f16(b); }
  static void encode(const float* values, Block& b) { b = f16_clamped(*values); }
  static void pack(const Block& b, Tile& t, int lane) { t.value[lane] = b; }
  static void unpack(const Tile& t, int lane, Block& b) { b = t.value[lane]; }
  static bool finite(const Block& b) { return finite_f16(b); }

  template <class V>
  static typename V::F weights(const Tile& w) {
    return V::load_f16(w.value);
  }
};

struct BF16 {
  using Activation = F32;
  static constexpr const char* name = "BF16";
  static constexpr int gguf_id = 30, block_values = 1;
  static constexpr float kLargest = 0x1.fep127f;
  using Block = uint16_t;
  struct Tile {
    uint16_t value[kLanes];
  };

  static void decode(const Block& b, float* values) { *values = float_of_bf16(b); }
  static void encode(const float* values, Block& b) {
    b = bf16_of_float(std::clamp(*values, -kLargest, kLargest));
  }
  static void pack(const Block& b, Tile& t, int lane) { t.value[lane] = b; }
  static void unpack(const Tile& t, int lane, Block& b) { b = t.value[lane]; }
  static bool finite(const Block& b) { return (b & 0x7f80) != 0x7f80; }

  template <class V>
  static typename V::F weights(const Tile& w) {
    return V::load_bf16(w.value);
  }
};

}  // namespace invar
