#include "cli/settings.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "models/model.h"

namespace invar::cli {

void add_voice(Options& options, Voice& voice) {
  options.flag("--json", voice.json, "Print one JSON object, also on failure");
  options.flag("-q,--quiet", voice.quiet, "No progress, no notes");
  options.flag("--verbose", voice.verbose, "More notes");
}

Result<bool> parse(Options& options, std::span<const std::string> arguments) {
  TRY(options.parse(arguments));
  if (options.wants_help()) TRY(say(options.help()));
  if (options.wants_config() && !options.wants_help()) TRY(say(options.config()));
  return options.wants_help() || options.wants_config();
}

void add_engine(Options& options, RunnerOptions& engine, uint64_t& seed) {
  options.integer("--threads", engine.threads, 1, 1024, "Threads (default: the cores that may be used)");
  options.integer("--chunk", engine.chunk, 1, 65536, "Prompt rows per pass");
  options.choice("--isa", engine.isa, {"auto", "scalar", "avx2", "avx512"}, "Instruction set");
  options.bytes("--memory", engine.memory_bytes, "Budget (default: what is free, less 512 MiB)");
  options.integer("--context", engine.context, 1, int64_t(1) << 40,
                  "Positions (default: what fits, at most the model's)");
  options.choice("--kv", engine.kv, {"f16", "bf16", "f32"},
                 "How keys and values are stored; changes results");
  options.text_or("--pack-cache", engine.pack_cache, cache_folder() + "/packs", "[DIR]",
                  "Keep packed weights in DIR, for a quick start (default: the user's cache)");
  options.seed("--seed", seed, "Of sampling: another seed draws another answer");
}

void add_cache(Options& options, EngineOptions& engine) {
  options.text("--cache-dir", engine.cache_folder, "DIR",
               "Keep what was read here, so that a restart does not read it again");
  options.bytes("--cache-disk", engine.cache_disk_bytes, "Most that is kept there");
}

void add_sampling(Options& options, SamplingFlags& f) {
  options.real("--temperature", f.temperature, 0, 1e6, "0: always the best token (default: the model's)");
  options.integer("--top-k", f.top_k, 0, INT32_MAX, "Keep the K best tokens; 0: all (default: the model's)");
  options.real("--top-p", f.top_p, 0, 1, "Keep the best tokens that have this share (default: the model's)");
  options.real("--min-p", f.min_p, 0, 1,
               "Keep tokens with this part of the best one's share (default: the model's)");
  options.real("--repetition-penalty", f.repetition, 0, 1000, "Against tokens of prompt and answer; 1: off");
  options.real("--presence-penalty", f.presence, -1000, 1000,
               "Against tokens of the answer, once each; 0: off");
  options.real("--frequency-penalty", f.frequency, -1000, 1000,
               "Against tokens of the answer, each time; 0: off");
  options.texts("--logit-bias", f.bias, "ID:VALUE", "Add VALUE to the logit of token ID; repeatable");
}

Result<SamplingParams> sampling(const SamplingFlags& f, const SamplingParams& recommended, uint64_t seed,
                                int64_t vocab) {
  SamplingParams p = recommended;
  p.temperature = f.temperature.value_or(p.temperature);
  p.top_k = f.top_k.value_or(p.top_k);
  p.top_p = f.top_p.value_or(p.top_p);
  p.min_p = f.min_p.value_or(p.min_p);
  p.repetition = f.repetition.value_or(p.repetition);
  p.presence = f.presence.value_or(p.presence);
  p.frequency = f.frequency.value_or(p.frequency);
  p.seed = seed;
  for (const std::string& text : f.bias) {
    size_t colon = text.find(':');
    auto id = parse_integer(text.substr(0, colon), 0, INT32_MAX);
    auto value =
        colon == std::string::npos ? parse_real("", 0, 0) : parse_real(text.substr(colon + 1), -1000, 1000);
    if (!id || !value)
      return Error{Code::Usage, "--logit-bias", "expected ID:VALUE, such as 17:-5, found '" + text + "'"};
    p.bias.push_back({Token(*id), float(*value)});
  }
  TRY(check_sampling(p, vocab));
  return p;
}

Result<int64_t> context_limit(const ModelFile& file, const RunnerOptions& options) {
  int64_t own = TRY(file.keys().integer(file.arch_key("context_length"), 1, kMaxContext));
  return options.context > 0 ? std::min(own, options.context) : own;
}

int64_t vocabulary_of(const ModelFile& file, const Tokenizer& tokenizer) {
  const TensorEntry* table = file.find("token_embd.weight");
  return table ? table->rows : tokenizer.size();
}

Result<ModelFile> open_model(const std::string& path) {
  ModelFile file = TRY(ModelFile::open(path));
  if (auto known = require_model(file.architecture()); !known) {
    known.error().message += " (in " + path + ")";
    return known.error();
  }
  return file;
}

static void note_opened(const ModelRunner& runner) {
  const RunnerMemory& m = runner.memory();
  const RunnerOptions& o = runner.settings();
  note("memory: vocabulary and program " + std::to_string(m.beside_bytes) + ", weights " +
       std::to_string(m.weights_bytes) + ", state " + std::to_string(m.state_bytes) + ", scratch " +
       std::to_string(m.scratch_bytes) + ", texts " + std::to_string(m.text_bytes) + " of " +
       std::to_string(m.allowed_bytes) + " bytes");
  note("threads " + std::to_string(o.threads) + ", chunk " + std::to_string(o.chunk) + ", isa " + o.isa +
       ", kv " + o.kv + ", context " + std::to_string(runner.context()));
}

static OpenListener listener_of(Progress& progress, const Voice& voice) {
  return {[&](double share) { progress.set(share); },
          [&](const std::string& line) {
            if (!voice.quiet) note(line);
          }};
}

// What the process has by now, in whole MiB, so that the same command settles on the same context.
static int64_t beside_bytes() {
  constexpr int64_t kMiB = 1 << 20;
  return (rss_bytes() + kMiB - 1) / kMiB * kMiB;
}

Result<std::unique_ptr<ModelRunner>> open_runner(const ModelFile& file, RunnerOptions options,
                                                 const Voice& voice) {
  options.beside_bytes = beside_bytes();
  Progress progress("loading", voice);
  auto runner = ModelRunner::open(file, options, listener_of(progress, voice));
  if (runner && voice.verbose) note_opened(**runner);
  return runner;
}

Result<std::unique_ptr<Engine>> open_engine(const ModelFile& file, EngineOptions options,
                                            const Voice& voice) {
  if (!voice.quiet) options.log = [](const std::string& line) { note(line); };
  options.beside_bytes = beside_bytes();
  Progress progress("loading", voice);
  auto engine = Engine::open(file, options, listener_of(progress, voice));
  if (engine && voice.verbose) note_opened((*engine)->runner());
  return engine;
}

Result<std::vector<Token>> parse_tokens(std::string_view text, int64_t vocab, const std::string& where) {
  constexpr std::string_view kBetween = ", \t\r\n";
  std::vector<Token> tokens;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) break;
    std::string_view word = text.substr(0, text.find_first_of(kBetween));
    text.remove_prefix(word.size());
    auto id = parse_integer(word, 0, vocab - 1);
    if (!id)
      return Error{Code::Usage, where,
                   "expected token ids from 0 to " + std::to_string(vocab - 1) + ", found '" +
                       std::string(word.substr(0, 40)) + "'"};
    tokens.push_back(Token(*id));
  }
  if (tokens.empty()) return Error{Code::Usage, where, "expected token ids, found an empty list"};
  return tokens;
}

