// What memory this process may take.
#pragma once

#include <cstdint>

namespace invar {

// Bytes that the machine, and the control groups of this process, have free now.
int64_t available_memory();

}  // namespace invar
