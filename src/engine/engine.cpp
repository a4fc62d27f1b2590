#include "engine/engine.h"

#include <algorithm>

#include "base/float_env.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "device/cpu/tiers.h"

namespace invar {
namespace {

constexpr int64_t kReserveBytes = 512 << 20;  // left to the rest of the machine when no budget is given

Result<KvFormat> kv_format(const std::string& name) {
  if (name == "f16") return KvFormat::F16;
  if (name == "bf16") return KvFormat::BF16;
  if (name == "f32") return KvFormat::F32;
  return Error{Code::Usage, "--kv", "expected f16, bf16 or f32, found " + name, {}};
}

int64_t pages_of(int64_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const ModelFile& file, const EngineOptions& options,
                                             const OpenListener& listener) {
  FloatEnv environment;
  std::unique_ptr<Engine> engine(new Engine);
  EngineOptions& s = engine->settings_ = options;
  const ModelDef* def = TRY(require_model(file.architecture()));
  if (!file.has_data())
    return Error{
        Code::BadFile, file.path(), "expected a model with its tensor data, found its header only", {}};
  const cpu::KernelTable* tier = TRY(cpu::choose_tier(s.isa));
  engine->kv_ = TRY(kv_format(s.kv));
  s.isa = tier->tier;
  if (s.threads <= 0) s.threads = available_processors();
  engine->device_ = std::make_unique<cpu::CpuDevice>(*tier, s.threads);
  engine->passes_ = engine->device_.get();
  TRY(engine->settle(file, *def, listener));
  return engine;
}

// Plans with sizes alone, refuses what does not fit, then loads.
Status Engine::settle(const ModelFile& file, const ModelDef& def, const OpenListener& listener) {
  Loader plan(file, *device_, true, kv_);
  auto planned = TRY(def.load(plan));
  TRY(plan.finish());
  layout_ = plan.layout();
  read_bytes_ = plan.read_bytes();
  memory_.weights_bytes = device_->weight_bytes();
  memory_.allowed_bytes = settings_.memory_bytes > 0
                              ? settings_.memory_bytes
                              : std::max<int64_t>(0, available_memory() - kReserveBytes);
  const int64_t page = StatePool::page_bytes(layout_), fixed = StatePool::set_bytes(layout_);
  const int64_t most = planned->context_length();
  if (settings_.context > most)
    return Error{Code::NoRoom,
                 "--context",
                 "expected at most " + std::to_string(most) + ", the model's own, found " +
                     std::to_string(settings_.context),
                 {}};
  const int64_t wanted = settings_.context > 0 ? settings_.context : most;
  memory_.scratch_bytes = planned_scratch(*planned, wanted);
  const int64_t base = memory_.weights_bytes + memory_.scratch_bytes + fixed;
  const int64_t least = settings_.context > 0 ? wanted : std::min<int64_t>(most, kPagePositions);
  const int64_t needed = base + pages_of(least) * page;
  if (needed > memory_.allowed_bytes)
    return Error{Code::NoRoom,
                 "--memory",
                 "weights " + std::to_string(memory_.weights_bytes) + " + scratch " +
                     std::to_string(memory_.scratch_bytes) + " + state of " + std::to_string(least) +
                     " positions " + std::to_string(needed - memory_.weights_bytes - memory_.scratch_bytes) +
                     " = " + std::to_string(needed) + " bytes are needed, " +
                     std::to_string(memory_.allowed_bytes) + " are allowed",
                 {}};
  const int64_t room = page > 0 ? (memory_.allowed_bytes - base) / page * kPagePositions : wanted;
  settings_.context = std::min(wanted, room);
  memory_.state_bytes = fixed + pages_of(settings_.context) * page;
  planned.reset();
  pool_ =
      TRY(StatePool::make(layout_, memory_.allowed_bytes - memory_.weights_bytes - memory_.scratch_bytes));
  if (!device_->settle(memory_.scratch_bytes))
    return Error{Code::NoRoom,
                 "--memory",
                 "the system gave no " + std::to_string(memory_.scratch_bytes) + " bytes of scratch",
                 {}};
  return load(file, def, listener);
}

Status Engine::load(const ModelFile& file, const ModelDef& def, const OpenListener& listener) {
  std::optional<PackCache> packs;
  if (!settings_.pack_cache.empty())
    packs.emplace(file, settings_.pack_cache, [&](const std::string& line) {
      if (listener.note) listener.note(line);
    });
  Loader loader(file, *device_, false, kv_, packs ? &*packs : nullptr, listener.progress);
  model_ = TRY(def.load(loader));
  TRY(loader.finish());
  if (packs) {
    packs->publish(device_->pool());
    fingerprint_ = packs->fingerprint();
  }
  return Ok{};
}

// The most scratch of a step: of a full chunk, or of one row that sees the whole context.
int64_t Engine::planned_scratch(Model& model, int64_t context) {
  for (int64_t rows : {std::min<int64_t>(settings_.chunk, context), int64_t(1)}) {
    Batch batch;
    batch.add(nullptr, context - rows, std::vector<Token>(size_t(rows), 0));
    // Logits are wanted for every row at most in groups of kLogitRows; see forward.
    for (int r = 0; r < std::min<int64_t>(rows, kLogitRows); ++r) batch.logit_rows.push_back(r);
    Step step(*device_, batch);
    device_->begin_step();
    model.logits(step, model.forward(step));
  }
  return device_->scratch_bytes();
}

int64_t Engine::bytes_per_token(int64_t depth) const {
  int64_t per_position = 0;
  for (const StateSpec& s : layout_) per_position += s.kind == StateSpec::PerToken ? s.bytes : 0;
  return read_bytes_ + 2 * StatePool::set_bytes(layout_) + (depth + 1) * per_position;
}

Status Engine::forward(SequenceState& sequence, std::span<const Token> tokens, Rows rows,
                       const OnLogits& on_logits) {
  FloatEnv environment;
  while (!tokens.empty()) {
    const size_t n = std::min(tokens.size(), size_t(settings_.chunk));
    const int64_t first = sequence.position();
    CHECK(first + int64_t(n) <= settings_.context && sequence.reserve(int64_t(n)));
    const bool last = n == tokens.size();
    batch_.clear();
    batch_.add(&sequence, first, tokens.first(n));
    tokens = tokens.subspan(n);
    Step step(*passes_, batch_);
    passes_->begin_step();
    Tensor hidden = model_->forward(step);
    sequence.commit(int64_t(n));
    if (rows == Rows::None || (rows == Rows::Last && !last)) continue;
    for (int r = rows == Rows::Last ? int(n) - 1 : 0; r < int(n); r += kLogitRows) {
      Scope scope(*passes_);
      batch_.logit_rows.clear();
      for (int i = r; i < std::min(int(n), r + kLogitRows); ++i) batch_.logit_rows.push_back(i);
      Tensor logits = model_->logits(step, hidden);
      for (int64_t i = 0; i < logits.rows; ++i)
        if (!on_logits(first + r + i, {logits.row(i), size_t(logits.cols)})) return Ok{};
    }
  }
  return Ok{};
}

}  // namespace invar
