// Options that several commands share, and opening a model with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/output.h"
#include "decode/sampler.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "files/model_file.h"

namespace invar::cli {

// --json, --quiet, --verbose.
void add_voice(Options& options, Voice& voice);

// Parses; true if the command has nothing more to do since help or settings were shown.
Result<bool> parse(Options& options, std::span<const std::string> arguments);

// --threads, --chunk, --isa, --memory, --context, --kv, --pack-cache, --seed.
void add_engine(Options& options, RunnerOptions& engine, uint64_t& seed);
// --cache-dir, --cache-disk.
void add_cache(Options& options, EngineOptions& engine);

struct SamplingFlags {  // unset: as the model recommends
  std::optional<float> temperature, top_p, min_p, repetition, presence, frequency;
  std::optional<int> top_k;
  std::vector<std::string> bias;  // ID:VALUE
};
void add_sampling(Options& options, SamplingFlags& flags);

// The model's recommendation with the flags put over it, checked.
Result<SamplingParams> sampling(const SamplingFlags& flags, const SamplingParams& recommended, uint64_t seed,
                                int64_t vocab);

// Positions one sequence may have as far as file and flags say; opening the engine may find room for fewer.
Result<int64_t> context_limit(const ModelFile& file, const RunnerOptions& options);

// Rows of the table of embeddings: token ids are below it.
int64_t vocabulary_of(const ModelFile& file, const Tokenizer& tokenizer);

// A file whose architecture can be run; what else is wrong with it shows later.
Result<ModelFile> open_model(const std::string& path);

// What the process has in memory by then counts in the budget.
Result<std::unique_ptr<ModelRunner>> open_runner(const ModelFile& file, RunnerOptions options,
                                                 const Voice& voice);
Result<std::unique_ptr<Engine>> open_engine(const ModelFile& file, EngineOptions options, const Voice& voice);

// Decimal ids separated by commas, blanks or line ends, below `vocab`; `where` names their source in errors.
Result<std::vector<Token>> parse_tokens(std::string_view text, int64_t vocab, const std::string& where);

// A text from -p, from a file, or from standard input.
Result<std::string> read_text(const std::optional<std::string>& prompt, const std::string& file);
constexpr uint64_t kTextLimit = uint64_t(1) << 30;

void add_settings(Json& settings, const ModelRunner& runner, uint64_t seed);
void add_settings(Json& settings, const SamplingParams& params);

}  // namespace invar::cli
