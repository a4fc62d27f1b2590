#include "server/http.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "server/errors.h"
#include "server/reply_state.h"
#include "server/request_reader.h"

namespace invar::server {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using tcp = asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPieceBytes = 64 << 10;  // of one read or write
constexpr double kPollS = 0.25;           // how often a client is looked at that sent more than is read ahead

std::chrono::nanoseconds duration_of(double seconds) {
  return std::chrono::nanoseconds(int64_t(std::min(seconds, 1e9) * 1e9));
}

bool is_public(const HttpOptions& options, const HttpRequest& r) {
  if (r.method != "GET" && r.method != "HEAD") return false;
  for (std::string_view path : {"/", "/health", "/livez", "/readyz", "/ping"})
    if (r.path == path) return true;
  return options.public_metrics && r.path == "/metrics";
}

// What may be a key.
std::vector<std::string_view> keys_given(const HttpRequest& r) {
  constexpr std::string_view kBearer = "bearer ";
  std::vector<std::string_view> given = {r.header("x-api-key"), r.header("api-key")};
  if (std::string_view value = r.header("authorization"); value.size() > kBearer.size()) {
    std::string scheme(value.substr(0, kBearer.size()));
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](char c) { return char(std::tolower(c)); });
    if (scheme == kBearer) given.push_back(value.substr(kBearer.size()));
  }
  std::erase(given, std::string_view());
  return given;
}

struct Caller {
  int key = -1;
  bool admin = false, admin_key = false;
};

// All keys are compared, so that the time tells nothing.
Caller caller_of(const HttpOptions& options, bool from_here, const HttpRequest& r) {
  Caller caller;
  for (std::string_view one : keys_given(r)) {
    for (size_t i = 0; i < options.keys.size(); ++i)
      if (same_key(one, options.keys[i])) caller.key = int(i);
    if (!options.admin_key.empty()) caller.admin_key |= same_key(one, options.admin_key);
  }
  const bool by_place = options.admin_key.empty() && from_here && r.header("origin").empty();
  caller.admin = caller.admin_key || by_place;
  return caller;
}

bool may_ask(const HttpOptions& options, const Caller& caller, const HttpRequest& r) {
  const bool has_key = caller.key >= 0 || caller.admin_key;
  const bool preflight = r.method == "OPTIONS" && !options.cors_origins.empty();
  return options.keys.empty() || has_key || preflight || is_public(options, r);
}

bool is_of_this_machine(const tcp::socket& socket) {
  boost::system::error_code error;
  const asio::ip::address address = socket.remote_endpoint(error).address();
  if (error) return false;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

// The client's id if it may be shown, else one of ours.
std::string id_of(const HttpRequest& r) {
  for (const char* name : {"x-request-id", "x-client-request-id"}) {
    const std::string_view id = r.header(name);
    const bool plain = std::all_of(id.begin(), id.end(), [](char c) { return c > 32 && c < 127; });
    if (!id.empty() && id.size() <= 128 && plain) return std::string(id);
  }
  return random_id("req_");
}

Headers cors_headers(const HttpOptions& options, const HttpRequest& r) {
  const std::string_view origin = r.header("origin");
  bool known = false, any = false;
  for (const std::string& allowed : options.cors_origins) {
    any |= allowed == "*";
    known |= allowed == origin;
  }
  if (origin.empty() || (!known && !any)) return {};
  return {{"Access-Control-Allow-Origin", known ? std::string(origin) : "*"},
          {"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after"},
          {"Vary", "Origin"}};
}

class Connection;

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions o, Handler h) : options(std::move(o)), handler(std::move(h)) {}

  awaitable<void> accept_loop();
  void add(tcp::socket socket);
  bool make_place();
  std::vector<std::shared_ptr<Connection>> open_connections();

  const HttpOptions options;
  const Handler handler;
  const std::shared_ptr<std::atomic<bool>> draining = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> closing = false;  // no request is read any more
  std::atomic<int64_t> accepted = 0, refused = 0, requests = 0, gone = 0, stalled = 0, sent_bytes = 0;
  int port = 0;

  // Of what follows.  A connection takes it when it ends, so that the last reference to one must not be let
  // go while it is held: open_connections() alone locks those of the map.
  std::mutex mutex;
  std::condition_variable changed;
  int64_t at_work = 0;  // connections between a request and the end of its answer
  std::map<Connection*, std::weak_ptr<Connection>> connections;

  asio::io_context io;  // connections that wait in it end with it, and use what is above
  tcp::acceptor acceptor{asio::make_strand(io)};
  std::vector<std::thread> threads;
};

