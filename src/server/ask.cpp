#include "server/ask.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>

#include "base/clock.h"
#include "server/answer_reader.h"
#include "server/dialect.h"
#include "server/prompt.h"
#include "server/rules.h"
#include "server/sse.h"

namespace invar::server {
namespace {

uint64_t draw_seed() {
  std::random_device source;
  return (uint64_t(source()) << 32 | source()) >> 11;  // whole as a double, too
}

// A fault of JSON without the library's name of it.
std::string bare(const std::string& message) {
  const size_t at = message.find("] ");
  return at == message.npos ? message : message.substr(at + 2);
}

// For a header: what is no plain character of ASCII becomes '?'.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < 0x20 || c > 0x7E) c = '?';
  return text;
}

// A call that did not come to its end, although the answer did; or none, although one began.
bool is_malformed(const Choice& choice, const std::string& call_begin, Finish finish) {
  auto broken = [&](const Block& b) {
    if (b.kind == Block::Kind::Call) return !b.complete && finish != Finish::Length;
    return b.kind == Block::Kind::Text && !call_begin.empty() && b.text.find(call_begin) != b.text.npos;
  };
  return std::any_of(choice.blocks.begin(), choice.blocks.end(), broken);
}

// One question on its way: hears the service's events, tells the client.
class Asking : public Tracked, public std::enable_shared_from_this<Asking> {
 public:
  Asking(Served& served, const HttpRequest& request, std::shared_ptr<Reply> reply, Question question,
         std::unique_ptr<Writer> writer)
      : served_(served),
        requests_(served.requests),
        request_{request.method, request.path, {}, {}, {}, request.id, request.received_at, request.key},
        reply_(std::move(reply)),
        q_(std::move(question)),
        writer_(std::move(writer)),
        gatherer_(
            answer_, q_.stream ? writer_.get() : nullptr,
            [this](std::string event) { events_.push_back(std::move(event)); },
            [this] { return reply_->pending_bytes() > Reply::kCoalesceBytes; }) {}

  ~Asking() override { leave(); }

  std::optional<ApiError> start();
  Json state() const override;
  void stop() override;

 private:
  std::optional<ApiError> submit(std::vector<Request> requests);
  std::optional<ApiError> ended_before();
  bool hear(size_t part, const Event& event);
  bool follow(size_t part, const Event& event);
  void tell();
  void hear_tokens(size_t choice, const Event& event);
  void take(size_t choice, const std::vector<AnswerPiece>& pieces);
  void end_choice(size_t part, size_t choice, const Event& event);
  void finish();
  void close();
  void fail(const ApiError& error);
  void cancel();
  void leave();
  Headers headers(const char* type) const;
  Json log_fields() const;
  Json fields() const;

  Served& served_;
  const std::shared_ptr<Requests> requests_;
  const HttpRequest request_;  // without headers and body
  const std::shared_ptr<Reply> reply_;
  Question q_;
  const std::unique_ptr<Writer> writer_;

  uint64_t number_ = 0;  // among those on their way

