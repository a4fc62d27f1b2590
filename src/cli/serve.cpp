// `invar serve`: the HTTP server over a model, or over a script of answers.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "engine/engine_thread.h"
#include "engine/scripted.h"
#include "server/dialect.h"
#include "server/intake.h"
#include "server/server.h"

namespace invar::cli {
namespace {

using server::HttpServer;

struct Flags {
  std::string model, key_file, admin_key_file, engine_name = "model", metrics_compat = "none";
  std::vector<std::string> names;
  bool unauthenticated = false, strict_model = false, strict_length = false, no_log = false;
  std::shared_ptr<std::atomic<bool>> logs = std::make_shared<std::atomic<bool>>();
  server::IntakeLimits limits;
  std::optional<float> drain_s = 30, heartbeat_s = 15, commit_s = 10, queue_s, answer_s;
  int64_t head_bytes = 64 << 10, body_bytes = 32 << 20;
  Voice voice;
  EngineOptions engine;
  uint64_t seed = 0;
  SamplingFlags sampling;
  server::HttpOptions http;
  server::ApiOptions api;
};

void describe_limits(Options& o, Flags& f) {
  server::ApiOptions& api = f.api;
  constexpr int64_t kMany = 1 << 20;
  o.integer("--max-queue", f.limits.waiting, 0, kMany,
            "Requests that may wait for a sequence; more are refused with 429");
  o.integer("--max-queue-tokens", f.limits.waiting_tokens, 0, INT64_MAX,
            "Tokens of their prompts together; 0: no bound");
  o.bytes("--max-queue-bytes", api.most_waiting_bytes, "Of requests that wait to be read, together");
  o.integer("--max-per-key", api.most_per_key, 0, kMany, "Requests of one key at once; 0: no bound");
  o.real("--queue-timeout", f.queue_s, 0, 1e9, "Seconds that a request may wait (default: no bound)");
  o.real("--request-timeout", f.answer_s, 0, 1e9, "Seconds that a request may take (default: no bound)");
  o.integer("--max-connections", f.http.connections, 1, kMany, "Open connections");
  o.bytes("--max-head", f.head_bytes, "Most that the head of a request may have");
  o.bytes("--max-body", f.body_bytes, "Most that a request may have");
  o.integer("--default-max-tokens", api.default_max_tokens, 0, INT64_MAX,
            "Of chat and responses that do not say (default: what fits)");
  o.flag("--strict-max-tokens", f.strict_length, "max_tokens that do not fit are refused, not cut");
  o.integer("--max-choices", api.most_choices, 1, 128, "Of n");
  o.integer("--max-logprobs", api.most_logprobs, 0, 1000, "Of logprobs and top_logprobs");
  o.integer("--max-stops", api.most_stops, 0, 1000, "Stop strings of a request");
  o.integer("--max-prompts", api.most_prompts, 1, kMany, "Prompts of one request");
  o.integer("--max-tools", api.most_tools, 0, kMany, "Tools of a request");
  o.bytes("--max-tool-bytes", api.most_tool_bytes, "Of them together");
}

void describe(Options& o, Flags& f) {
  o.text("MODEL", f.model, "[MODEL]", "A GGUF file, or a folder (default: the model of `make demo`)");
  o.text("--host", f.http.host, "ADDRESS", "Listen there; beyond this machine only with a key");
  o.integer("--port", f.http.port, 0, 65535, "0: any that is free; it is printed");
  o.text("--api-key-file", f.key_file, "FILE",
         "Keys, one a line; INVAR_API_KEY in the environment is one more");
  o.flag("--allow-unauthenticated", f.unauthenticated, "No key is needed, whatever the address");
  o.text("--admin-key-file", f.admin_key_file, "FILE",
         "The key for /admin; INVAR_ADMIN_KEY is one, too (default: from this machine no key is needed)");
  o.flag("--public-metrics", f.http.public_metrics, "/metrics needs no key");
  o.choice("--metrics-compat", f.metrics_compat, {"none", "llamacpp"}, "Further names in /metrics");
  o.texts("--cors-origin", f.http.cors_origins, "ORIGIN",
          "Web pages from there may ask; repeatable (default: none)");
  o.texts("--served-model-name", f.names, "NAME", "What the model is called; several by commas or repeated");
  o.flag("--strict-model-name", f.strict_model, "A request for another name is refused");
  o.text("--engine", f.engine_name, "NAME",
         "model, or script:FILE: answers from a file, weights are not read");
  o.integer("--sequences", f.engine.sequences, 1, 1024, "Requests that run at once");
  describe_limits(o, f);
  o.real("--drain-timeout", f.drain_s, 0, 86400, "Seconds that requests have to end after SIGTERM");
  o.real("--heartbeat", f.heartbeat_s, 0.01, 86400, "Seconds of silence in a stream before a sign of life");
  o.real("--commit-after", f.commit_s, 0, 86400, "Seconds before a stream's head goes out without a token");
  o.integer("--io-threads", f.http.threads, 1, 64, "Threads of the network");
  o.choice("--reasoning-field", f.api.reasoning_field, {"both", "reasoning_content", "reasoning"},
           "Where chat answers have thoughts");
  o.text("--tool-parser", f.api.tool_parser, "NAME", "Format of tool calls");
  o.text("--reasoning-parser", f.api.reasoning_parser, "NAME", "Format of thoughts");
  o.flag("--calls-in-thought", f.api.calls_in_thought, "A call in a thought that never ends is a call");
  o.flag("--constrain-tools", f.api.constrain_tools, "Arguments obey the schema of each tool, strict or not");
  o.choice("--system-midway", f.api.system_midway, {"hoist", "inline", "reject"},
           "System messages after the first");
  o.flag("--keep-client-headers", f.api.keep_headers,
         "System text that begins with x-anthropic- stays in the prompt");
  o.flag("--strict-usage", f.api.strict_usage, "No fields of ours in usage; as yet there are none");
  o.flag("--no-log", f.no_log, "No line for each request on standard error");
  add_sampling(o, f.sampling);
  add_engine(o, f.engine, f.seed);
  add_cache(o, f.engine);
  add_voice(o, f.voice);
}

// --- before the model is read ---

// One a line.
Result<std::vector<std::string>> keys_of_file(const std::string& file) {
  constexpr std::string_view kBlank = " \t\r";
  const std::string text = TRY(read_file(file, 1 << 20));
  std::vector<std::string> keys;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    if (!line.empty()) keys.emplace_back(line);
  }
  if (keys.empty()) return Error{Code::BadFile, file, "expected at least one key, found none"};
  return keys;
}

Result<std::vector<std::string>> read_keys(const std::string& file) {
  std::vector<std::string> keys;
  if (!file.empty()) keys = TRY(keys_of_file(file));
  if (const std::string key = key_of_environment("INVAR_API_KEY"); !key.empty()) keys.push_back(key);
  return keys;
}

Result<std::string> read_admin_key(const std::string& file) {
  if (file.empty()) return key_of_environment("INVAR_ADMIN_KEY");
  const std::vector<std::string> keys = TRY(keys_of_file(file));
  if (keys.size() == 1) return keys[0];
  return Error{Code::BadFile, file, "expected one key, found " + std::to_string(keys.size())};
}

// The model of `make demo`, if it is there.
Result<std::string> demo_model() {
  const std::string path = cache_folder() + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (File::open(path)) return path;
  return Error{
      Code::Usage, "MODEL",
      "expected by 'invar serve MODEL', not given; `make demo` fetches a small one, which is served then"};
}

std::string base_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  path = path.substr(path.rfind('/') + 1);
  return path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
}

