// The parts of a model in GGUF: one file, or PREFIX-00001-of-0000N.gguf and its fellows, found from the path
// of any of them.  Every part must agree with its name and with the others.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "files/gguf.h"

namespace invar {

struct GgufPart {
  File file;
  GgufIndex index;
};

// In order; the first part carries the keys.
Result<std::vector<GgufPart>> open_gguf_parts(const std::string& path, bool data_needed = true);

}  // namespace invar
