// What the K-quants share: the 12 bytes that hold eight 6-bit scales and eight 6-bit minimums in Q4_K and
// Q5_K (GGUF block layouts; the packing is that of ggml), and the encoders with scales of scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "formats/encode.h"

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

// 256 values as (d * scale) * code - dmin * minimum, scales and minimums 0..kLargestScale.
template <int kSubBlocks, int kLargest, int kLargestScale>
static inline void k_encode(const float* values, uint16_t& d, uint16_t& dmin, uint8_t* scale,
                            uint8_t* minimum, uint8_t* codes) {
  constexpr int kWidth = 256 / kSubBlocks;
  StepLow fit[kSubBlocks];
  float step = 0, low = 0;
  for (int s = 0; s < kSubBlocks; ++s) {
    fit[s] = fit_range(values + s * kWidth, kWidth, kLargest, true);
    step = std::max(step, fit[s].step);
    low = std::min(low, fit[s].low);
  }
  d = f16_clamped(step / kLargestScale);
  dmin = f16_clamped(-low / kLargestScale);
  for (int s = 0; s < kSubBlocks; ++s) {
    scale[s] = uint8_t(rounded_ratio(fit[s].step, float_of_f16(d), 0, kLargestScale));
    minimum[s] = uint8_t(rounded_ratio(-fit[s].low, float_of_f16(dmin), 0, kLargestScale));
    Grid grid{kLargest, 0, float_of_f16(d) * float(scale[s]), -(float_of_f16(dmin) * float(minimum[s]))};
    for (int i = s * kWidth; i < (s + 1) * kWidth; ++i) codes[i] = grid.code(values[i]);
  }
}

// 256 values as (d * scale) * (code - kOffset) in 16 sub-blocks, scales -kLargestScale - 1..kLargestScale.
template <int kOffset, int kLargestScale>
static inline void k_encode_signed(const float* values, uint16_t& d, int8_t* scale, uint8_t* codes) {
  float step[16], extreme = 0;
  for (int s = 0; s < 16; ++s) {
    step[s] = fit_step(values + 16 * s, 16, kOffset);
    if (std::fabs(step[s]) > std::fabs(extreme)) extreme = step[s];
  }
  d = f16_clamped(extreme / (-kLargestScale - 1));
  for (int s = 0; s < 16; ++s) {
    scale[s] = int8_t(rounded_ratio(step[s], float_of_f16(d), -kLargestScale - 1, kLargestScale));
    Grid grid{2 * kOffset - 1, kOffset, float_of_f16(d) * float(scale[s]), 0};
    for (int i = 16 * s; i < 16 * s + 16; ++i) codes[i] = grid.code(values[i]);
  }
}

}  // namespace invar
