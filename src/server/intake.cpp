#include "server/intake.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"

namespace invar::server {

// One request on its way; its events come one after the other, on the service's thread.
struct Intake::Watched {
  Request asked;  // n, max_tokens, sampling and on_event alone are kept
  int64_t prompt_tokens = 0;
  double submitted_at = 0, first_at = 0, last_at = 0;
  int left = 1;  // choices that have not ended
  bool began = false, prompt_counted = false;
  std::vector<Place*> places;  // of each choice; null: it has none as yet
};

// Who waits for no more than a free sequence does not count.
Status Intake::check_room(int64_t tokens) const {
  std::lock_guard lock(mutex_);
  const int64_t busy = std::count_if(places_.begin(), places_.end(), [](const Place& p) { return p.busy; });
  const int64_t waiting = metrics_.waiting.value() - std::max<int64_t>(0, sequences_ - busy);
  const bool many_tokens =
      waiting > 0 && limits_.waiting_tokens > 0 && waiting_tokens_ + tokens > limits_.waiting_tokens;
  if (waiting < limits_.waiting && !many_tokens) return Ok{};
  return Error{Code::NoRoom, "", "the queue is full"};
}

Result<uint64_t> Intake::submit(Request request) {
  if (closed_) return Error{Code::Cancelled, "", "the server is shutting down"};
  if (Status room = check_room(int64_t(request.prompt.size())); !room) {
    metrics_.rejected.add();
    return room.error();
  }
  return take(std::move(request));
}

Result<uint64_t> Intake::submit_further(Request request) {
  if (closed_) return Error{Code::Cancelled, "", "the server is shutting down"};
  return take(std::move(request));
}

Result<uint64_t> Intake::take(Request request) {
  const auto tokens = int64_t(request.prompt.size());
  auto w = std::make_shared<Watched>();
  w->submitted_at = steady_seconds();
  w->prompt_tokens = tokens;
  w->left = w->asked.n = request.n;
  w->places.resize(size_t(std::max(request.n, 1)));
  w->asked.max_tokens = request.max_tokens;
  w->asked.sampling = request.sampling;
  w->asked.on_event = std::move(request.on_event);
  request.on_event = [this, w](const Event& event) { return hear(*w, event); };
  request.start_s = std::min(request.start_s, limits_.queue_s);
  request.deadline_s = std::min(request.deadline_s, limits_.answer_s);
  metrics_.waiting.add();
  waiting_tokens_ += tokens;
  std::lock_guard lock(mutex_);  // the first event waits until the id is known
  auto id = service_.submit(std::move(request));
  if (!id) {
    metrics_.waiting.add(-1);
    waiting_tokens_ -= tokens;
    return id;
  }
  metrics_.choices.add(w->asked.n);
  if (w->asked.max_tokens >= 0) metrics_.most_tokens.add(double(w->asked.max_tokens));
  running_.insert(*id);
  return id;
}

bool Intake::hear(Watched& w, const Event& e) {
  const double now = steady_seconds();
  const bool ends = e.finish != Finish::Running;
  show(w, e);
  if (ends && e.finish == Finish::Cancelled)
    (w.first_at > 0 ? metrics_.cancelled_answering
     : w.began      ? metrics_.cancelled_reading
                    : metrics_.cancelled_waiting)
        .add();
  begin(w);
  if (!e.tokens.empty() || e.finish == Finish::Stop || e.finish == Finish::Length) count_prompt(w, e);
  if (!e.tokens.empty()) count_tokens(w, e, now);
  if (ends) {
    count_end(w, e, now);
    if (--w.left == 0) {
      metrics_.running.add(-1);
      std::lock_guard lock(mutex_);
      running_.erase(e.id);
    }
  }
  const bool more = !w.asked.on_event || w.asked.on_event(e);
  if (ends && w.left == 0) w.asked.on_event = {};
  return more;
}

// With its first event it waits no longer.
void Intake::begin(Watched& w) {
  if (std::exchange(w.began, true)) return;
  metrics_.waiting.add(-1);
  waiting_tokens_ -= w.prompt_tokens;
  metrics_.running.add();
}

// With its first token, or with an end that needs none.
void Intake::count_prompt(Watched& w, const Event& e) {
  if (std::exchange(w.prompt_counted, true)) return;
  metrics_.prompt_tokens.add(e.usage.prompt_tokens);
  metrics_.cached_tokens.add(e.usage.cached_tokens);
  metrics_.request_prompt_tokens.add(double(e.usage.prompt_tokens));
}

void Intake::count_tokens(Watched& w, const Event& e, double now) {
  if (w.first_at == 0) {
    w.first_at = now;
    metrics_.time_to_first_token.add(now - w.submitted_at);
  } else if (w.asked.n == 1) {
    metrics_.inter_token.add((now - w.last_at) / double(e.tokens.size()));
  }
  w.last_at = now;
  metrics_.generation_tokens.add(int64_t(e.tokens.size()));
}

void Intake::count_end(const Watched& w, const Event& e, double now) {
  const TokenUsage& u = e.usage;
  (e.finish == Finish::Length                                   ? metrics_.length
   : e.finish == Finish::Cancelled                              ? metrics_.aborted
   : e.finish == Finish::Stop || e.finish == Finish::StopString ? metrics_.stopped
                                                                : metrics_.errors)
      .add();
  metrics_.end_to_end.add(now - w.submitted_at);
  metrics_.queue.add(u.queue_s);
  metrics_.prefill.add(u.prompt_s);
  metrics_.decode.add(u.answer_s);
  metrics_.inference.add(u.prompt_s + u.answer_s);
  metrics_.request_generation_tokens.add(double(u.answer_tokens));
  if (u.answer_tokens > 1) metrics_.per_output_token.add(u.answer_s / double(u.answer_tokens - 1));
}

// What the choice of the event is at, in a place of its own from its beginning to its end.
void Intake::show(Watched& w, const Event& e) {
  const bool runs = e.finish == Finish::Running;
  std::lock_guard lock(mutex_);
  Place*& place = w.places[size_t(e.choice)];
  if (!place) {
    if (!runs) return;  // it ended before it began
    place = &free_place();
    *place = {e.id, true, w.asked.max_tokens, w.asked.sampling, {}};
  }
  place->usage = e.usage;
  place->busy = runs;
}

// One that none ran in, else the one whose request is the oldest.
Place& Intake::free_place() {
  Place* best = nullptr;
  for (Place& p : places_)
    if (!p.busy && (!best || p.request < best->request)) best = &p;
  return best ? *best : places_.emplace_back();
}

std::vector<Place> Intake::places() const {
  std::lock_guard lock(mutex_);
  return {places_.begin(), places_.end()};
}

void Intake::cancel_all() {
  std::lock_guard lock(mutex_);
  for (uint64_t id : running_) service_.cancel(id);
}

}  // namespace invar::server
