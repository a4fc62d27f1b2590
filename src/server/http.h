// HTTP/1.1 over Boost.Beast: connections, limits, time-outs, keys, request ids, streams.  Knows no API: what
// a request means is the handler's business.  Beast is seen by http.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace invar::server {

struct Header {
  std::string name, value;
};
using Headers = std::vector<Header>;

struct HttpRequest {
  std::string method;  // HEAD where HEAD was asked: answer as to GET, the body is left out by the transport
  std::string path;    // as routes are written (normal_path): no query, "/v1" in front of the OpenAI paths
  std::string query;   // without '?'
  Headers headers;
  std::string body;
  std::string id;          // of the request: the client's, or drawn
  double received_at = 0;  // seconds of the steady clock, when it was read
  int key = -1;            // which of the server's keys it came with; -1: none, or the admin's
  bool admin = false;      // it may change the server, see HttpOptions::admin_key
  bool admin_key = false;  // and came with that key

  std::string_view header(std::string_view name) const;  // in any case; empty if absent
};

// One slash for several, none at the end; "/v1/v1/x" is "/v1/x"; "/v1" is put in front of the OpenAI paths.
std::string normal_path(std::string_view path);

std::string percent_decoded(std::string_view text);  // what is no %XX stays

// The answer to one request.  Any thread may call any of it; nothing blocks.  Either send(), or begin(), any
// number of write() and end() or cut().  What comes after that, or after the client has left, is dropped.
class Reply {
 public:
  virtual ~Reply() = default;

  // The whole answer.  False, and nothing is sent: the head of a stream is out already (tell it in the
  // stream), or the client has left.  After begin() it takes the place of the stream as long as that is
  // possible.
  virtual bool send(int status, Headers headers, std::string body) = 0;

  // A stream: its head goes out with the first write(), or by itself after StreamTimes::commit_s. `heartbeat`
  // is called on the I/O thread whenever nothing was written for StreamTimes::heartbeat_s, and is expected to
  // write() something; it takes the lock that guards the caller's numbers, if any.
  virtual void begin(int status, Headers headers, std::function<void()> heartbeat = {}) = 0;
  // Chunks, which belong together: however large, they wait for a client that had taken most of what came
  // before.  False: the client has left, or is cut off now.
  virtual bool write(std::vector<std::string> chunks) = 0;
  virtual void end(std::vector<std::string> last) = 0;  // the stream is complete, with these, which all wait
  virtual void cut() = 0;  // breaks the connection off: the client sees that it is not
  bool write(std::string chunk) { return write(std::vector{std::move(chunk)}); }
  void end() { end(std::vector<std::string>()); }

  virtual bool committed() const = 0;  // a head is out, or as good as
  virtual bool gone() const = 0;       // the client has left, stalled for too long, or was cut off
  // Called once, on the I/O thread, when the client leaves before the end; at once if it has.
  virtual void on_gone(std::function<void()> callback) = 0;
  // Bytes that the client has not taken.  Above kCoalesceBytes a stream should merge what comes; who writes
  // while they are above kStreamBytes cuts the client off.
  virtual size_t pending_bytes() const = 0;

  // Fields for the request's line in the log, merged into it: no content, no secret.
  virtual void log(const Json& fields) = 0;

  static constexpr size_t kCoalesceBytes = 256 << 10, kStreamBytes = 4 << 20;
};

struct StreamTimes {
  double commit_s = 10, heartbeat_s = 15;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  int threads = 1;
  std::vector<std::string> keys;  // empty: none is asked for
  // Who has it may do all.  Empty: who asks from this machine, and not for a web page, may change the server.
  std::string admin_key;
  bool public_metrics = false;            // /metrics needs no key
  std::vector<std::string> cors_origins;  // empty: off; "*": any
  int64_t connections = 1024;
  uint64_t head_bytes = 64 << 10, body_bytes = 32 << 20;
  double head_s = 10, body_idle_s = 60, keep_alive_s = 75, write_stall_s = 60;
  double body_rate =
      1024;  // bytes a second that a body must have, on the whole, behind its first body_idle_s
  StreamTimes stream;
  std::function<void(const std::string& line)> log = {};  // one line of JSON for each request
};

struct HttpCounts {
  int64_t connections = 0, accepted = 0, refused = 0;  // refused: over the limit
  int64_t requests = 0, gone = 0, stalled = 0;         // gone: clients that left before the end
  int64_t sent_bytes = 0;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Reply>)>;

  // The handler is called on an I/O thread and must not block.
  HttpServer(HttpOptions options, Handler handler);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;

  Status start();    // binds and listens; Io: the address cannot be had
  int port() const;  // that it listens on
  HttpCounts counts() const;

  // No new connections, and POST is refused on those that are open.  When no answer is on its way any more,
  // or after so many seconds, those that wait for a request are closed, others after their answer.  Returns
  // when all are, or after so many seconds; false: some are left.
  bool drain(double seconds);
  void stop();  // closes all at once

  struct Impl;  // http.cpp's own

 private:
  std::unique_ptr<Impl> impl_;
};

// `prefix` and so many random letters and digits.
std::string random_id(std::string_view prefix, size_t length = 24);

// In a time that does not depend on how much of the key was right.
bool same_key(std::string_view given, std::string_view key);
bool is_loopback(std::string_view host);

}  // namespace invar::server
