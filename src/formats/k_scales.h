// The 12 bytes that hold eight 6-bit scales and eight 6-bit minimums in Q4_K and Q5_K, and the plain encoder that
// both share (spec: GGUF block layouts; the 6-bit packing is that of ggml's K-quants).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace invar {

struct ScaleMin {
  uint8_t scale, minimum;
};

static inline ScaleMin k_scale_min(const uint8_t* b, int j) {
  if (j < 4) return {uint8_t(b[j] & 63), uint8_t(b[j + 4] & 63)};
  return {uint8_t((b[j + 4] & 15) | (b[j - 4] >> 6) << 4), uint8_t((b[j + 4] >> 4) | (b[j] >> 6) << 4)};
}

static inline void k_put_scales(const uint8_t* scale, const uint8_t* minimum, uint8_t* b) {
  for (int j = 0; j < 4; ++j) {
    b[j] = uint8_t(scale[j] | (scale[j + 4] >> 4) << 6);
    b[j + 4] = uint8_t(minimum[j] | (minimum[j + 4] >> 4) << 6);
    b[j + 8] = uint8_t((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
  }
}

// Round to nearest: the scale of a sub-block spans [min(0, least), largest], minimums are not negative, and codes are
// rounded against the scales as stored.
template <int kSubBlocks, int kLargest>
static inline void k_encode(const float* values, uint16_t& d, uint16_t& dmin, uint8_t* packed, uint8_t* codes) {
  constexpr int kWidth = 256 / kSubBlocks;
  float scale[kSubBlocks], minimum[kSubBlocks];
  for (int s = 0; s < kSubBlocks; ++s) {
    auto [least, largest] = std::minmax_element(values + s * kWidth, values + (s + 1) * kWidth);
    minimum[s] = -std::min(0.0f, *least);
    scale[s] = (*largest + minimum[s]) / kLargest;
    if (scale[s] < 0) scale[s] = 0;
  }
  d = f16_of_float(*std::max_element(scale, scale + kSubBlocks) / 63);
  dmin = f16_of_float(*std::max_element(minimum, minimum + kSubBlocks) / 63);
  float df = float_of_f16(d), mf = float_of_f16(dmin);
  uint8_t sc[kSubBlocks], mn[kSubBlocks];
  for (int s = 0; s < kSubBlocks; ++s) {
    sc[s] = uint8_t(df > 0 ? std::min(63.0f, std::nearbyint(scale[s] / df)) : 0);
    mn[s] = uint8_t(mf > 0 ? std::min(63.0f, std::nearbyint(minimum[s] / mf)) : 0);
    float step = df * float(sc[s]), low = mf * float(mn[s]);
    for (int i = s * kWidth; i < (s + 1) * kWidth; ++i) {
      float code = step > 0 ? std::nearbyint((values[i] + low) / step) : 0;
      codes[i] = uint8_t(std::min(std::max(code, 0.0f), float(kLargest)));
    }
  }
  k_put_scales(sc, mn, packed);
}

}  // namespace invar