std::vector<std::string> names_of(const Flags& f) {
  std::vector<std::string> names;
  for (std::string_view rest : f.names)
    while (!rest.empty()) {
      const std::string_view name = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(name.size() + 1, rest.size()));
      if (!name.empty()) names.emplace_back(name);
    }
  if (names.empty()) names.push_back(base_name(f.model));
  return names;
}

Status settle(Flags& f) {
  f.http.keys = TRY(read_keys(f.key_file));
  f.http.admin_key = TRY(read_admin_key(f.admin_key_file));
  if (!server::is_loopback(f.http.host) && f.http.keys.empty() && !f.unauthenticated)
    return Error{
        Code::Usage, "--host",
        "expected an API key (--api-key-file, INVAR_API_KEY) or --allow-unauthenticated for an address "
        "beyond this machine, found neither"};
  if (f.model.empty()) f.model = TRY(demo_model());
  f.api.names = names_of(f);
  f.api.any_model = !f.strict_model;
  f.api.clamp_max_tokens = !f.strict_length;
  f.api.llama_metrics = f.metrics_compat == "llamacpp";
  f.http.head_bytes = uint64_t(f.head_bytes);
  f.http.body_bytes = uint64_t(f.body_bytes);
  if (f.queue_s) f.limits.queue_s = double(*f.queue_s);
  if (f.answer_s) f.limits.answer_s = double(*f.answer_s);
  f.http.stream = {double(*f.commit_s), double(*f.heartbeat_s)};
  *f.logs = !f.no_log;
  if (!f.voice.quiet)
    f.http.log = [logs = f.logs](const std::string& line) {
      if (*logs) note(line);
    };
  rlimit files{};  // a connection is a descriptor
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) note("the limit of open files stays as it is");
  }
  return Ok{};
}