  mutable std::mutex mutex_;  // of what follows
  std::vector<uint64_t> ids_;
  Answer answer_;
  std::vector<std::string> events_;  // of the stream, to be written next
  Gatherer gatherer_;
  std::vector<AnswerReader> readers_;  // one per choice
  size_t ended_ = 0;                   // choices
  bool began_ = false, stopped_ = false, over_ = false;
  std::vector<std::string> ignored_;  // places of the schema
  std::string opening_;               // of each choice, if it is to be repeated
};

std::optional<ApiError> Asking::start() {
  number_ = requests_->enter(request_.id, request_.key, served_.options.most_per_key, weak_from_this());
  if (number_ == 0) {
    served_.metrics.rejected.add();
    return key_busy(served_.options.most_per_key);
  }
  const auto name = served_.options.model_name(q_.model);
  if (!name) return unknown_model(q_.model);
  answer_.model = *name;
  answer_.id = random_id("");
  answer_.created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  answer_.seed = q_.sampling.seed = q_.seed.value_or(draw_seed());

  Tokenized tokenized;
  const double began = steady_seconds();
  if (auto fault = tokenize(served_, q_, tokenized)) return fault;
  served_.metrics.template_s.add(steady_seconds() - began);
  int64_t longest = 0;
  for (const auto& prompt : tokenized.prompts) longest = std::max(longest, int64_t(prompt.size()));
  if (auto fault = check_length(served_, family_of(request_.path), longest, q_.max_tokens)) return fault;

  {
    std::lock_guard lock(mutex_);
    if (auto end = ended_before()) return end;  // what follows may take a while
  }
  Rules rules;
  if (auto fault = rules_of(served_, q_, tokenized, rules)) return fault;
  ignored_ = std::move(rules.ignored);
  if (q_.echo) opening_ = tokenized.opening;
  std::vector<Request> requests;
  for (const auto& prompt : tokenized.prompts) {
    Request r;
    r.prompt = prompt;
    r.marks = served_.chat.marks(prompt);
    r.max_tokens = q_.max_tokens.value_or(-1);
    r.sampling = q_.sampling;
    r.n = q_.n;
    if (!q_.ignore_eos) r.stop = served_.chat.stop();
    r.stop.insert(r.stop.end(), q_.stop_tokens.begin(), q_.stop_tokens.end());
    r.allowed = served_.chat.allowed(served_.service.vocab());
    if (rules.constraint) r.constraint = rules.constraint->copy();
    r.priority = q_.priority;
    r.reuse = q_.reuse;
    r.logprobs = q_.logprobs;
    r.prompt_logprobs = std::max(q_.prompt_logprobs, q_.echo && !q_.conversation ? q_.logprobs : -1);
    requests.push_back(std::move(r));
    answer_.prompts.push_back({prompt, {}, 0});
  }
  answer_.choices.resize(requests.size() * size_t(q_.n));
  for (size_t i = 0; i < answer_.choices.size(); ++i)
    readers_.emplace_back(served_.chat.tokenizer(), served_.dialect->format, q_, tokenized,
                          served_.options.calls_in_thought);
  return submit(std::move(requests));
}

std::optional<ApiError> Asking::submit(std::vector<Request> requests) {
  {
    std::lock_guard lock(mutex_);  // events wait until the stream has begun
    if (auto end = ended_before()) return end;
    const IntakeLimits& limits = served_.service.limits();
    const double age = steady_seconds() - request_.received_at;
    for (size_t part = 0; part < requests.size(); ++part) {
      requests[part].on_event = [self = shared_from_this(), part](const Event& e) {
        return self->hear(part, e);
      };
      requests[part].start_s = limits.queue_s - age;
      requests[part].deadline_s = limits.answer_s - age;
      auto id = part == 0 ? served_.service.submit(std::move(requests[part]))
                          : served_.service.submit_further(std::move(requests[part]));
      if (!id) {
        over_ = true;
        cancel();
        ApiError error = api_error(id.error());
        if (error.param.starts_with("--")) {  // an option of the command line has the name of the field
          error.param = error.param.substr(2);
          std::replace(error.param.begin(), error.param.end(), '-', '_');
          error.message = error.param + ": " + id.error().message;
        }
        return error;
      }
      ids_.push_back(*id);
    }
    if (q_.stream)
      reply_->begin(200, headers("text/event-stream; charset=utf-8"), [weak = weak_from_this()] {
        auto self = weak.lock();
        if (!self) return;
        std::lock_guard lock(self->mutex_);
        if (self->over_) return;
        self->gatherer_.heartbeat();
        self->tell();
      });
  }
  reply_->on_gone([weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self) return;
    std::lock_guard lock(self->mutex_);
    self->cancel();
  });
  return {};
}

// What ended it while it was read, so that the service need not hear of it.  A client that has left hears
// none of it.
std::optional<ApiError> Asking::ended_before() {
  const IntakeLimits& limits = served_.service.limits();
  const double age = steady_seconds() - request_.received_at;
  std::optional<ApiError> end;
  if (stopped_ || reply_->gone()) end = stopped();
  else if (age >= limits.answer_s) end = took_too_long();
  else if (age >= limits.queue_s) end = queued_too_long();
  over_ = end.has_value();
  return end;
}

void Asking::cancel() {
  for (uint64_t id : ids_) served_.service.cancel(id);
}

// Before the client hears the last: it may ask again at once.
void Asking::leave() {
  if (number_ == 0) return;
  requests_->leave(std::exchange(number_, 0), ids_.empty() && !stopped_ ? Json() : fields());
}

void Asking::stop() {
  std::lock_guard lock(mutex_);
  if (over_) return;
  stopped_ = true;
  cancel();
}

