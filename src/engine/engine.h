// A model ready to run: weights packed on the device, memory settled, and passes over sequences.
// Choosing tokens is decode/'s, text is engine/chat.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/cpu/cpu_device.h"
#include "models/model.h"
#include "state/state.h"

namespace invar {

struct EngineOptions {
  int threads = 0;           // 0: what the affinity mask and the cgroup allow
  int chunk = 512;           // prompt rows per pass
  std::string isa = "auto";  // auto, scalar, avx2, avx512
  int64_t memory_bytes = 0;  // 0: what the machine or the cgroup has free, less a reserve
  int64_t context = 0;       // 0: what fits, at most the model's own
  std::string kv = "f16";    // how keys and values are stored: f16, bf16, f32
  std::string pack_cache;    // folder of packed weights; empty: none is used
};

struct EngineMemory {
  int64_t weights_bytes = 0, state_bytes = 0,
          scratch_bytes = 0;  // state: of one sequence of `context` positions
  int64_t allowed_bytes = 0;
};

struct OpenListener {
  std::function<void(double share)> progress = {};         // of the weights that are loaded, 0..1
  std::function<void(const std::string& line)> note = {};  // what became of the pack cache
};

class Engine {
 public:
  enum class Rows { None, Last, All };  // which rows' logits are wanted
  // Hears a wanted row; false stops the pass after it.
  using OnLogits = std::function<bool(int64_t position, std::span<const float> logits)>;

  // Refuses before loading what does not fit, with the sum.
  static Result<std::unique_ptr<Engine>> open(const ModelFile& file, const EngineOptions& options,
                                              const OpenListener& listener = {});

  const EngineOptions& settings() const { return settings_; }  // the values in force
  const EngineMemory& memory() const { return memory_; }
  const std::string& fingerprint() const { return fingerprint_; }  // empty without a pack cache
  int64_t vocab() const { return model_->vocab(); }
  int64_t context() const { return settings_.context; }  // positions that one sequence may have
  // Weights and state that decoding one token after `depth` others reads and writes.
  int64_t bytes_per_token(int64_t depth) const;

  // Passes run on this device: the engine's own, or one that was put around it and outlives the passes.
  Device& device() { return *passes_; }
  void run_on(Device& around) { passes_ = &around; }

  std::unique_ptr<SequenceState> new_sequence() {
    return SequenceState::make(*pool_);
  }  // null: the last one lives

  // Appends the tokens to the sequence, `chunk` rows a pass.  on_logits gets each wanted row, positions
  // ascending. Tokens are in range and fit the context: the caller checked.
  Status forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                 const OnLogits& on_logits);

 private:
  Engine() = default;
  Status settle(const ModelFile& file, const ModelDef& def, const OpenListener& listener);
  Status load(const ModelFile& file, const ModelDef& def, const OpenListener& listener);
  int64_t planned_scratch(Model& model, int64_t context);

  static constexpr int kLogitRows = 16;  // rows of logits that are in memory at once

  EngineOptions settings_;
  EngineMemory memory_;
  KvFormat kv_ = KvFormat::F16;
  std::unique_ptr<cpu::CpuDevice> device_;
  Device* passes_ = nullptr;
  std::unique_ptr<Model> model_;
  std::vector<StateSpec> layout_;
  std::unique_ptr<StatePool> pool_;
  int64_t read_bytes_ = 0;
  std::string fingerprint_;
  Batch batch_;
};

}  // namespace invar