namespace {

class AtWork {  // from a request to the end of its answer
 public:
  explicit AtWork(HttpServer::Impl& server) : server_(server) { add(1); }
  ~AtWork() { add(-1); }
  AtWork(const AtWork&) = delete;

 private:
  void add(int64_t count) {
    std::lock_guard lock(server_.mutex);
    server_.at_work += count;
    server_.changed.notify_all();
  }

  HttpServer::Impl& server_;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, HttpServer::Impl& server)
      : from_here_(is_of_this_machine(socket)),
        stream_(std::move(socket)),
        server_(server),
        wake_(stream_.get_executor()),
        since_(steady_seconds()) {
    wake_.expires_at(asio::steady_timer::time_point::max());
  }

  ~Connection() {
    std::lock_guard lock(server_.mutex);
    server_.connections.erase(this);
    server_.changed.notify_all();
  }

  awaitable<void> run();
  auto executor() { return stream_.get_executor(); }
  double waits_since() const { return since_; }  // for bytes of the client; HUGE_VAL: it does not

  // From any thread.
  void make_way() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (self->since_ != HUGE_VAL) self->stream_.close();
    });
  }
  void close_if_reading() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (self->reads_ != Reads::Nothing) self->stream_.close();
    });
  }
  void refuse_body() {  // that it is reading, if any, since it comes too late
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (self->reads_ != Reads::Body) return;
      self->reads_ = Reads::Nothing;
      self->stream_.cancel();
    });
  }
  void forsake() {  // when the I/O threads have ended
    if (!reply_) return;
    reply_->leave();
    reply_->detach();
  }

 private:
  enum class Got { Request, Fault, Nothing };
  enum class Reads { Nothing, Head, Body };  // Head: or waits for one

  awaitable<bool> read_some();
  awaitable<Got> read_request(RequestReader& reader, bool first);
  awaitable<bool> write_all(std::string bytes);
  awaitable<bool> answer();
  awaitable<void> linger();
  void prepare(const RequestReader& reader, const HttpRequest& request);
  bool comes_too_late(const HttpRequest& r) const { return *server_.draining && r.method == "POST"; }
  void watch();
  void look();
  void leave();

  const HttpOptions& options() const { return server_.options; }

  const bool from_here_;  // the client is on this machine
  boost::beast::tcp_stream stream_;
  HttpServer::Impl& server_;
  std::string buffer_;  // read, and not yet taken
  std::shared_ptr<ReplyState> reply_;
  asio::steady_timer wake_;
  Reads reads_ = Reads::Head;
  bool answering_ = false, watching_ = false;
  std::atomic<double> since_;
};

// Appends to the buffer; false: the connection has ended, or its time is over.
awaitable<bool> Connection::read_some() {
  const size_t had = buffer_.size();
  buffer_.resize(had + kPieceBytes);
  auto [error, size] =
      co_await stream_.async_read_some(asio::buffer(buffer_.data() + had, kPieceBytes), kTuple);
  buffer_.resize(had + (error ? 0 : size));
  co_return !error && size > 0;
}