Json Asking::state() const {
  std::lock_guard lock(mutex_);
  return fields();
}

bool Asking::hear(size_t part, const Event& e) {
  std::lock_guard lock(mutex_);
  const bool more = !over_ && follow(part, e);
  tell();
  return more;
}

// What one event of the service said goes out together.
void Asking::tell() {
  if (!events_.empty()) reply_->write(std::exchange(events_, {}));
}

bool Asking::follow(size_t part, const Event& e) {
  began_ |= e.finish == Finish::Running;
  const size_t choice = part * size_t(q_.n) + size_t(e.choice);
  if (e.choice == 0) {
    Prompt& prompt = answer_.prompts[part];
    prompt.cached_tokens = e.usage.cached_tokens;
    prompt.logprobs.insert(prompt.logprobs.end(), e.prompt_logprobs.begin(), e.prompt_logprobs.end());
    if (part == 0) answer_.first = e.usage;
  }
  if (e.finish == Finish::Running || e.finish == Finish::Stop || e.finish == Finish::Length ||
      e.finish == Finish::StopString) {
    hear_tokens(choice, e);
    if (e.finish == Finish::Running) return !readers_[choice].enough();
    end_choice(part, choice, e);
    if (++ended_ == answer_.choices.size()) finish();
    return false;
  }
  if (e.finish == Finish::Failed) fail(api_error(*e.error));
  else if (e.finish == Finish::Deadline) fail(began_ ? took_too_long() : queued_too_long());
  else if (stopped_) fail(stopped());
  else if (reply_->gone()) close();  // nobody is there to hear of it
  else fail(shutting_down());
  return false;
}

void Asking::hear_tokens(size_t choice, const Event& e) {
  Choice& c = answer_.choices[choice];
  AnswerReader& reader = readers_[choice];
  const bool keep = q_.logprobs >= 0 || q_.return_token_ids;
  if (!e.tokens.empty() && c.token_count == 0) gatherer_.text(choice, opening_);
  for (size_t i = 0; i < e.tokens.size() && !reader.enough(); ++i) {
    const auto pieces = reader.push(e.tokens[i]);
    ++c.token_count;
    c.thought_tokens = reader.thought_tokens();
    if (keep) c.tokens.push_back({e.tokens[i], reader.part()});
    if (i < e.logprobs.size()) c.tokens.back().logprob = e.logprobs[i];
    take(choice, pieces);
  }
  if (e.stopped_by < 0 || e.finish == Finish::Running) return;
  ++c.token_count;
  if (keep) c.stopped = Said{e.stopped_by, reader.part()};
  if (keep && !e.logprobs.empty()) c.stopped->logprob = e.logprobs.back();
}

void Asking::take(size_t choice, const std::vector<AnswerPiece>& pieces) {
  using Kind = AnswerPiece::Kind;
  for (const AnswerPiece& p : pieces) switch (p.kind) {
      case Kind::Thought:
        gatherer_.thought(choice, p.text);
        break;
      case Kind::Text:
        gatherer_.text(choice, p.text);
        break;
      case Kind::CallBegin:
        gatherer_.call(choice, p.text);
        break;
      case Kind::CallArguments:
        gatherer_.arguments(choice, p.text);
        break;
      case Kind::CallEnd:
        gatherer_.call_complete(choice);
        break;
    }
}

void Asking::end_choice(size_t part, size_t choice, const Event& e) {
  Choice& c = answer_.choices[choice];
  AnswerReader& reader = readers_[choice];
  take(choice, reader.finish(e.finish == Finish::Length));
  if (q_.conversation && !q_.conversation->tools.is_null() &&
      is_malformed(c, std::string(served_.dialect->format.call_begin), e.finish))
    served_.metrics.parse_anomalies.add();
  Ending ending = Ending::Stop;
  const auto& stops = q_.stop_tokens;
  if (reader.stop()) {
    ending = Ending::StopString;
    c.stop_string = *reader.stop();
  } else if (e.finish == Finish::Length) {
    const int64_t at = int64_t(answer_.prompts[part].tokens.size()) + c.token_count;
    const bool by_limit = q_.max_tokens && c.token_count >= *q_.max_tokens;
    ending = at >= served_.service.context() && !by_limit ? Ending::Window : Ending::Length;
  } else if (e.stopped_by >= 0 && std::find(stops.begin(), stops.end(), e.stopped_by) != stops.end()) {
    ending = Ending::StopToken;
    c.stop_token = e.stopped_by;
  }
  gatherer_.end_choice(choice, ending);
}