// --- signals ---

// SIGTERM and Ctrl-C: the first asks for the end, the second ends the program at once.  While the model is
// read the first does, too.  To be made before any thread, since threads inherit what it blocks.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::thread([this] { listen(); }).detach();  // for as long as the program
  }

  void ready() {
    std::lock_guard lock(mutex_);
    ready_ = true;
  }
  void ask() {  // as the first does
    std::lock_guard lock(mutex_);
    asked_ = true;
    told_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [&] { return asked_; });
  }

 private:
  void listen() {
    constexpr int kInterrupted = 130;
    while (true) {
      int signal = 0;
      sigwait(&set_, &signal);
      std::lock_guard lock(mutex_);
      if (asked_) _exit(kInterrupted);
      if (!ready_) _exit(signal == SIGINT ? kInterrupted : 0);
      asked_ = true;
      told_.notify_all();
    }
  }

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable told_;
  bool ready_ = false, asked_ = false;
};

// --- what is said at the start ---

std::string url_of(const Flags& f, int port) {
  const bool any = f.http.host == "0.0.0.0" || f.http.host == "::";
  const bool v6 = f.http.host.find(':') != std::string::npos && !any;
  const std::string host = any ? "127.0.0.1" : v6 ? "[" + f.http.host + "]" : f.http.host;
  return "http://" + host + ":" + std::to_string(port);
}

void tell_clients(const Flags& f, const std::string& url, int64_t context) {
  const std::string& name = f.api.names[0];
  const std::string key = f.http.keys.empty() ? "none" : "YOUR-KEY", n = std::to_string(context);
  note("Claude Code:  ANTHROPIC_BASE_URL=" + url + " ANTHROPIC_AUTH_TOKEN=" + key +
       " CLAUDE_CODE_ATTRIBUTION_HEADER=0 CLAUDE_CODE_MAX_CONTEXT_TOKENS=" + n +
       " CLAUDE_CODE_AUTO_COMPACT_WINDOW=" + n + " claude --model " + name);
  note("Codex:        LOCAL_KEY=" + key +
       " codex -c model_provider=local -c 'model_providers.local={name=\"local\"," + "base_url=\"" + url +
       "/v1\",wire_api=\"responses\",env_key=\"LOCAL_KEY\"}' -m " + name);
  note("OpenCode:     provider \"local\" in opencode.json: npm @ai-sdk/openai-compatible, options.baseURL " +
       url + "/v1, models." + name);
  note("OpenAI SDK:   OPENAI_BASE_URL=" + url + "/v1 OPENAI_API_KEY=" + key +
       "   Anthropic SDK: base_url=" + url);
}

