// The answer of one request, between whoever gives it (any thread) and the connection that writes it.  The
// transport's side of Reply; http.cpp alone uses it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http.h"

namespace invar::server {

struct ReplyForm {  // how the bytes of an answer look on this connection
  bool chunked = true;
  bool keep_alive = true;
  std::shared_ptr<const std::atomic<bool>> ending = {};  // if set: the connection ends whatever it was to be
  bool head_only = false;                                // HEAD
  Headers headers;                                       // beside the answer's own
};

class ReplyState : public Reply {
 public:
  using Log = std::function<void(Json)>;
  using Reply::end, Reply::write;

  // `wake` tells the connection that there is something to do, until detach().
  ReplyState(ReplyForm form, const StreamTimes& times, std::function<void()> wake, Log log);
  ~ReplyState() override;  // logs

  bool send(int status, Headers headers, std::string body) override;
  void begin(int status, Headers headers, std::function<void()> heartbeat) override;
  bool write(std::vector<std::string> chunks) override;
  void end(std::vector<std::string> last) override;
  void cut() override;
  bool committed() const override;
  bool gone() const override;
  void on_gone(std::function<void()> callback) override;
  size_t pending_bytes() const override { return unsent_; }
  void log(const Json& fields) override;

  // The connection's side.
  struct Next {
    std::string bytes;           // to write now
    bool done = false;           // nothing comes behind them
    bool close = false;          // after them; with `gone` at once
    double wait_s = 0;           // without bytes: until it is worth asking again
    std::function<void()> beat;  // to call first
  };
  Next next(double now);
  void sent(size_t bytes) { unsent_ -= bytes; }
  void leave();   // the client has left; calls on_gone unless the answer is complete
  void detach();  // the connection is about to end: wake is not called any more

 private:
  enum class Phase { Waiting, Begun, Streaming, Complete, Gone };

  void queue(std::string_view bytes);
  void queue_chunk(std::string_view bytes);
  void commit();
  std::string head(std::optional<size_t> length);

  const ReplyForm form_;
  const StreamTimes times_;
  const Log log_;
  std::atomic<size_t> unsent_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::function<void()> wake_;
  Phase phase_ = Phase::Waiting;
  bool cut_ = false, woken_ = false, keeps_ = false;  // keeps_: the connection, as the head said
  int status_ = 0;
  Headers headers_;
  std::string queued_;
  std::function<void()> heartbeat_, on_gone_;
  double begun_at_ = 0, wrote_at_ = 0;
  uint64_t bytes_ = 0;
  Json fields_ = Json::object();
};

const char* reason_of(int status);

}  // namespace invar::server
