// `invar run`: one answer to a text from the command line, a file or standard input; on a terminal, a chat.
#include <chrono>
#include <unistd.h>

#include "base/machine.h"
#include "cli/answer.h"
#include "cli/chat_loop.h"
#include "cli/command.h"
#include "cli/settings.h"

namespace invar::cli {
namespace {

struct Flags {
  std::string model, file, system;
  std::optional<std::string> prompt;
  int64_t most = -1;
  bool raw = false;
  std::vector<std::string> stops;
  std::string save_as, from;
  Voice voice;
  EngineOptions engine;
  uint64_t seed = 0;
  SamplingFlags sampling;

  bool talks() const { return !prompt && file.empty() && !raw && !voice.json && isatty(STDIN_FILENO); }
};

void describe(Options& o, Flags& f) {
  o.text("MODEL", f.model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  o.text("-p,--prompt", f.prompt, "TEXT", "The question, or with --raw the text to continue");
  o.text("-f,--file", f.file, "FILE", "Read it from a file (default: standard input)");
  o.integer("-n,--max-tokens", f.most, 0, INT32_MAX,
            "Most tokens of the answer (default: until the context is full)");
  o.flag("--raw", f.raw, "No chat template: continue the text");
  o.text("--system", f.system, "TEXT", "Instructions before the question");
  o.texts("--stop", f.stops, "TEXT", "End the answer before this text; repeatable");
  add_sampling(o, f.sampling);
  add_engine(o, f.engine, f.seed);
  add_cache(o, f.engine);
  o.text("--save-as", f.save_as, "NAME",
         "Keep the conversation in --cache-dir by this name, answer included");
  o.text("--from", f.from, "NAME", "Go on from the conversation of this name");
  add_voice(o, f.voice);
}

Status check_flags(const Flags& f) {
  if (f.raw && !f.system.empty()) return Error{Code::Usage, "--system", "expected a chat, found --raw"};
  for (const auto& [flag, name] : {std::pair("--save-as", &f.save_as), std::pair("--from", &f.from)}) {
    if (name->empty()) continue;
    if (f.engine.cache_folder.empty()) return Error{Code::Usage, flag, "expected --cache-dir, found none"};
    if (Status plain = check_state_name(*name); !plain)
      return Error{Code::Usage, flag, plain.error().message};
  }
  if (!f.from.empty() && !f.system.empty())
    return Error{Code::Usage, "--system", "expected none, the conversation of --from has begun"};
  return Ok{};
}

// The tokens of the prompt: refused if empty, or longer than the context.
Result<std::vector<Token>> prompt_of(const Flags& f, const ModelFile& file, const Chat& chat) {
  std::string text = TRY(read_text(f.prompt, f.file));
  if (text.empty()) return Error{Code::Usage, "prompt", "expected a text, found an empty one"};
  std::vector<Token> tokens;
  if (!f.from.empty()) {
    tokens = TRY(SavedState::open(saved_folder(f.engine.cache_folder), f.from)).tokens();
    const auto more = TRY(f.raw ? chat.tokenizer().encode(text, AddedTokens::User) : chat.next_turn(text));
    tokens.insert(tokens.end(), more.begin(), more.end());
  } else if (f.raw) {
    tokens = TRY(chat.raw_prompt(text));
  } else {
    ChatInput input;
    if (!f.system.empty()) input.messages.push_back(message("system", f.system));
    input.messages.push_back(message("user", text));
    tokens = TRY(chat.prompt(input));
  }
  if (tokens.empty())
    return Error{Code::BadRequest, "prompt", "expected at least one token, the text gives none"};
  TRY(check_fits(int64_t(tokens.size()), TRY(context_limit(file, f.engine))));
  return tokens;
}

Json json_of(const Flags& f, const ModelFile& file, const ModelRunner& runner, const SamplingParams& params,
             const std::vector<Token>& prompt, const Told& told, double load_s) {
  auto name = file.keys().text_or("general.name", "");
  Json j;
  j["model"] = {{"path", f.model},
                {"arch", file.architecture()},
                {"name", name ? *name : ""},
                {"fingerprint", runner.fingerprint().empty() ? Json(nullptr) : Json(runner.fingerprint())}};
  j["numerics"] = kNumericsVersion;
  j["version"] = build().version;
  j["prompt"] = {{"tokens", prompt.size()},
                 {"cached_tokens", told.usage.cached_tokens},
                 {"tokens_sha256", hex(digest_tokens(prompt))}};
  j["output"] = {{"text", told.text},
                 {"token_ids", told.tokens},
                 {"tokens", told.tokens.size()},
                 {"tokens_sha256", hex(digest_tokens(told.tokens))},
                 {"finish", name_of(told.finish)}};
  j["logits_sha256"] = hex(told.logits);
  j["timing"] = {{"load_s", load_s},
                 {"prompt_s", told.usage.prompt_s},
                 {"generate_s", told.usage.answer_s},
                 {"prompt_tok_s", rate(double(told.usage.prompt_rows), told.usage.prompt_s)},
                 {"generate_tok_s", rate(double(told.tokens.size()), told.usage.answer_s)},
                 {"gb_s", rate(told.bytes_moved, told.usage.answer_s) / 1e9}};
  j["memory"] = {{"peak_rss_bytes", peak_rss_bytes()},
                 {"weights_bytes", runner.memory().weights_bytes},
                 {"state_bytes", runner.memory().state_bytes}};
  j["draft"] = nullptr;
  j["from"] = f.from.empty() ? Json(nullptr) : Json(f.from);
  j["saved"] = f.save_as.empty()
                   ? Json(nullptr)
                   : Json({{"name", f.save_as}, {"tokens", prompt.size() + told.tokens.size()}});
  add_settings(j["settings"], runner, params.seed);
  add_settings(j["settings"], params);
  j["settings"]["stop"] = f.stops;
  j["settings"]["max_tokens"] = f.most < 0 ? Json(nullptr) : Json(f.most);
  j["settings"]["raw"] = f.raw;
  return j;
}

Result<int> run(std::span<const std::string> arguments) {
  Flags f;
  Options options("run MODEL [options]",
                  "Answers a text, or holds a chat on a terminal; the answer streams to standard output.",
                  {"invar run model.gguf", "invar run model.gguf -p 'Why is the sky blue?' -n 200",
                   "invar run model.gguf --raw --temperature 0 --json < story.txt"});
  describe(options, f);
  if (TRY(parse(options, arguments))) return 0;
  TRY(check_flags(f));

  auto start = std::chrono::steady_clock::now();
  ModelFile file = TRY(open_model(f.model));
  Chat chat = TRY(Chat::make(file));
  if (!f.raw && !chat.has_template()) return chat.prompt({}).error();
  int64_t vocab = vocabulary_of(file, chat.tokenizer());
  const SamplingParams params = TRY(sampling(f.sampling, chat.recommended(), f.seed, vocab));
  auto ask = [&](std::vector<Token> prompt) {
    Request request;
    request.marks = chat.marks(prompt);
    request.prompt = std::move(prompt);
    request.max_tokens = f.most;
    request.sampling = params;
    request.stop = chat.stop();
    request.allowed = chat.allowed(vocab);
    return request;
  };
  std::vector<Token> prompt;
  if (!f.talks()) prompt = TRY(prompt_of(f, file, chat));

  f.engine.sequences = 1;
  std::unique_ptr<Engine> engine = TRY(open_engine(file, f.engine, f.voice));
  double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (f.talks()) return hold_chat(*engine, chat, {f.system, f.stops, ask, f.save_as, f.from}, f.voice);

  Request request = ask(prompt);
  request.from = f.from;
  Told told = TRY(tell(*engine, chat, std::move(request), f.stops, !f.voice.json, f.voice));
  if (!f.save_as.empty()) TRY(save(*engine, f.save_as, joined(prompt, told.tokens)));
  TRY(f.voice.json ? say_json(json_of(f, file, engine->runner(), params, prompt, told, load_s)) : say("\n"));
  if (!f.voice.quiet) note(summary(told));
  return told.finish == Finish::Cancelled ? status_of(Code::Cancelled) : 0;
}

}  // namespace

const Command run_command = {"run", "answers a text, or holds a chat", run};

}  // namespace invar::cli
