// The kernels of one tier: compiled with its instructions, and nothing else in this file.
#include "device/cpu/simd_scalar.h"
// After the vector operations:
#include "device/cpu/kernels.inl"

namespace invar::cpu {

const KernelTable& scalar_kernels() {
  static const KernelTable table = kernels_of<Scalar>();
  return table;
}

}  // namespace invar::cpu
