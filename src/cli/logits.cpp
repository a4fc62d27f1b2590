// `invar logits`: one pass over tokens, the logits to a NumPy file, digests and the best tokens.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/file.h"
#include "base/sha256.h"
#include "cli/command.h"
#include "cli/npy.h"
#include "cli/settings.h"
#include "engine/request.h"

namespace invar::cli {
namespace {

struct Flags {
  std::string model, tokens, token_file, rows = "all", out;
  std::optional<std::string> prompt;
  int top = 0;
  Voice voice;
  RunnerOptions engine;
  uint64_t seed = 0;
};

void describe(Options& o, Flags& f) {
  o.text("MODEL", f.model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  o.text("--tokens", f.tokens, "IDS", "Token ids, separated by commas or blanks");
  o.text("--token-file", f.token_file, "FILE", "Read them from a file");
  o.text("-p,--prompt", f.prompt, "TEXT", "Or the tokens of a text");
  o.choice("--rows", f.rows, {"all", "last"}, "Of which positions");
  o.text("-o,--output", f.out, "FILE.npy", "Write them as a float32 array [rows, vocab]");
  o.integer("--top", f.top, 0, 1 << 24, "Show the K best tokens of each row");
  add_engine(o, f.engine, f.seed);
  add_voice(o, f.voice);
}

Result<std::vector<Token>> tokens_of(const Flags& f, const Chat& chat, int64_t vocab) {
  if (int(!f.tokens.empty()) + int(!f.token_file.empty()) + int(f.prompt.has_value()) != 1)
    return Error{Code::Usage, "logits", "expected one of --tokens, --token-file and --prompt"};
  if (!f.tokens.empty()) return parse_tokens(f.tokens, vocab, "--tokens");
  if (!f.token_file.empty())
    return parse_tokens(TRY(read_file(f.token_file, kTextLimit)), vocab, f.token_file);
  std::vector<Token> tokens = TRY(chat.raw_prompt(*f.prompt));
  if (tokens.empty()) return Error{Code::Usage, "prompt", "expected a text, found an empty one"};
  return tokens;
}

// The best first, the lower id first among equals.
std::vector<Token> best(std::span<const float> logits, size_t count) {
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + ptrdiff_t(count), ids.end(), [&](Token a, Token b) {
    return logits[size_t(a)] > logits[size_t(b)] || (logits[size_t(a)] == logits[size_t(b)] && a < b);
  });
  ids.resize(count);
  return ids;
}

Json json_of_best(std::span<const float> logits, const std::vector<Token>& ids) {
  Json row = Json::array();
  for (Token id : ids) row.push_back({{"id", id}, {"logit", logits[size_t(id)]}});
  return row;
}

Status print_best(const Chat& chat, int64_t position, std::span<const float> logits,
                  const std::vector<Token>& ids) {
  for (Token id : ids) {
    char line[80];
    std::snprintf(line, sizeof line, "%8lld %8d %12.6f  ", static_cast<long long>(position), id,
                  double(logits[size_t(id)]));
    TRY(say(
        line +
        Json(std::string(chat.tokenizer().piece(id))).dump(-1, ' ', false, Json::error_handler_t::replace) +
        "\n"));
  }
  return Ok{};
}

Result<int> run(std::span<const std::string> arguments) {
  Flags f;
  Options options("logits MODEL (--tokens IDS | --token-file FILE | -p TEXT) [options]",
                  "One pass over tokens: logits as a NumPy array, their digest, the best tokens.",
                  {"invar logits model.gguf --tokens 1,2,3 -o logits.npy",
                   "invar logits model.gguf -p 'The sky is' --rows last --top 5",
                   "invar logits model.gguf --token-file ids.txt --json"});
  describe(options, f);
  if (TRY(parse(options, arguments))) return 0;
  if (!f.voice.json && f.out.empty() && f.top == 0) f.top = 5;

  ModelFile file = TRY(open_model(f.model));
  Chat chat = TRY(Chat::make(file));
  std::vector<Token> tokens = TRY(tokens_of(f, chat, vocabulary_of(file, chat.tokenizer())));
  TRY(check_fits(int64_t(tokens.size()), TRY(context_limit(file, f.engine))));
  std::unique_ptr<ModelRunner> runner = TRY(open_runner(file, f.engine, f.voice));
  TRY(check_fits(int64_t(tokens.size()), runner->context()));
  std::unique_ptr<SequenceState> state = runner->new_sequence();
  if (!state) return Error{Code::NoRoom, "state", "expected room for a sequence, found none"};

  bool all = f.rows == "all";
  int64_t rows = all ? int64_t(tokens.size()) : 1;
  std::optional<NpyFile> npy;
  if (!f.out.empty()) npy = TRY(NpyFile::make(f.out, rows, runner->vocab()));
  Sha256 digest;
  Json top = Json::array();
  Status written = Ok{};
  Progress progress("logits", f.voice);
  TRY(runner->forward(*state, tokens, all ? ModelRunner::Rows::All : ModelRunner::Rows::Last,
                      [&](int64_t position, std::span<const float> logits) {
                        digest.update(std::as_bytes(logits));
                        if (npy) written = npy->append(logits);
                        if (f.top > 0 && written) {
                          std::vector<Token> ids = best(logits, size_t(f.top));
                          if (f.voice.json) top.push_back(json_of_best(logits, ids));
                          else written = print_best(chat, position, logits, ids);
                        }
                        progress.set(double(position + 1) / double(tokens.size()));
                        return bool(written);
                      }));
  TRY(std::move(written));
  if (npy) TRY(npy->close());
  if (!f.voice.json) return 0;

  Json j = {{"tokens", tokens.size()},
            {"rows", rows},
            {"vocab", runner->vocab()},
            {"tokens_sha256", hex(digest_tokens(tokens))},
            {"logits_sha256", hex(digest.finish())},
            {"top", top}};
  add_settings(j["settings"], *runner, f.seed);
  TRY(say_json(j));
  return 0;
}

}  // namespace

const Command logits_command = {"logits", "one pass over tokens, the logits as an array", run};

}  // namespace invar::cli
