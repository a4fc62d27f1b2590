// Which instruction tiers this processor has, and the choice among them.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cpu/kernels.h"

namespace invar::cpu {

std::vector<const KernelTable*> available_tiers();  // the widest last

// "auto" is the widest; a name that is unknown or that the processor lacks is an error naming those it has.
Result<const KernelTable*> choose_tier(std::string_view name);

}  // namespace invar::cpu