void Asking::finish() {
  over_ = true;
  leave();
  reply_->log(log_fields());
  if (!q_.stream) {
    reply_->send(200, headers("application/json"), writer_->whole(answer_));
    return;
  }
  gatherer_.end();
  reply_->end(std::exchange(events_, {}));
}

void Asking::close() {
  over_ = true;
  cancel();
  leave();
  reply_->log(log_fields());
}

void Asking::fail(const ApiError& error) {
  close();
  if (refuse(*reply_, request_, error)) return;
  if (gatherer_.fail(error)) reply_->end(std::exchange(events_, {}));
  else reply_->cut();
}

Headers Asking::headers(const char* type) const {
  Headers headers;
  if (q_.stream) headers = sse_headers();
  else headers.push_back({"Content-Type", type});
  headers.push_back({"x-seed", std::to_string(answer_.seed)});
  std::string ignored;
  for (const std::string& place : ignored_) ignored += (ignored.empty() ? "" : ", ") + printable(place);
  if (!ignored.empty()) headers.push_back({"x-schema-ignored", ignored.substr(0, 1000)});
  return headers;
}

Json Asking::log_fields() const {
  const Usage u = answer_.usage();
  Json finish = Json::array();
  constexpr const char* kNames[] = {"stop", "stop_string", "stop_token", "length", "context"};
  for (const Choice& c : answer_.choices)
    finish.push_back(c.ending ? (c.has_calls() && c.ending == Ending::Stop ? "calls" : kNames[int(*c.ending)])
                              : "none");
  Json j = {{"model", answer_.model},
            {"stream", q_.stream},
            {"prompt_tokens", u.prompt},
            {"cached_tokens", u.cached},
            {"answer_tokens", u.answer},
            {"thought_tokens", u.thought},
            {"seed", answer_.seed},
            {"finish", finish.size() == 1 ? finish[0] : finish},
            {"queue_s", answer_.first.queue_s},
            {"prompt_s", answer_.first.prompt_s},
            {"answer_s", answer_.first.answer_s}};
  if (!q_.affinity.empty()) j["affinity"] = q_.affinity.substr(0, 128);
  return j;
}

// What /v1/requests says.
Json Asking::fields() const {
  const char* at = over_                        ? "ended"
                   : !began_                    ? "waiting"
                   : answer_.usage().answer > 0 ? "answering"
                                                : "reading";
  Json j = {{"id", request_.id}, {"object", "request"}, {"path", request_.path}, {"state", at}};
  j["seconds"] = steady_seconds() - request_.received_at;
  if (!ids_.empty()) j.update(log_fields());  // else it is still being read
  return j;
}

// The first header by which clients say what belongs together.
std::string affinity_of(const HttpRequest& request) {
  for (const char* name : {"x-claude-code-session-id", "session-id", "x-session-affinity", "x-session-id"})
    if (const std::string_view value = request.header(name); !value.empty()) return std::string(value);
  return {};
}

}  // namespace

Question new_question(const Served& served) {
  Question q;
  q.sampling = served.options.sampling;
  return q;
}

std::optional<Json> read_body(const HttpRequest& request, Reply& reply) {
  constexpr int kMostNestedInBody = 128;
  auto json = parse_ordered_json(request.body, "body", kMostNestedInBody);
  ApiError error{400, {}, "invalid_json"};
  if (json && json->is_object()) return json.take();
  error.message =
      "the body: expected a JSON object, found " + (json ? kind_of(*json) : bare(json.error().message));
  refuse(reply, request, error);
  return {};
}

void ask(Served& served, const HttpRequest& request, const std::shared_ptr<Reply>& reply, Question question,
         std::unique_ptr<Writer> writer) {
  if (request.header("x-timings") == "1") question.timings = true;
  if (question.affinity.empty()) question.affinity = affinity_of(request);
  auto asking = std::make_shared<Asking>(served, request, reply, std::move(question), std::move(writer));
  if (auto fault = asking->start()) {
    asking.reset();
    if (!reply->gone()) refuse(*reply, request, *fault);
  }
}

}  // namespace invar::server
