// The gate in front of a service: the bound of the queue, no new requests once the server is to end, the
// cancel of all that run at its deadline, and the metrics of every request.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

#include "engine/metrics.h"
#include "engine/service.h"

namespace invar::server {

class Intake : public Service {
 public:
  Intake(Service& service, Metrics& metrics, int64_t most_waiting)
      : service_(service), metrics_(metrics), most_waiting_(most_waiting) {}

  Result<uint64_t> submit(Request request) override;
  void cancel(uint64_t id) override { service_.cancel(id); }
  Statistics statistics() const override { return service_.statistics(); }
  int64_t context() const override { return service_.context(); }
  int64_t vocab() const override { return service_.vocab(); }

  void close() { closed_ = true; }  // from now on submit() is refused with Cancelled
  bool closed() const { return closed_; }
  void cancel_all();

 private:
  struct Watched;
  bool hear(Watched& w, const Event& event);

  Service& service_;
  Metrics& metrics_;
  const int64_t most_waiting_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;
  std::set<uint64_t> running_;  // ids that have not ended
};

}  // namespace invar::server
