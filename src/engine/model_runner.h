// A model ready to run: weights packed on the device, memory settled, and passes over sequences.  Which rows
// go into a pass, and what comes of their logits, is the engine's or the command's business.
#pragma once

#include <algorithm>
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

constexpr int kNumericsVersion = 1;  // raised by any change that moves a bit of any logits

struct RunnerOptions {
  int threads = 0;           // 0: what the affinity mask and the cgroup allow
  int chunk = 512;           // prompt rows per pass
  std::string isa = "auto";  // auto, scalar, avx2, avx512
  int64_t memory_bytes = 0;  // 0: what the machine or the cgroup has free, less 512 MiB
  int64_t beside_bytes = 0;  // of the budget, what the caller has already: program, vocabulary
  int64_t context = 0;       // 0: what fits, at most the model's own
  std::string kv = "f16";    // how keys and values are stored: f16, bf16, f32
  std::string pack_cache;    // folder of packed weights; empty: none is used
  int sequences = 1;         // that may have a row each in one pass
};

struct RunnerMemory {
  // state: the least that is needed, of one sequence of `context` positions; scratch: of a pass, and of the
  // choice of a token
  int64_t beside_bytes = 0, weights_bytes = 0, state_bytes = 0, scratch_bytes = 0;
  int64_t text_bytes = 0;     // the most for texts that are known, see PrefixTree
  int64_t allowed_bytes = 0;  // all that the others leave of it is the state's
};

struct OpenListener {
  std::function<void(double share)> progress = {};         // of the weights that are loaded, 0..1
  std::function<void(const std::string& line)> note = {};  // what became of the pack cache
};

class ModelRunner {
 public:
  enum class Rows { None, Last, All };  // which rows' logits are wanted
  // Hears a wanted row; false stops the pass after it.
  using OnLogits = std::function<bool(int64_t position, std::span<const float> logits)>;
  // The same for the rows of a batch: the place in its logit_rows.
  using OnRow = std::function<bool(size_t index, std::span<const float> logits)>;

  // Refuses before loading what does not fit, with the sum.
  static Result<std::unique_ptr<ModelRunner>> open(const ModelFile& file, const RunnerOptions& options,
                                                   const OpenListener& listener = {});

  const RunnerOptions& settings() const { return settings_; }  // the values in force
  const RunnerMemory& memory() const { return memory_; }
  const std::string& fingerprint() const { return fingerprint_; }  // empty without a pack cache
  int64_t vocab() const { return model_->vocab(); }
  int64_t context() const { return settings_.context; }  // positions that one sequence may have
  std::span<const StateSpec> layout() const { return layout_; }
  StatePool& pool() { return *pool_; }
  // Weights and state that decoding one token after `depth` others reads and writes.
  int64_t bytes_per_token(int64_t depth) const;
  int most_rows() const { return std::max(settings_.chunk, settings_.sequences); }  // of a pass

  // Passes run on this device: the runner's own, or one that was put around it and outlives the passes.
  Device& device() { return *passes_; }
  void run_on(Device& around) { passes_ = &around; }
  ThreadPool& threads() { return device_->pool(); }

  std::unique_ptr<SequenceState> new_sequence() { return SequenceState::make(*pool_); }  // null: no room

  // Appends the tokens to the sequence, `chunk` rows a pass.  on_logits gets each wanted row, positions
  // ascending. Tokens are in range and fit the context: the caller checked.
  Status forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                 const OnLogits& on_logits);

  // One pass over rows of several sequences, at most most_rows(), for which they have reserved room.  All of
  // them are final when on_row hears the logits of batch.logit_rows.  Allocates nothing.
  void pass(const Batch& batch, const OnRow& on_row);

 private:
  ModelRunner() = default;
  Status settle(const ModelFile& file, const ModelDef& def, const OpenListener& listener);
  Status load(const ModelFile& file, const ModelDef& def, const OpenListener& listener);
  int64_t planned_scratch(Model& model, int64_t context);

  static constexpr int kLogitRows = 16;  // rows of logits that are in memory at once

  RunnerOptions settings_;
  RunnerMemory memory_;
  KvFormat kv_ = KvFormat::F16;
  std::unique_ptr<PackCache> packs_;  // weights may lie in it
  std::unique_ptr<cpu::CpuDevice> device_;
  Device* passes_ = nullptr;
  std::unique_ptr<Model> model_;
  std::vector<StateSpec> layout_;
  std::unique_ptr<StatePool> pool_;
  int64_t read_bytes_ = 0;
  std::string fingerprint_;
  Batch batch_;
  StepViews views_;
};

}  // namespace invar
