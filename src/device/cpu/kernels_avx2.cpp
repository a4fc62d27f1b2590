// The kernels of one tier: compiled with its instructions, and nothing else in this file.
#include "device/cpu/simd_avx2.h"
// After the vector operations:
#include "device/cpu/kernels.inl"

namespace invar::cpu {

const KernelTable& avx2_kernels() {
  static const KernelTable table = kernels_of<Avx2>();
  return table;
}

}  // namespace invar::cpu
