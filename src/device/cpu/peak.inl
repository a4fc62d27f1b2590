// The arithmetic peak of one thread: chains that depend on nothing but themselves.  Included by kernels.inl
// only.
#pragma once

#include "formats/product.h"

namespace invar::cpu {

constexpr int kChains = 12;  // more than latency times ports of the processors of today
// The compiler moves all chains from register to register at the end of its loop: a third of the time, if
// that were each round.
constexpr int kRoundsTogether = 16;

// 64 multiply-adds of bytes in each of kChains chains a round; rounds: a multiple of kRoundsTogether.
template <class V>
int32_t dot_peak(const uint8_t* bytes, int64_t rounds) {
  typename V::I acc[kChains];
  for (auto& a : acc) a = V::set_int(0);
  const typename V::B w = V::load_bytes(bytes);
  int8_t four[4];  // computed, so that it waits in a register and not in memory
  for (int i = 0; i < 4; ++i) four[i] = int8_t(rounds >> i & 1);
  const auto codes = V::four(four);
  for (int64_t r = 0; r < rounds; r += kRoundsTogether)
    unrolled<kRoundsTogether>([&](auto) __attribute__((always_inline)) {
      for (auto& a : acc) a = V::dot7(a, w, codes);
    });
  int32_t sum = 0;
  for (const auto& a : acc) sum ^= V::sum_int(a);
  return sum;
}

// 16 fused multiply-adds in each of kChains chains a round.
template <class V>
float fma_peak(const float* values, int64_t rounds) {
  typename V::F acc[kChains];
  for (auto& a : acc) a = V::zero();
  const typename V::F x = V::load(values), y = V::load(values + kLanes);
  for (int64_t r = 0; r < rounds; r += kRoundsTogether)
    unrolled<kRoundsTogether>([&](auto) __attribute__((always_inline)) {
      for (auto& a : acc) a = V::fma(a, x, y);
    });
  float sum = 0;
  for (const auto& a : acc) sum += V::sum(a);
  return sum;
}

}  // namespace invar::cpu
