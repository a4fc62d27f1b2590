// A request before the text thread: its bytes count, its id is known, and it is let go when its client
// leaves.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http.h"
#include "server/requests.h"
#include "server/server.h"

namespace invar::server {

class Waiting : public Tracked {  // any thread may call any of it
 public:
  struct Taken {
    HttpRequest request;
    std::shared_ptr<Reply> reply;
  };

  // Null: others wait, and the bytes of all would be too many.  The request is left as it was then.
  static std::shared_ptr<Waiting> enter(HttpRequest& request, const std::shared_ptr<Reply>& reply,
                                        const Served& served);
  ~Waiting() override { take(); }

  std::optional<Taken> take();  // once; none: the client has left, or it was stopped
  Json state() const override;
  void stop() override;

 private:
  Waiting(HttpRequest& request, const std::shared_ptr<Reply>& reply, const Served& served, int64_t bytes);
  std::optional<Taken> take(bool stopping);

  const std::shared_ptr<Requests> requests_;
  const std::shared_ptr<std::atomic<int64_t>> all_bytes_;
  const int64_t bytes_;
  const std::string id_, path_;
  const double received_at_;

  std::mutex mutex_;     // of what follows
  uint64_t number_ = 0;  // among those on their way
  std::optional<Taken> held_;
};

}  // namespace invar::server
