// `invar bench MODEL --workload NAME`: a generated workload on the engine, or printed for other servers.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace invar::cli {

Result<int> bench_workload(std::span<const std::string> arguments);

}  // namespace invar::cli
