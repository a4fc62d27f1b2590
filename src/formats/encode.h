// What the encoders share: a grid of values with equal steps, and the choice of its step.  Every encoder
// first rounds its scales as the block stores them, then rounds the codes against those.  Input is finite.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace invar {

// The largest f16 instead of infinity.
static inline uint16_t f16_clamped(float x) { return f16_of_float(std::clamp(x, -65504.0f, 65504.0f)); }

// The nearest whole number to x / unit within [least, largest]; 0 without a unit.
static inline int rounded_ratio(float x, float unit, int least, int largest) {
  if (unit == 0) return 0;
  return int(std::lrint(std::clamp(x / unit, float(least), float(largest))));
}

// Values step * (code - offset) + low for codes 0..largest.
struct Grid {
  int largest, offset;
  float step, low;

  uint8_t code(float x) const {
    return uint8_t(rounded_ratio(x - low, step, -offset, largest - offset) + offset);
  }

  double error(const float* values, int n) const {
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      double e = double(step) * (code(values[i]) - offset) + double(low) - double(values[i]);
      sum += e * e;
    }
    return sum;
  }
};

// The best of several steps of a grid without `low` and with as many codes below the offset as above, plus
// one; the value of largest magnitude comes to lie near code 0.
static inline float fit_step(const float* values, int n, int offset) {
  float extreme = 0, best = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
  double least_error = INFINITY;
  for (int t = 0; t <= 8; ++t) {
    float step = extreme / (float(-offset) * (0.9f + 0.05f * float(t)));
    double error = Grid{2 * offset - 1, offset, step, 0}.error(values, n);
    if (error >= least_error) continue;
    least_error = error;
    best = step;
  }
  return best;
}

struct StepLow {
  float step, low;
};

// The best of several grids whose ends are drawn in from the ends of the values; with `below_zero`, low <= 0.
static inline StepLow fit_range(const float* values, int n, int largest, bool below_zero) {
  auto [least, most] = std::minmax_element(values, values + n);
  StepLow best{0, 0};
  double least_error = INFINITY;
  for (int t = 0; t <= 8; ++t) {
    float cut = 0.02f * float(t) * (*most / 2 - *least / 2) * 2, low = *least + cut;
    if (below_zero) low = std::min(low, 0.0f);
    float step = std::max(0.0f, (*most - cut) / float(largest) - low / float(largest));
    double error = Grid{largest, 0, step, low}.error(values, n);
    if (error >= least_error) continue;
    least_error = error;
    best = {step, low};
  }
  return best;
}

}  // namespace invar