// One whole request, or what is wrong with it.  The bytes behind it stay in the buffer.
awaitable<Connection::Got> Connection::read_request(RequestReader& reader, bool first) {
  bool begun = first || !buffer_.empty();
  since_ = steady_seconds();
  reads_ = Reads::Head;
  stream_.expires_after(duration_of(begun ? options().head_s : options().keep_alive_s));
  bool with_head = false;
  double body_at = 0;
  size_t body_bytes = 0;  // as they were sent
  while (true) {
    buffer_.erase(0, reader.feed(buffer_));
    if (reader.at() == RequestReader::At::Fault) co_return Got::Fault;
    if (reader.at() == RequestReader::At::Head) {
      if (server_.closing || !co_await read_some()) co_return Got::Nothing;
      if (begun) continue;
      begun = true;
      since_ = steady_seconds();
      stream_.expires_after(duration_of(options().head_s));
      continue;
    }
    if (!with_head) {
      with_head = true;
      reads_ = Reads::Body;
      body_at = steady_seconds();
      body_bytes = buffer_.size();
      if (!may_ask(options(), caller_of(options(), from_here_, reader.head()), reader.head()))
        co_return Got::Request;  // refused without its body
      if (comes_too_late(reader.head())) continue;
      if (reader.expects_continue() && reader.at() == RequestReader::At::Body && buffer_.empty())
        if (!co_await write_all("HTTP/1.1 100 Continue\r\n\r\n")) co_return Got::Nothing;
      continue;
    }
    if (reader.at() == RequestReader::At::Done || comes_too_late(reader.head())) co_return Got::Request;
    const double left =
        body_at + options().body_idle_s + double(body_bytes) / options().body_rate - steady_seconds();
    if (left <= 0 || server_.closing) co_return Got::Nothing;
    stream_.expires_after(duration_of(std::min(left, options().body_idle_s)));
    const size_t had = buffer_.size();
    if (!co_await read_some() && !comes_too_late(reader.head())) co_return Got::Nothing;
    body_bytes += buffer_.size() - had;
  }
}

// Any progress within the time for it; false: the client has left or takes nothing.
awaitable<bool> Connection::write_all(std::string bytes) {
  for (size_t at = 0; at < bytes.size();) {
    stream_.expires_after(duration_of(options().write_stall_s));
    auto [error, size] = co_await stream_.async_write_some(
        asio::buffer(bytes.data() + at, std::min(bytes.size() - at, kPieceBytes)), kTuple);
    if (error) {
      if (error == boost::beast::error::timeout) ++server_.stalled;
      co_return false;
    }
    at += size;
    server_.sent_bytes += int64_t(size);
    if (reply_) reply_->sent(size);
  }
  stream_.expires_never();
  co_return true;
}

// The reply of the request that `reader` has read, or has found wrong.
void Connection::prepare(const RequestReader& reader, const HttpRequest& request) {
  ++server_.requests;
  ReplyForm form;
  form.chunked = reader.chunked_answers();
  form.keep_alive = reader.at() == RequestReader::At::Done && reader.keep_alive() && form.chunked;
  form.ending = server_.draining;
  form.head_only = request.method == "HEAD";
  form.headers = cors_headers(options(), request);
  form.headers.push_back({"x-request-id", request.id});
  if (family_of(request.path) == Family::Anthropic) form.headers.push_back({"request-id", request.id});
  ReplyState::Log log;
  const bool probe = is_public(options(), request) || request.path == "/metrics";
  if (options().log && !(probe && reader.at() == RequestReader::At::Done))
    log = [write = options().log, id = request.id, method = request.method, path = request.path,
           trace = std::string(request.header("traceparent").substr(0, 128)), size = request.body.size(),
           start = request.received_at](Json fields) {
      Json line = {{"unix_s", double(std::chrono::duration_cast<std::chrono::milliseconds>(
                                         std::chrono::system_clock::now().time_since_epoch())
                                         .count()) /
                                  1e3},
                   {"request_id", id},
                   {"method", method},
                   {"path", path.substr(0, 256)},
                   {"request_bytes", size},
                   {"seconds", std::round((steady_seconds() - start) * 1e6) / 1e6}};
      if (!trace.empty()) line["traceparent"] = trace;
      line.update(fields);
      write(json_text(line));
    };
  auto wake = [this] {  // from any thread, until detach()
    asio::post(stream_.get_executor(), [self = weak_from_this()] {
      auto connection = self.lock();
      if (!connection) return;
      if (connection->reply_ && connection->reply_->gone()) connection->stream_.close();
      connection->wake_.cancel();
    });
  };
  reply_ = std::make_shared<ReplyState>(std::move(form), options().stream, wake, std::move(log));
}

// While an answer is made, the socket is watched for the client's end.  What it sends meanwhile is the next
// request; it is read ahead as far as a head may be long.
void Connection::watch() {
  if (watching_) return;
  watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](boost::system::error_code error) {
                                self->watching_ = false;
                                if (!self->answering_) return;
                                if (error) self->leave();
                                else self->look();
                              });
}

