// A model ready to run: weights packed on the device, memory settled, and passes over sequences.
// Choosing tokens is decode/'s, text is engine/chat.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/operands.h"

namespace invar {

class ModelFile;
class SequenceState;

struct EngineOptions {
  int threads = 0;           // 0: what the affinity mask and the cgroup allow
  int chunk = 512;           // prompt rows per pass
  std::string isa = "auto";  // auto, scalar, avx2, avx512
  int64_t memory_bytes = 0;  // 0: what the machine or the cgroup has free, less a reserve
  int64_t context = 0;       // 0: what fits, at most the model's own
  std::string kv = "f16";    // how keys and values are stored: f16, bf16, f32
};

struct EngineMemory {
  int64_t weights_bytes = 0, state_bytes = 0, scratch_bytes = 0;
  int64_t allowed_bytes = 0;
};

class Engine {
 public:
  enum class Rows { None, Last, All };  // which rows' logits are wanted

  // Refuses before loading what does not fit, with the sum.  `progress` hears the loaded share, 0..1.
  static Result<std::unique_ptr<Engine>> open(const ModelFile& file, const EngineOptions& options,
                                              const std::function<void(double)>& progress = {});
  virtual ~Engine() = default;

  virtual const EngineOptions& settings() const = 0;  // the values in force
  virtual const EngineMemory& memory() const = 0;
  virtual int64_t vocab() const = 0;
  virtual int64_t context() const = 0;  // positions that one sequence may have
  virtual int64_t bytes_per_token(int64_t depth) const = 0;  // weights and state that one decoded token reads and writes

  virtual std::unique_ptr<SequenceState> new_sequence() = 0;  // empty

  // Appends the tokens to the sequence, `chunk` rows a pass.  `on_logits` gets each wanted row, positions ascending, and
  // stops the pass after it by returning false.  Tokens are in range and fit the context: the caller checked.
  virtual Status forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                         const std::function<bool(int64_t position, std::span<const float> logits)>& on_logits) = 0;
};

}  // namespace invar
