// The arithmetic peak of one thread: chains that depend on nothing but themselves.  Included by kernels.inl
// only.
#pragma once

#include <type_traits>

#include "formats/product.h"

namespace invar::cpu {

// More than latency times ports of the processors of today, and few enough for the registers.
template <class V>
constexpr int kChains = V::kTiles > 1 ? 12 : 5;
// The compiler moves all chains from register to register at the end of its loop: a third of the time, if
// that were each round.
constexpr int kRoundsTogether = 16;

// After it the compiler knows x no longer: what is computed of it is computed anew.
template <class T>
[[gnu::always_inline]] static inline void forget(T& x) {
  if constexpr (std::is_integral_v<T>) asm volatile("" : "+r"(x));
  else asm volatile("" : "+v"(x));
}

// 64 multiply-adds of bytes a step; steps: a multiple of kPeakSteps.
template <class V>
int32_t dot_peak(const uint8_t* bytes, int64_t steps) {
  static_assert(kPeakSteps % (kChains<V> * kRoundsTogether) == 0);
  typename V::I acc[kChains<V>];
  for (auto& a : acc) a = V::set_int(0);
  const typename V::B w = V::load_bytes(bytes);
  int8_t four[4];  // computed, so that it waits in a register and not in memory
  for (int i = 0; i < 4; ++i) four[i] = int8_t(steps >> i & 1);
  auto codes = V::four(four);
  for (int64_t i = 0; i < steps; i += kChains<V> * kRoundsTogether)
    unrolled<kRoundsTogether>([&](auto) __attribute__((always_inline)) {
      for (auto& a : acc) {
        forget(codes);
        a = V::dot7(a, w, codes);
      }
    });
  int32_t sum = 0;
  for (const auto& a : acc) sum ^= V::sum_int(a);
  return sum;
}

// 16 fused multiply-adds a step.
template <class V>
float fma_peak(const float* values, int64_t steps) {
  typename V::F acc[kChains<V>];
  for (auto& a : acc) a = V::zero();
  const typename V::F x = V::load(values), y = V::load(values + kLanes);
  for (int64_t i = 0; i < steps; i += kChains<V> * kRoundsTogether)
    unrolled<kRoundsTogether>([&](auto) __attribute__((always_inline)) {
      for (auto& a : acc) a = V::fma(a, x, y);
    });
  float sum = 0;
  for (const auto& a : acc) sum += V::sum(a);
  return sum;
}

}  // namespace invar::cpu
