// Writes a model of a named shape with random weights: valid, fast to make, the same bytes for the same seed
// on any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "files/gguf_writer.h"
#include "models/synth/shapes.h"

namespace invar {

struct SynthOptions {
  std::string mix = "BF16";  // a format for all matrices, or Q4_K_M
  uint64_t seed = 0;
  bool header_only = false;
};

std::vector<std::string> mix_names();

// The tensors of the shape with their formats, in the order of the file.
Result<std::vector<NewTensor>> mixed_tensors(const Shape& shape, const std::string& mix);

// `go_on` hears the written share, 0..1; false ends the work with Code::Cancelled and leaves no file.
Status synthesize(const Shape& shape, const std::string& path, const SynthOptions& options, ThreadPool& pool,
                  const std::function<bool(double)>& go_on);

}  // namespace invar
