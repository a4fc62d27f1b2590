#include "server/reply_state.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/clock.h"

namespace invar::server {

const char* reason_of(int status) {
  struct Reason {
    int status;
    const char* text;
  };
  constexpr Reason kReasons[] = {{200, "OK"},
                                 {204, "No Content"},
                                 {400, "Bad Request"},
                                 {401, "Unauthorized"},
                                 {403, "Forbidden"},
                                 {404, "Not Found"},
                                 {405, "Method Not Allowed"},
                                 {408, "Request Timeout"},
                                 {413, "Content Too Large"},
                                 {415, "Unsupported Media Type"},
                                 {417, "Expectation Failed"},
                                 {422, "Unprocessable Content"},
                                 {429, "Too Many Requests"},
                                 {431, "Request Header Fields Too Large"},
                                 {499, "Client Closed Request"},
                                 {500, "Internal Server Error"},
                                 {501, "Not Implemented"},
                                 {503, "Service Unavailable"},
                                 {504, "Gateway Timeout"}};
  for (const Reason& r : kReasons)
    if (r.status == status) return r.text;
  return "Status";
}

ReplyState::ReplyState(ReplyForm form, const StreamTimes& times, std::function<void()> wake, Log log)
    : form_(std::move(form)), times_(times), log_(std::move(log)), wake_(std::move(wake)) {}

ReplyState::~ReplyState() {
  if (!log_) return;
  Json line = {{"status", status_}, {"bytes", bytes_}};
  if (phase_ != Phase::Complete || cut_) line["complete"] = false;
  line.update(fields_);
  log_(std::move(line));
}

// --- whoever answers ---

bool ReplyState::send(int status, Headers headers, std::string body) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::Waiting && phase_ != Phase::Begun) return false;
  status_ = status;
  headers_ = std::move(headers);
  queue(head(body.size()));
  if (!form_.head_only) queue(body);
  phase_ = Phase::Complete;
  if (wake_) wake_();
  return true;
}

void ReplyState::begin(int status, Headers headers, std::function<void()> heartbeat) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::Waiting) return;
  phase_ = Phase::Begun;
  status_ = status;
  headers_ = std::move(headers);
  heartbeat_ = std::move(heartbeat);
  begun_at_ = wrote_at_ = steady_seconds();
  if (wake_) wake_();
}

bool ReplyState::write(std::vector<std::string> chunks) {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::Begun) commit();
  if (phase_ != Phase::Streaming) return false;
  if (unsent_ > kStreamBytes) {
    cut_ = true;
    if (wake_) wake_();
    return false;
  }
  for (const std::string& chunk : chunks) queue_chunk(chunk);
  wrote_at_ = steady_seconds();
  if (wake_ && !woken_) wake_();
  woken_ = true;
  return true;
}

void ReplyState::end(std::vector<std::string> last) {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::Begun) commit();
  if (phase_ != Phase::Streaming) return;
  for (const std::string& chunk : last) queue_chunk(chunk);
  if (form_.chunked && !form_.head_only) queue("0\r\n\r\n");
  phase_ = Phase::Complete;
  if (wake_) wake_();
}

void ReplyState::cut() {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::Complete || phase_ == Phase::Gone) return;
  cut_ = true;
  if (wake_) wake_();
}

bool ReplyState::committed() const {
  std::lock_guard lock(mutex_);
  return phase_ != Phase::Waiting && phase_ != Phase::Begun;
}

bool ReplyState::gone() const {
  std::lock_guard lock(mutex_);
  return phase_ == Phase::Gone || cut_;
}

void ReplyState::on_gone(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::Complete) return;
    if (phase_ != Phase::Gone) {
      on_gone_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ReplyState::log(const Json& fields) {
  std::lock_guard lock(mutex_);
  fields_.update(fields);
}

// --- the connection ---

ReplyState::Next ReplyState::next(double now) {
  std::lock_guard lock(mutex_);
  Next next;
  woken_ = false;
  if (cut_ || phase_ == Phase::Gone) {
    next.done = next.close = true;
    return next;
  }
  if (phase_ == Phase::Begun && now >= begun_at_ + times_.commit_s) commit();
  next.bytes = std::move(queued_);
  queued_.clear();
  next.done = phase_ == Phase::Complete;
  next.close = next.done && !keeps_;
  if (next.done || !next.bytes.empty()) return next;
  next.wait_s = 3600;
  if (phase_ == Phase::Begun) next.wait_s = begun_at_ + times_.commit_s - now;
  if (heartbeat_ && (phase_ == Phase::Begun || phase_ == Phase::Streaming)) {
    const double due = wrote_at_ + times_.heartbeat_s - now;
    if (due <= 0) {
      next.beat = heartbeat_;
      wrote_at_ = now;  // also if it writes nothing
    } else {
      next.wait_s = std::min(next.wait_s, due);
    }
  }
  return next;
}

void ReplyState::leave() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (phase_ == Phase::Gone || (phase_ == Phase::Complete && unsent_ == 0)) return;
    if (phase_ != Phase::Complete) callback = std::move(on_gone_);
    phase_ = Phase::Gone;
    on_gone_ = heartbeat_ = {};
    queued_.clear();
  }
  if (callback) callback();
}

void ReplyState::detach() {
  std::function<void()> last;  // what the callbacks hold is let go outside of the lock
  std::function<void()> beat;
  std::lock_guard lock(mutex_);
  wake_ = {};
  last.swap(on_gone_);
  beat.swap(heartbeat_);
}

// --- both ---

void ReplyState::queue(std::string_view bytes) {
  queued_ += bytes;
  unsent_ += bytes.size();
  bytes_ += bytes.size();
}

void ReplyState::queue_chunk(std::string_view bytes) {
  if (bytes.empty() || form_.head_only) return;  // an empty chunk would be the end
  char size[24];
  const int digits = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  if (form_.chunked) queue(std::string_view(size, size_t(digits)));
  queue(bytes);
  if (form_.chunked) queue("\r\n");
}

void ReplyState::commit() {
  phase_ = Phase::Streaming;
  queue(head({}));
}

// `length`: of the body; none: a stream.
std::string ReplyState::head(std::optional<size_t> length) {
  std::string text = "HTTP/1.1 " + std::to_string(status_) + " " + reason_of(status_) + "\r\n";
  auto add = [&](std::string_view name, std::string_view value) {
    text.append(name).append(": ");
    for (char c : value) text += c == '\r' || c == '\n' ? ' ' : c;
    text += "\r\n";
  };
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char date[40];
  std::strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &parts));
  add("Date", date);
  for (const Header& h : headers_) add(h.name, h.value);
  for (const Header& h : form_.headers) add(h.name, h.value);
  if (length && status_ != 204) add("Content-Length", std::to_string(*length));
  if (!length && form_.chunked) add("Transfer-Encoding", "chunked");
  keeps_ = form_.keep_alive && (length || form_.chunked) && !(form_.ending && *form_.ending);
  add("Connection", keeps_ ? "keep-alive" : "close");
  return text + "\r\n";
}

}  // namespace invar::server