void Connection::look() {
  const int socket = stream_.socket().native_handle();
  if (buffer_.size() < options().head_bytes) {
    char bytes[4096];
    const ssize_t size = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return leave();
    if (size > 0) buffer_.append(bytes, size_t(size));
    return watch();
  }
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state != TCP_ESTABLISHED)
    return leave();
  watching_ = true;
  auto timer = std::make_shared<asio::steady_timer>(stream_.get_executor(), duration_of(kPollS));
  timer->async_wait([self = shared_from_this(), timer](boost::system::error_code) {
    self->watching_ = false;
    if (self->answering_) self->look();
  });
}

void Connection::leave() {
  if (reply_) reply_->leave();
  wake_.cancel();
}

// Writes what comes, until the answer is complete; false: the connection is to be closed.
awaitable<bool> Connection::answer() {
  answering_ = true;
  watch();
  bool open = true, keep = true;
  while (open) {
    ReplyState::Next next = reply_->next(steady_seconds());
    if (next.beat) {
      next.beat();
      continue;
    }
    if (!next.bytes.empty()) open = co_await write_all(std::move(next.bytes));
    keep = !next.close;
    if (next.done) break;
    if (next.wait_s <= 0) continue;
    wake_.expires_after(duration_of(next.wait_s));
    co_await wake_.async_wait(kTuple);
  }
  answering_ = false;
  if (!open || reply_->gone()) {
    keep = false;
    ++server_.gone;
    reply_->leave();
  }
  reply_->detach();
  reply_.reset();
  co_return keep;
}

// Closes so that the client can read the answer, although not all that it sends was read.
awaitable<void> Connection::linger() {
  since_ = steady_seconds();
  boost::system::error_code ignored;  // a client that has left needs no farewell
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(std::chrono::seconds(5));
  for (uint64_t left = 2 * options().body_bytes; co_await read_some() && left > buffer_.size();) {
    left -= buffer_.size();
    buffer_.clear();
  }
}

awaitable<void> Connection::run() {
  for (bool first = true;; first = false) {
    RequestReader reader(options().head_bytes, options().body_bytes);
    const Got got = co_await read_request(reader, first);
    reads_ = Reads::Nothing;
    since_ = HUGE_VAL;
    if (got == Got::Nothing) break;
    const AtWork work(server_);
    const bool whole = reader.at() == RequestReader::At::Done;
    const bool fault = got == Got::Fault;
    HttpRequest request = whole ? reader.take() : reader.head();
    request.id = id_of(request);
    request.received_at = steady_seconds();
    prepare(reader, request);
    std::shared_ptr<ReplyState> reply = reply_;
    const Caller caller = caller_of(options(), from_here_, request);
    const bool preflight = request.method == "OPTIONS" && !options().cors_origins.empty();
    if (fault) {
      ApiError error{reader.fault().status, reader.fault().message};
      if (error.status == 413) error.code = "request_too_large";
      refuse(*reply, request, error);
    } else if (preflight) {
      const std::string asked(request.header("access-control-request-headers"));
      reply->send(204,
                  {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS, HEAD"},
                   {"Access-Control-Allow-Headers", asked.empty() ? "*" : asked},
                   {"Access-Control-Max-Age", "600"}},
                  "");
    } else if (!may_ask(options(), caller, request)) {
      refuse(*reply, request, wrong_key());
    } else if (comes_too_late(request)) {
      refuse(*reply, request, shutting_down());
    } else {
      request.key = caller.key;
      request.admin = caller.admin;
      request.admin_key = caller.admin_key;
      server_.handler(std::move(request), std::move(reply));
    }
    reply.reset();
    const bool keep = co_await answer();
    if (!keep && !whole) co_await linger();
    if (!keep) break;
  }
  boost::system::error_code ignored;  // it may be closed already
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
}

}  // namespace

awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(asio::make_strand(io), kTuple);
    if (!error) {
      add(std::move(socket));
    } else if (acceptor.is_open()) {  // no descriptors are left, or the client has left already
      asio::steady_timer pause(io, std::chrono::milliseconds(20));
      co_await pause.async_wait(kTuple);
    }
  }
}

