// What memory this process may take.
#pragma once

#include <cstdint>
#include <string>

namespace invar {

// Bytes that the machine, and the control groups of this process, have free now or can free at once: what a
// group holds of files is no more in use than what the machine does.  `root` is what /proc and /sys lie
// under.
int64_t available_memory(const std::string& root = "");

}  // namespace invar