// How many sequences of the whole context there is room for.
int64_t that_fit(const Statistics& s) {
  return s.memory.state_bytes > 0 ? std::max<int64_t>(1, s.state.budget_bytes / s.memory.state_bytes) : 0;
}

Status tell_ready(const Flags& f, const server::Served& served, const std::string& url, double load_s) {
  const Statistics s = served.service.statistics();
  const int64_t context = served.service.context(), fit = that_fit(s);
  if (f.voice.json)
    return say_json({{"url", url},
                     {"model", served.options.names[0]},
                     {"context", context},
                     {"sequences", f.engine.sequences},
                     {"whole_contexts", fit},
                     {"load_s", load_s}});
  if (f.voice.quiet) return Ok{};
  std::string line = "serving " + served.options.names[0] + ": context " + std::to_string(context) +
                     ", up to " + std::to_string(f.engine.sequences) + " requests at once";
  if (fit > 0) line += ", room for " + std::to_string(fit) + " whole contexts";
  note(line + ", " + std::to_string(f.limits.waiting) + " more may wait");
  tell_clients(f, url, context);
  return Ok{};
}

// --- the parts ---

struct Parts {  // in the order of what outlives what
  std::optional<ModelFile> file;
  std::optional<Chat> chat;
  Metrics metrics;
  std::unique_ptr<const server::Dialect> dialect;
  std::unique_ptr<Service> engine;
  std::unique_ptr<server::Intake> intake;
  std::unique_ptr<WorkThread> text;
  std::optional<server::Served> served;
  server::Router router;
};

Result<std::unique_ptr<Service>> open_script(const Flags& f, const ModelFile& file, const Chat& chat) {
  const std::string path = f.engine_name.substr(std::string_view("script:").size());
  constexpr uint64_t kMostScript = 256 << 20;
  auto script = TRY(parse_script(TRY(read_file(path, kMostScript)), chat.tokenizer(), path));
  ScriptedOptions options;
  options.context = f.engine.context > 0 ? f.engine.context : TRY(context_limit(file, f.engine));
  options.vocab = vocabulary_of(file, chat.tokenizer());
  options.running = f.engine.sequences;
  return std::unique_ptr<Service>(std::make_unique<Scripted>(chat, std::move(script), options));
}

Result<std::unique_ptr<Service>> open_service(const Flags& f, Parts& parts) {
  if (f.engine_name.starts_with("script:")) return open_script(f, *parts.file, *parts.chat);
  EngineOptions options = f.engine;
  options.on_pass = [&m = parts.metrics](int64_t rows, double seconds) {
    m.iteration_tokens.add(double(rows));
    m.pass_s.add(seconds);
  };
  return std::unique_ptr<Service>(
      std::make_unique<EngineThread>(TRY(open_engine(*parts.file, options, f.voice))));
}

int64_t unix_seconds() { return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()); }

Result<server::ModelInfo> info_of(const Flags& f, const ModelFile& file) {
  server::ModelInfo info;
  info.path = f.model;
  info.architecture = file.architecture();
  info.name = TRY(file.keys().text_or("general.name", ""));
  info.chat_template = TRY(file.keys().text_or("tokenizer.chat_template", ""));
  info.train_context = TRY(file.keys().integer(file.arch_key("context_length"), 1, kMaxContext));
  for (const TensorEntry& tensor : file.tensors()) {
    info.parameters += tensor.rows * tensor.cols;
    info.bytes += int64_t(tensor.bytes);
  }
  info.created = unix_seconds();
  info.version = build().version;
  info.commit = build().commit;
  return info;
}