void HttpServer::Impl::add(tcp::socket socket) {
  if (!make_place()) {
    ++refused;
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nretry-after-ms: 1000\r\nContent-Length: 0\r\n"
        "Connection: close\r\n\r\n";
    send(socket.native_handle(), kBusy.data(), kBusy.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  ++accepted;
  boost::system::error_code ignored;  // only slower without
  socket.set_option(tcp::no_delay(true), ignored);
  auto connection = std::make_shared<Connection>(std::move(socket), *this);
  {
    std::lock_guard lock(mutex);
    connections[connection.get()] = connection;
  }
  asio::co_spawn(
      connection->executor(), [connection]() { return connection->run(); }, asio::detached);
}

// Below the limit, or the connection that has waited longest for its client makes way; false: all are at
// work.
bool HttpServer::Impl::make_place() {
  const int64_t count = [&] {
    std::lock_guard lock(mutex);
    return int64_t(connections.size());
  }();
  if (count < options.connections) return true;
  if (count >= 2 * options.connections) return false;
  std::shared_ptr<Connection> oldest;
  double since = HUGE_VAL;
  for (const auto& one : open_connections())
    if (const double its = one->waits_since(); its < since) {
      since = its;
      oldest = one;
    }
  if (oldest) oldest->make_way();
  return oldest != nullptr;
}

std::vector<std::shared_ptr<Connection>> HttpServer::Impl::open_connections() {
  std::vector<std::shared_ptr<Connection>> open;
  std::lock_guard lock(mutex);
  for (auto& [key, weak] : connections)
    if (auto one = weak.lock()) open.push_back(std::move(one));
  return open;
}

HttpServer::HttpServer(HttpOptions options, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() { stop(); }

Status HttpServer::start() {
  Impl& s = *impl_;
  const std::string where = s.options.host + ":" + std::to_string(s.options.port);
  boost::system::error_code error;
  const auto address =
      asio::ip::make_address(s.options.host == "localhost" ? "127.0.0.1" : s.options.host, error);
  if (error)
    return Error{Code::Usage, "--host",
                 "expected an IP address or localhost, found '" + s.options.host + "'"};
  const tcp::endpoint endpoint(address, uint16_t(s.options.port));
  s.acceptor.open(endpoint.protocol(), error);
  if (!error) s.acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) s.acceptor.bind(endpoint, error);
  if (!error) s.acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{Code::Io, where, "expected to listen there, found: " + error.message()};
  s.port = s.acceptor.local_endpoint(error).port();
  asio::co_spawn(s.acceptor.get_executor(), s.accept_loop(), asio::detached);
  for (int i = 0; i < std::max(1, s.options.threads); ++i) s.threads.emplace_back([&s] { s.io.run(); });
  return Ok{};
}

int HttpServer::port() const { return impl_->port; }

HttpCounts HttpServer::counts() const {
  Impl& s = *impl_;
  HttpCounts c;
  c.accepted = s.accepted, c.refused = s.refused, c.requests = s.requests, c.gone = s.gone;
  c.stalled = s.stalled, c.sent_bytes = s.sent_bytes;
  std::lock_guard lock(s.mutex);
  c.connections = int64_t(s.connections.size());
  return c;
}

bool HttpServer::drain(double seconds) {
  Impl& s = *impl_;
  const auto until = std::chrono::steady_clock::now() + duration_of(seconds);
  *s.draining = true;
  asio::post(s.acceptor.get_executor(), [&s] {
    boost::system::error_code ignored;  // nobody can come any more, either way
    s.acceptor.close(ignored);
  });
  for (auto& one : s.open_connections()) one->refuse_body();
  std::unique_lock lock(s.mutex);
  s.changed.wait_until(lock, until, [&] { return s.at_work == 0; });
  lock.unlock();
  s.closing = true;
  for (auto& one : s.open_connections()) one->close_if_reading();
  lock.lock();
  return s.changed.wait_until(lock, until, [&] { return s.connections.empty(); });
}

void HttpServer::stop() {
  Impl& s = *impl_;
  s.io.stop();
  for (std::thread& thread : s.threads) thread.join();
  s.threads.clear();
  for (auto& one : s.open_connections()) one->forsake();
}

}  // namespace invar::server
