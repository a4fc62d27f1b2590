// `invar bench --machine`: what this machine can do at best, without a model.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace invar::cli {

Result<int> bench_machine(std::span<const std::string> arguments);

}  // namespace invar::cli
