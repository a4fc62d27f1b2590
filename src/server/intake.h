// The gate in front of a service: the bounds of the queue and of times, no new requests once the server is to
// end, the cancel of all that run at its deadline, the metrics of every request, and what each sequence is
// at.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <vector>

#include "engine/metrics.h"
#include "engine/service.h"

namespace invar::server {

struct IntakeLimits {
  int64_t waiting = 512;                                      // requests, beside what finds a free sequence
  int64_t waiting_tokens = 0;                                 // of their prompts together; 0: no bound
  double queue_s = std::numeric_limits<double>::infinity();   // until a request begins
  double answer_s = std::numeric_limits<double>::infinity();  // until it ends
};

// A sequence that runs, or the last that ran in its place.
struct Place {
  uint64_t request = 0;  // the service's id; 0: none ran there
  bool busy = false;
  int64_t most_tokens = -1;  // of the answer; below 0: until the context is full
  SamplingParams sampling;
  TokenUsage usage;
};

class Intake : public Service {
 public:
  // `places`: as many sequences run at once.  They are shown from the start; a further one comes when more
  // do.
  Intake(Service& service, Metrics& metrics, const IntakeLimits& limits, size_t places = 0)
      : service_(service), metrics_(metrics), limits_(limits), sequences_(int64_t(places)), places_(places) {}

  const IntakeLimits& limits() const { return limits_; }

  Result<uint64_t> submit(Request request) override;
  // Another prompt of what was submitted last: where the first had room it is taken, too.
  Result<uint64_t> submit_further(Request request);
  void cancel(uint64_t id) override { service_.cancel(id); }
  Statistics statistics() const override { return service_.statistics(); }
  void forget(std::function<void()> done) override { service_.forget(std::move(done)); }
  int64_t context() const override { return service_.context(); }
  int64_t vocab() const override { return service_.vocab(); }

  void close() { closed_ = true; }  // from now on submit() is refused with Cancelled
  bool closed() const { return closed_; }
  void cancel_all();
  std::vector<Place> places() const;

 private:
  struct Watched;
  Status check_room(int64_t tokens) const;
  Result<uint64_t> take(Request request);
  bool hear(Watched& w, const Event& event);
  void begin(Watched& w);
  void count_prompt(Watched& w, const Event& event);
  void count_tokens(Watched& w, const Event& event, double now);
  void count_end(const Watched& w, const Event& event, double now);
  void show(Watched& w, const Event& event);
  Place& free_place();

  Service& service_;
  Metrics& metrics_;
  const IntakeLimits limits_;
  const int64_t sequences_;
  std::atomic<bool> closed_ = false;
  std::atomic<int64_t> waiting_tokens_ = 0;
  mutable std::mutex mutex_;    // of what follows
  std::set<uint64_t> running_;  // ids that have not ended
  std::deque<Place> places_;    // which stay where they are
};

}  // namespace invar::server
