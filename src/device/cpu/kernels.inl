// Fills a kernel table for one tier V.  Included by kernels_<tier>.cpp alone, after the tier's vector
// operations; what is defined here is a template on V or has internal linkage, so that no wide instruction
// leaks into other files.
#pragma once

#include <cmath>

#include "device/cpu/kernels.h"
#include "device/cpu/math.inl"
#include "device/cpu/matmul.inl"
#include "device/cpu/rows.inl"
// After rows.inl:
#include "device/cpu/attention.inl"
#include "device/cpu/peak.inl"
#include "device/cpu/recurrent.inl"

namespace invar::cpu {

template <class V>
KernelTable kernels_of() {
  KernelTable t{};
  t.tier = V::name;
  AllFormats::each([&]<class F>() {
    if constexpr (F::gguf_id >= 0) t.matmul[int(format_of<F>)] = matmul<V, F>;
  });
  t.pack_i8x32 = pack_i8x32<V>;
  t.rms_norm = rms_norm<V>;
  t.gated_rms_norm = gated_rms_norm<V>;
  t.l2_norm = l2_norm<V>;
  t.add = add<V>;
  t.sigmoid_gate = sigmoid_gate<V>;
  t.multiply_add = multiply_add<V>;
  t.rope = rope<V>;
  t.store_kv[int(KvFormat::F16)] = store_kv<V, F16Kv>;
  t.store_kv[int(KvFormat::BF16)] = store_kv<V, Bf16Kv>;
  t.store_kv[int(KvFormat::F32)] = store_kv<V, F32Kv>;
  t.attend[int(KvFormat::F16)] = attend<V, F16Kv>;
  t.attend[int(KvFormat::BF16)] = attend<V, Bf16Kv>;
  t.attend[int(KvFormat::F32)] = attend<V, F32Kv>;
  t.merge = merge<V>;
  t.finish = finish<V>;
  t.conv = conv<V>;
  t.delta_gates = delta_gates<V>;
  t.delta = delta<V>;
  t.softmax = softmax<V>;
  t.sigmoid = sigmoid_row<V>;
  t.dot_peak = dot_peak<V>;
  t.fma_peak = fma_peak<V>;
  return t;
}

}  // namespace invar::cpu
