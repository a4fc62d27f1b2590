// A broken invariant of our own ends the process with one line; bad input never comes here (base/result.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace invar {

[[noreturn]] inline void check_failed(const char* claim, const char* file, int line) {
  std::fprintf(stderr, "error: %s:%d: broken check: %s\n", file, line, claim);
  std::_Exit(1);
}

}  // namespace invar

#define CHECK(claim) ((claim) ? void() : ::invar::check_failed(#claim, __FILE__, __LINE__))