Status load(const Flags& f, Parts& p, HttpServer& http, Signals& signals) {
  const bool scripted = f.engine_name.starts_with("script:");
  if (!scripted && f.engine_name != "model")
    return Error{Code::Usage, "--engine", "expected model or script:FILE, found '" + f.engine_name + "'"};
  p.file = scripted ? TRY(ModelFile::open(f.model, Need::Header)) : TRY(open_model(f.model));
  p.chat = TRY(Chat::make(*p.file));
  server::ApiOptions api = f.api;
  api.sampling =
      TRY(sampling(f.sampling, p.chat->recommended(), f.seed, vocabulary_of(*p.file, p.chat->tokenizer())));
  const server::ModelInfo info = TRY(info_of(f, *p.file));
  p.dialect = TRY(server::Dialect::make(*p.chat, info.chat_template, api.tool_parser, api.reasoning_parser));
  p.engine = TRY(open_service(f, p));
  p.intake = std::make_unique<server::Intake>(*p.engine, p.metrics, f.limits, size_t(f.engine.sequences));
  p.text = std::make_unique<WorkThread>();
  p.served.emplace(server::Served{*p.chat, *p.intake, *p.text, p.metrics, api, info});
  p.served->closing = [intake = p.intake.get()] { return intake->closed(); };
  p.served->dialect = p.dialect.get();
  p.served->http = [&http] { return http.counts(); };
  p.served->places = [intake = p.intake.get()] { return intake->places(); };
  p.served->end = [&signals] { signals.ask(); };
  p.served->log_requests = [logs = f.logs](bool on) { *logs = on; };
  server::add_routes(p.router, *p.served);
  return Ok{};
}

void end(const Flags& f, Parts& p, HttpServer& http) {
  constexpr double kLastWordsS = 3;
  const auto running = p.metrics.running.value() + p.metrics.waiting.value();
  if (!f.voice.quiet && running > 0)
    note("ending: " + std::to_string(running) + " requests have " + std::to_string(int(*f.drain_s)) + " s");
  p.intake->close();
  if (!http.drain(double(*f.drain_s))) {
    p.intake->cancel_all();
    http.drain(kLastWordsS);
  }
  http.stop();
  p.text.reset();    // what it has begun goes to the engine yet
  p.engine.reset();  // whose last events go through the intake
}

Result<int> run(std::span<const std::string> arguments) {
  Flags f;
  Options options(
      "serve [MODEL] [options]",
      "Serves a model over HTTP: the APIs of OpenAI (completions, chat, responses) and Anthropic "
      "(messages).",
      {"invar serve model.gguf", "invar serve model.gguf --port 0 --context 32768 --served-model-name m",
       "invar serve model.gguf --host 0.0.0.0 --api-key-file keys.txt"});
  describe(options, f);
  if (TRY(parse(options, arguments))) return 0;
  TRY(settle(f));
  static Signals signals;  // its thread has no end

  const auto start = std::chrono::steady_clock::now();
  Parts parts;
  std::atomic<bool> loaded = false;
  server::ModelInfo unread;
  unread.created = unix_seconds();
  HttpServer http(f.http, [&](server::HttpRequest request, std::shared_ptr<server::Reply> reply) {
    if (loaded) parts.router.handle(std::move(request), std::move(reply), *parts.served);
    else server::answer_loading(f.api, unread, request, *reply);
  });
  TRY(http.start());
  const std::string url = url_of(f, http.port());
  if (!f.voice.quiet) note("listening on " + url);
  TRY(load(f, parts, http, signals));
  loaded = true;
  signals.ready();
  TRY(tell_ready(f, *parts.served, url,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  signals.wait();
  end(f, parts, http);
  return 0;
}

}  // namespace

const Command serve_command = {"serve", "answers over HTTP, as OpenAI's and Anthropic's APIs do", run};

}  // namespace invar::cli
