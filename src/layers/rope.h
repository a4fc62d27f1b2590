// Rotary positions: the frequencies of a model, in fp64 (docs/numbers.md: an fp32 angle is off by up to 0.016
// at 262,144).
#pragma once

#include <string>
#include <vector>

#include "base/math.h"
#include "base/result.h"
#include "layers/step.h"

namespace invar {

struct Rope {
  std::vector<double> frequencies;  // one per pair
  bool halves = true;               // pairs are (i, i + n), else (2i, 2i + 1)

  // base^(-2i / dims), each divided by its divisor where there are some; `linear` divides every position.
  // Fails unless each is in (0, 1]: an angle is then at most the position, which math::sincos can take.
  static Result<Rope> make(double base, int64_t dims, bool halves, const std::vector<float>& divisors = {},
                           double linear = 1) {
    Rope rope{{}, halves};
    for (int64_t i = 0; i < dims / 2; ++i) {
      double f = math::exp2(-2.0 * double(i) / double(dims) * math::log2(base)) / linear;
      if (!divisors.empty()) f /= double(divisors[size_t(i)]);
      if (!(f > 0 && f <= 1))
        return Error{Code::BadFile, "rotary positions",
                     "expected frequencies above 0 and at most 1, found " + std::to_string(f) + " for pair " +
                         std::to_string(i)};
      rope.frequencies.push_back(f);
    }
    return rope;
  }

  int64_t dims() const { return 2 * int64_t(frequencies.size()); }

  // (rows, dims): cosines, then sines, of the rows' positions.
  Tensor angles(Step& s) const {
    Tensor table = s.device.scratch(s.rows(), dims());
    s.device.angles(s.batch.positions, frequencies, table);
    return table;
  }
};

}  // namespace invar
