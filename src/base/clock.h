// Seconds that only rise, for durations: since when is of no meaning.
#pragma once

#include <chrono>

namespace invar {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace invar
