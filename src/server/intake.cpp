#include "server/intake.h"

#include <memory>

#include "server/reply_state.h"

namespace invar::server {

// One request on its way; its events come one after the other, on the service's thread.
struct Intake::Watched {
  Request asked;  // n and on_event alone are kept
  double submitted_at = 0, first_at = 0, last_at = 0;
  int left = 1;  // choices that have not ended
  bool began = false;
};

Result<uint64_t> Intake::submit(Request request) {
  if (closed_) return Error{Code::Cancelled, "", "the server is shutting down"};
  if (metrics_.waiting.value() >= most_waiting_) {
    metrics_.rejected.add();
    return Error{Code::NoRoom, "", "the queue is full"};
  }
  auto w = std::make_shared<Watched>();
  w->submitted_at = steady_seconds();
  w->left = request.n;
  w->asked.n = request.n;
  w->asked.on_event = std::move(request.on_event);
  request.on_event = [this, w](const Event& event) { return hear(*w, event); };
  const double choices = request.n, most = double(request.max_tokens);
  metrics_.waiting.add();
  std::lock_guard lock(mutex_);  // the first event waits until the id is known
  auto id = service_.submit(std::move(request));
  if (!id) {
    metrics_.waiting.add(-1);
    return id;
  }
  metrics_.choices.add(choices);
  if (most >= 0) metrics_.most_tokens.add(most);
  running_.insert(*id);
  return id;
}

bool Intake::hear(Watched& w, const Event& e) {
  const double now = steady_seconds();
  const bool ends = e.finish != Finish::Running;
  if (!w.began) {
    w.began = true;
    metrics_.waiting.add(-1);
    metrics_.running.add();
  }
  if (!e.tokens.empty()) {
    if (w.first_at == 0) {
      w.first_at = now;
      metrics_.time_to_first_token.add(now - w.submitted_at);
      metrics_.prompt_tokens.add(e.usage.prompt_tokens);
      metrics_.cached_tokens.add(e.usage.cached_tokens);
      metrics_.request_prompt_tokens.add(double(e.usage.prompt_tokens));
    } else if (w.asked.n == 1) {
      metrics_.inter_token.add((now - w.last_at) / double(e.tokens.size()));
    }
    w.last_at = now;
    metrics_.generation_tokens.add(int64_t(e.tokens.size()));
  }
  if (ends) {
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

void Intake::cancel_all() {
  std::lock_guard lock(mutex_);
  for (uint64_t id : running_) service_.cancel(id);
}

}  // namespace invar::server
