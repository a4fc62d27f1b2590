#include "engine/model_runner.h"

#include <algorithm>

#include "base/float_env.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "decode/sampler.h"
#include "device/cpu/tiers.h"
#include "files/pack_cache.h"

namespace invar {
namespace {

constexpr int64_t kReserveBytes = 512 << 20;  // left to the rest of the machine when no budget is given
// For texts: a share of what is not needed, so that a budget that is just enough is all for the state.
constexpr int64_t kTextShare = 32, kMostTextBytes = 128 << 20;

Result<KvFormat> kv_format(const std::string& name) {
  if (name == "f16") return KvFormat::F16;
  if (name == "bf16") return KvFormat::BF16;
  if (name == "f32") return KvFormat::F32;
  return Error{Code::Usage, "--kv", "expected f16, bf16 or f32, found " + name, {}};
}

int64_t pages_of(int64_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::open(const ModelFile& file, const RunnerOptions& options,
                                                       const OpenListener& listener) {
  FloatEnv environment;
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  RunnerOptions& s = runner->settings_ = options;
  const ModelDef* def = TRY(require_model(file.architecture()));
  if (!file.has_data())
    return Error{
        Code::BadFile, file.path(), "expected a model with its tensor data, found its header only", {}};
  const cpu::KernelTable* tier = TRY(cpu::choose_tier(s.isa));
  runner->kv_ = TRY(kv_format(s.kv));
  s.isa = tier->tier;
  if (s.threads <= 0) s.threads = available_processors();
  runner->device_ = std::make_unique<cpu::CpuDevice>(*tier, s.threads);
  s.threads = runner->device_->pool().threads();
  runner->passes_ = runner->device_.get();
  TRY(runner->settle(file, *def, listener));
  return runner;
}

// Plans with sizes alone, refuses what does not fit, then loads.
Status ModelRunner::settle(const ModelFile& file, const ModelDef& def, const OpenListener& listener) {
  Loader plan(file, *device_, true, kv_);
  auto planned = TRY(def.load(plan));
  TRY(plan.finish());
  layout_ = plan.layout();
  read_bytes_ = plan.read_bytes();
  memory_.beside_bytes = settings_.beside_bytes;
  memory_.weights_bytes = device_->weight_bytes();
  memory_.allowed_bytes =
      settings_.memory_bytes > 0
          ? settings_.memory_bytes
          : std::max<int64_t>(0, available_memory() - kReserveBytes) + memory_.beside_bytes;
  // One page more than the positions need: to go on writing while a snapshot keeps the last one.
  const int64_t page = StatePool::page_bytes(layout_), fixed = StatePool::set_bytes(layout_) + page;
  const int64_t most = planned->context_length();
  if (settings_.context > most)
    return Error{Code::NoRoom,
                 "--context",
                 "expected at most " + std::to_string(most) + ", the model's own, found " +
                     std::to_string(settings_.context),
                 {}};
  const int64_t wanted = settings_.context > 0 ? settings_.context : most;
  const int64_t least = settings_.context > 0 ? wanted : std::min<int64_t>(most, kPagePositions);
  const int64_t least_state = fixed + pages_of(least) * page;
  int64_t pass_bytes = 0, other = 0, needed = 0;
  // The positions that there is room for, beside the scratch of a pass that sees `context`.
  auto room_beside = [&](int64_t context) {
    pass_bytes = planned_scratch(*planned, context);
    memory_.scratch_bytes = pass_bytes + SamplingBuffers::bytes(planned->vocab(), context);
    other = memory_.beside_bytes + memory_.weights_bytes + memory_.scratch_bytes;
    needed = other + least_state;
    memory_.text_bytes =
        std::clamp<int64_t>((memory_.allowed_bytes - needed) / kTextShare, 0, kMostTextBytes);
    other += memory_.text_bytes;
    return page > 0 ? (memory_.allowed_bytes - other - fixed) / page * kPagePositions : wanted;
  };
  int64_t context = wanted, room = room_beside(context);
  // Scratch for a context that has no room would only take from the one that has.
  while (settings_.context == 0 && room < context * 7 / 8 && context > least) {
    context = std::max({least, room, context / 2});
    room = room_beside(context);
  }
  if (needed > memory_.allowed_bytes)
    return Error{Code::NoRoom,
                 "--memory",
                 "vocabulary and program " + std::to_string(memory_.beside_bytes) + " + weights " +
                     std::to_string(memory_.weights_bytes) + " + scratch " +
                     std::to_string(memory_.scratch_bytes) + " + state of " + std::to_string(least) +
                     " positions " + std::to_string(least_state) + " = " + std::to_string(needed) +
                     " bytes are needed, " + std::to_string(memory_.allowed_bytes) + " are allowed",
                 {}};
  settings_.context = std::min(context, room);
  memory_.state_bytes = fixed + pages_of(settings_.context) * page;
  planned.reset();
  pool_ = TRY(StatePool::make(layout_, memory_.allowed_bytes - other));
  if (!device_->settle(pass_bytes))
    return Error{Code::NoRoom,
                 "--memory",
                 "the system gave no " + std::to_string(pass_bytes) + " bytes of scratch",
                 {}};
  return load(file, def, listener);
}

Status ModelRunner::load(const ModelFile& file, const ModelDef& def, const OpenListener& listener) {
  if (!settings_.pack_cache.empty())
    packs_ = std::make_unique<PackCache>(file, settings_.pack_cache, device_->pool(),
                                         PackCache::Listener{listener.progress, listener.note});
  Loader loader(file, *device_, false, kv_, packs_.get(), listener.progress);
  model_ = TRY(def.load(loader));
  TRY(loader.finish());
  if (packs_) {
    TRY(packs_->publish());
    fingerprint_ = packs_->fingerprint();
  }
  return Ok{};
}

// The most scratch of a step: any slice that sees the whole context, beside others that fill the pass.
// Slices are tried up to the size from which attention needs nothing more for each.
int64_t ModelRunner::planned_scratch(Model& model, int64_t context) {
  device_->begin_step();
  device_->forget_scratch();
  constexpr int64_t kRows = 512;
  const int64_t most = std::min<int64_t>(most_rows(), context * settings_.sequences);
  for (int64_t rows = 1; rows <= std::min({kRows, most, context}); ++rows) {
    Batch batch;
    for (int64_t left = most, n = rows; left > 0; left -= n, n = std::min(left, context))
      batch.add(nullptr, context - n, std::vector<Token>(size_t(n), 0));
    // Logits are wanted for every row at most in groups of kLogitRows; see pass.
    for (int r = 0; r < std::min<int64_t>(most, kLogitRows); ++r) batch.logit_rows.push_back(r);
    Step step(*device_, batch, views_);
    device_->begin_step();
    model.logits(step, model.forward(step), batch.logit_rows);
  }
  return device_->scratch_bytes();
}

int64_t ModelRunner::bytes_per_token(int64_t depth) const {
  int64_t per_position = 0, fixed = 0;
  for (const StateSpec& s : layout_) (s.kind == StateSpec::PerToken ? per_position : fixed) += s.bytes;
  return read_bytes_ + 2 * fixed + (depth + 1) * per_position;
}

Status ModelRunner::forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                            const OnLogits& on_logits) {
  bool wanted = true;
  while (!tokens.empty() && wanted) {
    const size_t n = std::min(tokens.size(), size_t(settings_.chunk));
    const int64_t first = sequence.position();
    CHECK(first + int64_t(n) <= settings_.context);
    if (!sequence.reserve(int64_t(n)))
      return Error{Code::NoRoom, "state",
                   "expected room for " + std::to_string(n) + " positions, found less"};
    batch_.clear();
    batch_.add(&sequence, first, tokens.first(n));
    tokens = tokens.subspan(n);
    const bool last = rows == Rows::Last && tokens.empty();
    const int from = rows == Rows::All ? 0 : int(n) - last;
    for (int r = from; r < int(n); ++r) batch_.logit_rows.push_back(r);
    pass(batch_, [&](size_t index, std::span<const float> logits) {
      return wanted = on_logits(first + from + int64_t(index), logits);
    });
  }
  return Ok{};
}

void ModelRunner::pass(const Batch& batch, const OnRow& on_row) {
  FloatEnv environment;
  CHECK(int(batch.tokens.size()) <= most_rows());
  Step step(*passes_, batch, views_);
  passes_->begin_step();
  Tensor hidden = model_->forward(step);
  for (const Slice& s : batch.slices) s.state->commit(s.span.rows);
  const std::span<const int> wanted(batch.logit_rows);
  for (size_t first = 0; first < wanted.size(); first += kLogitRows) {
    Scope scope(*passes_);
    const auto rows = wanted.subspan(first, std::min<size_t>(kLogitRows, wanted.size() - first));
    Tensor logits = model_->logits(step, hidden, rows);
    for (size_t i = 0; i < rows.size(); ++i)
      if (!on_row(first + i, {logits.row(int64_t(i)), size_t(logits.cols)})) return;
  }
}

}  // namespace invar