Result<std::string> read_text(const std::optional<std::string>& prompt, const std::string& file) {
  if (prompt && !file.empty())
    return Error{Code::Usage, "--file", "expected either --prompt or --file, found both"};
  if (prompt) return *prompt;
  if (!file.empty()) return read_file(file, kTextLimit);
  std::string text;
  char block[1 << 16];
  while (true) {
    ssize_t n = ::read(STDIN_FILENO, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{Code::Io, "standard input",
                   std::string("expected to read, found: ") + std::strerror(errno)};
    if (n == 0) return text;
    text.append(block, size_t(n));
    if (text.size() > kTextLimit)
      return Error{Code::BadRequest, "standard input",
                   "expected at most " + std::to_string(kTextLimit) + " bytes"};
  }
}

void add_settings(Json& settings, const ModelRunner& runner, uint64_t seed) {
  const RunnerOptions& o = runner.settings();
  settings["threads"] = o.threads;
  settings["chunk"] = o.chunk;
  settings["isa"] = o.isa;
  settings["kv"] = o.kv;
  settings["memory"] = o.memory_bytes;
  settings["context"] = runner.context();
  settings["seed"] = seed;
}

// The number that was typed, not the double behind the float.
static double shortest(float x) {
  char text[32];
  double typed = 0;
  auto [end, error] = std::to_chars(text, text + sizeof text, x);
  std::from_chars(text, end, typed);
  return typed;
}

void add_settings(Json& settings, const SamplingParams& p) {
  settings["temperature"] = shortest(p.temperature);
  settings["top_k"] = p.top_k;
  settings["top_p"] = shortest(p.top_p);
  settings["min_p"] = shortest(p.min_p);
  settings["repetition_penalty"] = shortest(p.repetition);
  settings["presence_penalty"] = shortest(p.presence);
  settings["frequency_penalty"] = shortest(p.frequency);
  Json bias = Json::object();
  for (auto [token, value] : p.bias) bias[std::to_string(token)] = shortest(value);
  settings["logit_bias"] = bias;
}

}  // namespace invar::cli
