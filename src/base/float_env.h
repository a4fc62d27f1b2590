// The floating-point environment of every computing thread: round to nearest, gradual underflow
// (docs/numbers.md, N11). A host program may have set flush-to-zero; it gets its own setting back.
#pragma once

#include <xmmintrin.h>

namespace invar {

class FloatEnv {
 public:
  FloatEnv() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatEnv() { _mm_setcsr(before_); }
  FloatEnv(const FloatEnv&) = delete;
  FloatEnv& operator=(const FloatEnv&) = delete;

 private:
  unsigned before_;
};

}  // namespace invar
