// include/invar.h over Engine and Chat: structs to structs, errors to codes, one thread that steps the
// engine, and a queue of events between it and who polls.
#include "invar.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "engine/chat.h"
#include "engine/engine.h"

struct invar_engine {
  invar::Chat chat;
  std::unique_ptr<invar::Engine> engine;
  std::vector<uint64_t> allowed;

  std::mutex mutex = {};  // of the events
  std::condition_variable filled = {};
  std::deque<invar_event> events = {};

  std::atomic<bool> stops = false;
  std::thread loop = {};
};

namespace invar {
namespace {

static_assert(INVAR_CANCELLED == int(Code::Cancelled) && INVAR_FAILED == int(Finish::Failed));

// As much as fits, not ending inside a character.
template <size_t size>
void put(char (&to)[size], std::string_view text) {
  size_t n = std::min(text.size(), size - 1);
  while (n > 0 && n < text.size() && (text[n] & 0xC0) == 0x80) --n;
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

void tell(invar_error* to, const Error& error) {
  if (!to) return;
  to->code = invar_code(error.code);
  put(to->text, error.where.empty() ? error.message : error.where + ": " + error.message);
}

template <class T>
void init(T* to) {
  *to = T{};
  to->size = sizeof(T);
}

// The members that the caller's struct has; the others keep their defaults.
template <class T>
T read(const T* from, T defaults) {
  if (from) std::memcpy(static_cast<void*>(&defaults), from, std::min(from->size, sizeof(T)));
  return defaults;
}

template <class T>
void write(T* to, const T& from) {
  const size_t size = to->size;
  std::memcpy(static_cast<void*>(to), &from, std::min(size, sizeof(T)));
  to->size = size;
}

int64_t give(const Result<std::vector<Token>>& tokens, int32_t* to, int64_t room, invar_error* error) {
  if (!tokens) return tell(error, tokens.error()), -1;
  std::copy_n(tokens->begin(), std::clamp<int64_t>(room, 0, int64_t(tokens->size())), to);
  return int64_t(tokens->size());
}

void run(invar_engine& e) {
  while (!e.stops)
    if (!e.engine->step()) e.engine->wait();
}

// The events of one choice; a piece of text that is longer than an event's takes several.
class Voice {
 public:
  Voice(invar_engine& engine, std::vector<std::string> stops)
      : engine_(engine), text_(engine.chat.tokenizer(), std::move(stops)) {}

  bool hear(const Event& e) {
    invar_event out;
    init(&out);
    out.id = e.id;
    out.choice = e.choice;
    out.prompt_tokens = e.usage.prompt_tokens;
    out.cached_tokens = e.usage.cached_tokens;
    out.prompt_rows = e.usage.prompt_rows;
    out.answer_tokens = e.usage.answer_tokens;
    out.token = -1;
    for (Token token : e.tokens) {
      out.token = token;
      send(out, text_.push(token));
    }
    if (e.finish == Finish::Running) {
      if (e.tokens.empty()) send(out, "");
      return !text_.stopped();
    }
    if (std::string rest = text_.finish(); !rest.empty()) send(out, rest);
    out.token = -1;
    out.finish = invar_finish(e.finish);
    out.error.code = INVAR_OK;
    if (e.error) tell(&out.error, *e.error);
    std::memcpy(out.logits_sha256, e.logits.data(), sizeof out.logits_sha256);
    send(out, "");
    return true;
  }

 private:
  void send(invar_event& out, std::string_view text) {
    std::lock_guard lock(engine_.mutex);
    std::string whole(text);
    std::erase(whole, '\0');
    text = whole;
    do {
      put(out.text, text);
      text.remove_prefix(std::strlen(out.text));
      engine_.events.push_back(out);
      out.token = -1;
    } while (!text.empty());
    engine_.filled.notify_all();
  }

  invar_engine& engine_;
  AnswerText text_;
};

Result<std::unique_ptr<invar_engine>> open(const char* path, const invar_options& o) {
  if (!path) return Error{Code::Usage, "path", "expected a file or a folder, found none"};
  EngineOptions options;
  options.threads = std::clamp(o.threads, 0, 1024);
  options.chunk = std::clamp(o.chunk, 1, 65536);
  options.sequences = std::clamp(o.parallel, 1, 1024);
  options.memory_bytes = std::max<int64_t>(0, o.memory_bytes);
  options.context = std::max<int64_t>(0, o.context);
  if (o.isa) options.isa = o.isa;
  if (o.kv) options.kv = o.kv;
  if (o.cache_folder) options.cache_folder = o.cache_folder;
  options.cache_disk_bytes = o.cache_disk_bytes;
  if (o.log)
    options.log = [log = o.log, data = o.log_data](const std::string& line) { log(data, line.c_str()); };
  const int64_t before = rss_bytes();
  ModelFile file = TRY(ModelFile::open(path));
  Chat chat = TRY(Chat::make(file));
  options.beside_bytes = std::max<int64_t>(0, rss_bytes() - before);
  auto engine = TRY(Engine::open(file, options));
  std::vector<uint64_t> allowed = chat.allowed(engine->runner().vocab());
  std::unique_ptr<invar_engine> e(new invar_engine{std::move(chat), std::move(engine), std::move(allowed)});
  e->loop = std::thread([engine = e.get()] { run(*engine); });
  return e;
}

Result<uint64_t> submit(invar_engine& e, const invar_request& r) {
  Request request;
  if (r.prompt && r.prompt_tokens > 0) request.prompt.assign(r.prompt, r.prompt + r.prompt_tokens);
  request.marks = e.chat.marks(request.prompt);
  request.max_tokens = r.max_tokens;
  SamplingParams& s = request.sampling;
  s.temperature = r.temperature, s.top_p = r.top_p, s.min_p = r.min_p, s.top_k = r.top_k;
  s.repetition = r.repetition, s.presence = r.presence, s.frequency = r.frequency, s.seed = r.seed;
  request.stop = e.chat.stop();
  request.allowed = e.allowed;
  request.n = r.n;
  request.priority = r.priority;
  if (r.deadline_s > 0) request.deadline_s = r.deadline_s;
  if (r.save_as) request.save_as = r.save_as;
  if (r.from) request.from = r.from;
  request.digest = true;
  std::vector<std::string> stops;
  for (int64_t i = 0; i < r.stops; ++i) stops.push_back(r.stop[i]);
  request.on_event = [&e, stops, voices = std::map<int, Voice>()](const Event& event) mutable {
    return voices.try_emplace(event.choice, e, stops).first->second.hear(event);
  };
  return e.engine->submit(std::move(request));
}

// What the work gives, done on the engine's thread between two steps.
template <class Work>
auto on_loop(invar_engine& e, const Work& work) {
  std::promise<decltype(work())> promise;
  auto result = promise.get_future();
  e.engine->post([&] { promise.set_value(work()); });
  return result.get();
}

// The same for saved states.  Files are read by who asks: the loop does not wait for them.
template <class Work>
auto on_saved(invar_engine& e, const Work& work) {
  return e.engine->saves_files() ? work() : on_loop(e, work);
}

invar_saved saved_of(const SavedInfo& info) {
  invar_saved saved;
  init(&saved);
  put(saved.name, info.name);
  put(saved.model, info.model);
  saved.tokens = info.tokens;
  saved.bytes = info.bytes;
  saved.saved_at = info.saved_at;
  saved.error.code = INVAR_OK;
  if (info.damage) tell(&saved.error, *info.damage);
  return saved;
}

Result<std::vector<Token>> chat_tokens(const Chat& chat, const char* messages, const char* options) {
  ChatInput input;
  input.messages = TRY(parse_ordered_json(messages ? messages : "", "messages"));
  if (options) input.options = TRY(parse_ordered_json(options, "options"));
  return chat.prompt(input);
}

}  // namespace
}  // namespace invar

using namespace invar;

void invar_options_init(invar_options* options) {
  init(options);
  const EngineOptions defaults;
  options->chunk = defaults.chunk;
  options->parallel = defaults.sequences;
  options->cache_disk_bytes = defaults.cache_disk_bytes;
}

invar_engine* invar_open(const char* path, const invar_options* options, invar_error* error) {
  invar_options defaults;
  invar_options_init(&defaults);
  auto engine = invar::open(path, read(options, defaults));
  if (!engine) return tell(error, engine.error()), nullptr;
  return engine.take().release();
}

void invar_close(invar_engine* engine) {
  if (!engine) return;
  engine->stops = true;
  engine->engine->wake();
  engine->loop.join();
  delete engine;
}

int64_t invar_vocab(const invar_engine* engine) { return engine->engine->runner().vocab(); }
int64_t invar_context(const invar_engine* engine) { return engine->engine->runner().context(); }

int64_t invar_tokenize(invar_engine* engine, const char* text, size_t bytes, int32_t* tokens, int64_t room,
                       invar_error* error) {
  return give(engine->chat.raw_prompt({text, bytes}), tokens, room, error);
}

int64_t invar_tokenize_chat(invar_engine* engine, const char* messages, const char* options, int32_t* tokens,
                            int64_t room, invar_error* error) {
  return give(chat_tokens(engine->chat, messages, options), tokens, room, error);
}

void invar_request_init(const invar_engine* engine, invar_request* request) {
  init(request);
  const SamplingParams& s = engine->chat.recommended();
  request->max_tokens = -1;
  request->n = 1;
  request->temperature = s.temperature, request->top_p = s.top_p, request->min_p = s.min_p;
  request->repetition = s.repetition, request->presence = s.presence, request->frequency = s.frequency;
  request->top_k = s.top_k;
}

uint64_t invar_submit(invar_engine* engine, const invar_request* request, invar_error* error) {
  invar_request defaults;
  invar_request_init(engine, &defaults);
  auto id = submit(*engine, read(request, defaults));
  if (!id) return tell(error, id.error()), 0;
  return *id;
}

void invar_cancel(invar_engine* engine, uint64_t id) { engine->engine->cancel(id); }

void invar_event_init(invar_event* event) { init(event); }

int invar_poll(invar_engine* engine, invar_event* event, double timeout_s) {
  std::unique_lock lock(engine->mutex);
  auto some = [&] { return !engine->events.empty(); };
  if (timeout_s < 0) engine->filled.wait(lock, some);
  else engine->filled.wait_for(lock, std::chrono::duration<double>(std::min(timeout_s, 1e6)), some);
  if (!some()) return 0;
  write(event, engine->events.front());
  engine->events.pop_front();
  return 1;
}

void invar_saved_init(invar_saved* saved) { init(saved); }

int64_t invar_list_saved(invar_engine* engine, invar_saved* list, int64_t room, invar_error* error) {
  const auto saved = on_saved(*engine, [&] { return engine->engine->saved(); });
  if (!saved) return tell(error, saved.error()), -1;
  const int64_t count = std::clamp<int64_t>(room, 0, int64_t(saved->size()));
  const size_t size = count > 0 ? list->size : 0;
  for (int64_t i = 0; i < count; ++i) {
    auto* to = reinterpret_cast<invar_saved*>(reinterpret_cast<char*>(list) + size * size_t(i));
    to->size = size;
    write(to, saved_of((*saved)[size_t(i)]));
  }
  return int64_t(saved->size());
}

int64_t invar_saved_tokens(invar_engine* engine, const char* name, int32_t* tokens, int64_t room,
                           invar_error* error) {
  return give(on_saved(*engine, [&] { return engine->engine->saved_tokens(name); }), tokens, room, error);
}

int invar_release(invar_engine* engine, const char* name, invar_error* error) {
  const auto released = on_saved(*engine, [&] { return engine->engine->release(name); });
  if (!released) return tell(error, released.error()), -1;
  return *released;
}

void invar_statistics_init(invar_statistics* statistics) { init(statistics); }

void invar_get_statistics(const invar_engine* engine, invar_statistics* statistics) {
  const Statistics s = engine->engine->statistics();
  write(statistics, {sizeof(invar_statistics),
                     s.running,
                     s.queued,
                     s.finished,
                     s.cancelled,
                     s.failed,
                     s.prompt_tokens,
                     s.cached_tokens,
                     s.prompt_rows,
                     s.answer_tokens,
                     s.preemptions,
                     s.memory.weights_bytes,
                     s.memory.scratch_bytes,
                     s.state.budget_bytes,
                     s.state.used_bytes,
                     s.disk.bytes,
                     s.memory.allowed_bytes,
                     memory_bytes(s),
                     s.memory.beside_bytes,
                     s.tree.bytes,
                     s.request_bytes});
}
