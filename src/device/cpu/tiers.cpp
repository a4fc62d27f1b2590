#include "device/cpu/tiers.h"

#include <cpuid.h>
#include <string>

namespace invar::cpu {

// Not a name that every compiler's __builtin_cpu_supports knows.
static bool has_f16c() {
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

std::vector<const KernelTable*> available_tiers() {
  std::vector<const KernelTable*> tiers{&scalar_kernels()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
    tiers.push_back(&avx2_kernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni"))
    tiers.push_back(&avx512_kernels());
  return tiers;
}

Result<const KernelTable*> choose_tier(std::string_view name) {
  auto tiers = available_tiers();
  if (name == "auto") return tiers.back();
  std::string known;
  for (const KernelTable* t : tiers) {
    if (name == t->tier) return t;
    known += std::string(known.empty() ? "" : ", ") + t->tier;
  }
  return Error{
      Code::Usage, "--isa",
      "expected auto or one of those this processor has (" + known + "), found " + std::string(name)};
}

}  // namespace invar::cpu
