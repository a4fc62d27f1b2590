// The kernels of one tier: compiled with its instructions, and nothing else in this file.
#include "device/cpu/simd_avx512.h"
// After the vector operations:
#include "device/cpu/kernels.inl"

namespace invar::cpu {

const KernelTable& avx512_kernels() {
  static const KernelTable table = kernels_of<Avx512>();
  return table;
}

}  // namespace invar::cpu
