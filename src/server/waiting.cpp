#include "server/waiting.h"

#include <utility>

#include "base/clock.h"
#include "server/errors.h"

namespace invar::server {
namespace {

// That it holds, with its place in the queue.
int64_t bytes_of(const HttpRequest& r) {
  constexpr size_t kPlace = 1024;
  size_t bytes = kPlace + r.path.size() + r.query.size() + r.body.capacity();
  for (const Header& h : r.headers) bytes += sizeof(Header) + h.name.size() + h.value.size();
  return int64_t(bytes);
}

}  // namespace

Waiting::Waiting(HttpRequest& request, const std::shared_ptr<Reply>& reply, const Served& served,
                 int64_t bytes)
    : requests_(served.requests),
      all_bytes_(served.waiting_bytes),
      bytes_(bytes),
      id_(request.id),
      path_(request.path),
      received_at_(request.received_at),
      held_(Taken{std::move(request), reply}) {}

std::shared_ptr<Waiting> Waiting::enter(HttpRequest& request, const std::shared_ptr<Reply>& reply,
                                        const Served& served) {
  const int64_t bytes = bytes_of(request), before = served.waiting_bytes->fetch_add(bytes);
  if (before > 0 && before + bytes > served.options.most_waiting_bytes) {
    *served.waiting_bytes -= bytes;
    return nullptr;
  }
  const int key = request.key;
  std::shared_ptr<Waiting> waiting(new Waiting(request, reply, served, bytes));
  {
    std::lock_guard lock(waiting->mutex_);  // who finds it now waits for its number
    waiting->number_ = waiting->requests_->announce(waiting->id_, key, waiting);
  }
  reply->on_gone([weak = std::weak_ptr(waiting)] {
    if (auto still = weak.lock()) still->take();
  });
  return waiting;
}

std::optional<Waiting::Taken> Waiting::take() { return take(false); }

std::optional<Waiting::Taken> Waiting::take(bool stopping) {
  std::optional<Taken> taken;
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    taken.swap(held_);
    number = number_;
  }
  if (!taken) return taken;
  *all_bytes_ -= bytes_;
  Json state;  // whoever takes it goes on to tell
  if (stopping) state = this->state(), state["state"] = "ended";
  requests_->leave(number, std::move(state));
  return taken;
}

Json Waiting::state() const {
  return {{"id", id_},
          {"object", "request"},
          {"path", path_},
          {"state", "waiting"},
          {"seconds", steady_seconds() - received_at_}};
}

void Waiting::stop() {
  if (const auto taken = take(true)) refuse(*taken->reply, taken->request, stopped());
}

}  // namespace invar::server
