// The transport over real sockets: what clients may do wrong, and what must not hold the others.
#include "server/http.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/clock.h"
#include "server/errors.h"
#include "server/sse.h"

namespace invar::server {
namespace {

using namespace std::chrono_literals;

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {  // the connection breaks, no farewell
    linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void shut() { shutdown(fd_, SHUT_WR); }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(size_t(n));
    }
    return true;
  }
  // Until `end` was seen, or the connection has ended.
  std::string read_until(std::string_view end) {
    while (got_.find(end) == got_.npos) {
      char block[65536];
      const ssize_t n = recv(fd_, block, sizeof block, 0);
      if (n <= 0) break;
      got_.append(block, size_t(n));
    }
    const size_t at = got_.find(end);
    const std::string text = got_.substr(0, at == got_.npos ? at : at + end.size());
    got_.erase(0, text.size());
    return text;
  }
  std::string read_all() { return read_until("\x01no such text\x01"); }
  // One whole answer that has a Content-Length.
  std::string answer() {
    std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == head.npos) return head;
    const size_t size = std::stoul(head.substr(at + 16));
    while (got_.size() < size) {
      char block[65536];
      const ssize_t n = recv(fd_, block, sizeof block, 0);
      if (n <= 0) break;
      got_.append(block, size_t(n));
    }
    head += got_.substr(0, size);
    got_.erase(0, std::min(size, got_.size()));
    return head;
  }
  bool ended() {  // by the server
    char c;
    return got_.empty() && recv(fd_, &c, 1, 0) <= 0 && errno != EAGAIN;
  }

 private:
  int fd_;
  bool connected_ = false;
  std::string got_;
};

// Paths: /echo gives the body back, /stream a stream that the test feeds, /wait an answer that it may give.
struct Site {
  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Reply>> open;
  std::vector<HttpRequest> seen;
  std::vector<std::string> lines;
  int gone = 0;

  explicit Site(HttpOptions options = {}) {
    options.port = 0;
    options.log = [this](const std::string& line) {
      std::lock_guard lock(mutex);
      lines.push_back(line);
    };
    server = std::make_unique<HttpServer>(options, [this](HttpRequest request, std::shared_ptr<Reply> reply) {
      handle(std::move(request), std::move(reply));
    });
    EXPECT_TRUE(server->start());
  }
  ~Site() {
    open.clear();
    server.reset();
  }

  void handle(HttpRequest request, std::shared_ptr<Reply> reply) {
    std::unique_lock lock(mutex);
    seen.push_back(request);
    changed.notify_all();
    reply->on_gone([this] {
      std::lock_guard inner(mutex);
      ++gone;
      changed.notify_all();
    });
    if (request.path == "/stream")
      reply->begin(200, sse_headers(), [weak = std::weak_ptr(reply)] {
        if (auto still = weak.lock()) still->write(sse_comment("hb"));
      });
    if (request.path == "/wait" || request.path == "/stream") open.push_back(reply);
    else reply->send(200, {{"Content-Type", "text/plain"}}, request.method + " " + request.body);
  }

  // Asks, and gives the reply that waits for the test then.
  std::shared_ptr<Reply> ask(Client& client, const std::string& request) {
    std::unique_lock lock(mutex);
    const size_t before = open.size();
    client.send(request);
    changed.wait_for(lock, 5s, [&] { return open.size() > before; });
    EXPECT_GT(open.size(), before) << request;
    return open.size() > before ? open.back() : nullptr;
  }
  bool wait_gone(int count, double within_s) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::duration<double>(within_s), [&] { return gone >= count; });
  }
  int port() const { return server->port(); }
};

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

std::string get(std::string_view path, std::string_view more = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(more) + "\r\n";
}

TEST(Http, KeepsTheConnectionAndAnswersInOrder) {
  Site site;
  Client client(site.port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "body " + std::to_string(i)));
    EXPECT_TRUE(client.answer().ends_with("POST body " + std::to_string(i)));
  }
  std::string many;  // pipelined
  for (int i = 0; i < 20; ++i) many += post("/echo", "n" + std::to_string(i));
  client.send(many);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.answer().ends_with("POST n" + std::to_string(i)));
  client.send(get("/echo", "Connection: close\r\n"));
  EXPECT_NE(client.answer().find("Connection: close"), std::string::npos);
  EXPECT_TRUE(client.ended());
}

TEST(Http, HeadHasNoBody) {
  Site site;
  Client client(site.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n" + get("/echo"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 5"), std::string::npos);
  EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 200"));
}

TEST(Http, OneByteAtATimeIsOneRequest) {
  Site site;
  Client client(site.port());
  for (char c : post("/echo?x=1", "slow")) ASSERT_TRUE(client.send(std::string_view(&c, 1)));
  EXPECT_TRUE(client.answer().ends_with("POST slow"));
  EXPECT_EQ(site.seen[0].path, "/echo");
  EXPECT_EQ(site.seen[0].query, "x=1");
}

TEST(Http, ChunkedBodiesAndExpectContinue) {
  Site site;
  Client client(site.port());
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nTrailer: 1\r\n\r\n");
  EXPECT_TRUE(client.answer().ends_with("POST abc0123456789abcdef"));
}

struct Bad {
  const char* name;
  std::string text;
  int status;
};

TEST(Http, TwoReadingsOfARequestAreRefused) {
  const std::string top = "POST /echo HTTP/1.1\r\nHost: h\r\n";
  const std::vector<Bad> cases = {
      {"both lengths", top + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"the other way round", top + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
      {"two lengths", top + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
      {"a list of lengths", top + "Content-Length: 3, 3\r\n\r\nabc", 400},
      {"a signed length", top + "Content-Length: +3\r\n\r\nabc", 400},
      {"another coding", top + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"a hidden coding", top + "Transfer-Encoding: xchunked\r\n\r\n", 400},
      {"two codings", top + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"a folded line", top + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n", 400},
      {"a space before the colon", top + "Content-Length : 0\r\n\r\n", 400},
      {"a bare LF", "POST /echo HTTP/1.1\nHost: h\r\n\r\n", 400},
      {"a NUL", top + std::string("X: a\0b\r\n\r\n", 10), 400},
      {"no host", "GET /echo HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"no HTTP", "hello\r\n\r\n", 400},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"a bad chunk", top + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n", 400},
      {"a coded body", top + "Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", 415},
      {"an expectation", top + "Expect: tea\r\nContent-Length: 0\r\n\r\n", 417},
  };
  Site site;
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.name);
    Client client(site.port());
    client.send(bad.text);
    const std::string answer = client.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(bad.status))) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos);
    EXPECT_NE(answer.find("\"invalid_request_error\""), std::string::npos);
  }
  EXPECT_TRUE(site.seen.empty());
}

TEST(Http, LimitsOfHeadAndBody) {
  HttpOptions options;
  options.head_bytes = 4096;
  options.body_bytes = 1000;
  Site site(options);
  {
    Client client(site.port());
    client.send(post("/echo", std::string(1000, 'x')));
    EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 200"));
  }
  {
    Client client(site.port());
    client.send(post("/v1/messages", std::string(1001, 'x')));
    const std::string answer = client.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 413")) << answer;
    EXPECT_NE(answer.find("{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\""),
              std::string::npos);
  }
  {
    Client client(site.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 11; ++i) client.send("64\r\n" + std::string(100, 'x') + "\r\n");
    const std::string answer = client.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 413")) << answer;
    EXPECT_NE(answer.find("\"code\":\"request_too_large\""), std::string::npos);
  }
  {
    Client client(site.port());
    client.send(get("/echo", "X: " + std::string(5000, 'x') + "\r\n"));
    EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 431"));
  }
}

TEST(Http, KeysGuardAllButThePublicPaths) {
  HttpOptions options;
  options.keys = {"secret-one", "secret-two"};
  Site site(options);
  auto status = [&](const std::string& request) {
    Client client(site.port());
    client.send(request);
    return client.answer().substr(9, 3);
  };
  for (const char* path : {"/", "/health", "/livez", "/readyz", "/ping"})
    EXPECT_EQ(status(get(path)), "200") << path;
  for (const char* path : {"/metrics", "/v1/models", "/anything"})
    EXPECT_EQ(status(get(path)), "401") << path;
  EXPECT_EQ(status(post("/health", "")), "401");
  EXPECT_EQ(status(get("/x", "Authorization: Bearer secret-two\r\n")), "200");
  EXPECT_EQ(status(get("/x", "authorization: bearer secret-one\r\n")), "200");
  EXPECT_EQ(status(get("/x", "x-api-key: secret-one\r\n")), "200");
  EXPECT_EQ(status(get("/x", "api-key: secret-two\r\n")), "200");
  for (const char* wrong : {"secret-on", "secret-one2", "", "Secret-one"})
    EXPECT_EQ(status(get("/x", "x-api-key: " + std::string(wrong) + "\r\n")), "401") << wrong;
  EXPECT_EQ(status(get("/x", "Authorization: Basic secret-one\r\n")), "401");

  Client client(site.port());
  client.send(post("/v1/messages", std::string(200000, 'x')));
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("\"authentication_error\""), std::string::npos);
  EXPECT_NE(answer.find("x-should-retry: false"), std::string::npos);
  Client other(site.port());
  other.send(get("/v1/chat/completions"));
  EXPECT_NE(other.answer().find("\"invalid_api_key\""), std::string::npos);
}

TEST(Http, CorsIsOffUnlessConfigured) {
  const std::string preflight =
      "OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\nAccess-Control-Request-Headers: "
      "x-b\r\n\r\n";
  Site off;
  Client one(off.port());
  one.send(preflight);
  EXPECT_EQ(one.answer().find("Access-Control"), std::string::npos);
  HttpOptions with_cors;
  with_cors.cors_origins = {"http://a"};
  with_cors.keys = {"k"};
  Site on(with_cors);
  Client two(on.port());
  two.send(preflight);
  const std::string answer = two.answer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 204")) << answer;
  EXPECT_NE(answer.find("Access-Control-Allow-Headers: x-b"), std::string::npos);
  EXPECT_NE(answer.find("POST, DELETE"), std::string::npos);
  Client three(on.port());
  three.send(get("/x", "Origin: http://a\r\nx-api-key: k\r\n"));
  EXPECT_NE(three.answer().find("Access-Control-Allow-Origin: http://a"), std::string::npos);
  Client four(on.port());
  four.send(get("/x", "Origin: http://b\r\nx-api-key: k\r\n"));
  EXPECT_EQ(four.answer().find("Access-Control"), std::string::npos);
}

TEST(Http, RequestIds) {
  Site site;
  auto answer = [&](const std::string& path, const std::string& more) {
    Client client(site.port());
    client.send(get(path, more));
    return client.answer();
  };
  EXPECT_NE(answer("/x", "X-Request-Id: mine-1\r\n").find("x-request-id: mine-1"), std::string::npos);
  EXPECT_NE(answer("/x", "X-Client-Request-Id: mine-2\r\n").find("x-request-id: mine-2"), std::string::npos);
  EXPECT_NE(answer("/x", "X-Request-Id: " + std::string(200, 'a') + "\r\n").find("x-request-id: req_"),
            std::string::npos);
  EXPECT_NE(answer("/x", "X-Request-Id: a b\r\n").find("x-request-id: req_"), std::string::npos);
  const std::string anthropic = answer("/v1/messages", "X-Request-Id: mine-3\r\n");
  EXPECT_NE(anthropic.find("\r\nrequest-id: mine-3"), std::string::npos);
}

TEST(Http, StreamsAreChunkedOneEventEach) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, post("/stream", ""));
  ASSERT_TRUE(reply);
  EXPECT_FALSE(reply->committed());
  EXPECT_TRUE(reply->write(sse_event("a", "{}")));
  EXPECT_TRUE(reply->committed());
  EXPECT_FALSE(reply->send(500, {}, "too late"));
  reply->write(sse_event("", "[1]"));
  reply->end();
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(client.read_until("0\r\n\r\n"),
            "13\r\nevent: a\ndata: {}\n\n\r\nb\r\ndata: [1]\n\n\r\n0\r\n\r\n");
  client.send(post("/echo", "after"));  // the connection goes on
  EXPECT_TRUE(client.answer().ends_with("POST after"));
}

TEST(Http, OldClientsGetAStreamThatEndsWithTheConnection) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, "POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(reply);
  reply->write("one");
  reply->end();
  const std::string all = client.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\none")) << all;
  EXPECT_EQ(all.find("chunked"), std::string::npos);
}

TEST(Http, AStreamCanStillBecomeAnError) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, post("/stream", ""));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->send(429, {}, "late"));
  EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 429"));
}

TEST(Http, HeadsGoOutAfterAWhileAndSignsOfLifeFollow) {
  HttpOptions options;
  options.stream = {0.1, 0.25};
  Site site(options);
  Client client(site.port());
  const double start = steady_seconds();
  auto reply = site.ask(client, post("/stream", ""));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_LT(steady_seconds() - start, 0.24);
  EXPECT_TRUE(client.read_until(": hb\n\n").ends_with(": hb\n\n"));
  EXPECT_TRUE(client.read_until(": hb\n\n").ends_with(": hb\n\n"));
  EXPECT_GE(steady_seconds() - start, 0.45);
  reply->end();
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
}

TEST(Http, ACutStreamIsSeenToBeCut) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, post("/stream", ""));
  ASSERT_TRUE(reply);
  reply->write("data");
  EXPECT_NE(client.read_until("data\r\n"), "");
  reply->cut();
  EXPECT_EQ(client.read_all().find("0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(site.wait_gone(1, 1));
}

TEST(Http, AClientThatLeavesIsNoticedAtOnce) {
  for (const char* path : {"/wait", "/stream"})
    for (int how = 0; how < 3; ++how) {
      SCOPED_TRACE(std::string(path) + " " + std::to_string(how));
      Site site;
      Client client(site.port());
      auto reply = site.ask(client, post(path, "{}"));
      ASSERT_TRUE(reply);
      if (how == 2) {
        reply->begin(200, {});
        reply->write("x");
        client.read_until("x");
      }
      const double start = steady_seconds();
      if (how == 1) client.reset();
      else client.close();
      EXPECT_TRUE(site.wait_gone(1, 1));
      EXPECT_LT(steady_seconds() - start, 0.5);
      EXPECT_TRUE(reply->gone());
      EXPECT_FALSE(reply->write("nobody"));
    }
}

TEST(Http, PipelinedBytesAreNoFarewellButAnEndBehindThemIs) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, post("/wait", "{}") + post("/echo", "next"));
  ASSERT_TRUE(reply);
  EXPECT_FALSE(site.wait_gone(1, 0.3));
  reply->send(200, {}, "first");
  EXPECT_TRUE(client.answer().ends_with("first"));
  EXPECT_TRUE(client.answer().ends_with("POST next"));

  Client flood(site.port());
  flood.send(post("/wait", "{}") + std::string(100000, 'x'));
  EXPECT_FALSE(site.wait_gone(1, 0.3));
  flood.close();
  EXPECT_TRUE(site.wait_gone(1, 1));
}

TEST(Http, DribblersEndAndDoNotHoldOthers) {
  HttpOptions options;
  options.head_s = 0.3;
  options.body_idle_s = 0.3;
  options.keep_alive_s = 0.3;
  Site site(options);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(std::make_unique<Client>(site.port()));
    slow.back()->send(i % 3 == 0   ? "GET / HT"
                      : i % 3 == 1 ? ""
                                   : "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
  }
  const double start = steady_seconds();
  Client client(site.port());
  client.send(post("/echo", "quick"));
  EXPECT_TRUE(client.answer().ends_with("POST quick"));
  EXPECT_LT(steady_seconds() - start, 0.25);
  for (auto& one : slow) EXPECT_TRUE(one->ended());
  EXPECT_LT(steady_seconds() - start, 2);
  EXPECT_TRUE(client.ended());  // nothing was asked any more
}

TEST(Http, OverTheLimitTheLongestWaitingMakesWay) {
  HttpOptions options;
  options.connections = 4;
  Site site(options);
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<Client>(site.port()));
    idle.back()->send("GET ");
    std::this_thread::sleep_for(20ms);
  }
  Client client(site.port());
  client.send(post("/echo", "here"));
  EXPECT_TRUE(client.answer().ends_with("POST here"));
  EXPECT_TRUE(idle[0]->ended());

  options.connections = 2;
  Site busy(options);
  Client one(busy.port()), two(busy.port());
  one.send(post("/wait", ""));
  two.send(post("/wait", ""));
  while (busy.server->counts().requests < 2) std::this_thread::sleep_for(1ms);
  Client three(busy.port());
  EXPECT_TRUE(three.read_all().starts_with("HTTP/1.1 503"));
}

TEST(Http, OverTheLimitHalfABodyMakesWay) {
  HttpOptions options;
  options.connections = 4;
  Site site(options);
  std::vector<std::unique_ptr<Client>> half;
  for (int i = 0; i < 4; ++i) {
    half.push_back(std::make_unique<Client>(site.port()));
    half.back()->send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
    std::this_thread::sleep_for(20ms);
  }
  Client client(site.port());
  client.send(post("/echo", "here"));
  EXPECT_TRUE(client.answer().ends_with("POST here"));
  EXPECT_TRUE(half[0]->ended());
  half[3]->send("12345678");
  EXPECT_TRUE(half[3]->answer().ends_with("POST x12345678")) << "one is enough";
}

TEST(Http, ABodyHasALeastRate) {
  HttpOptions options;
  options.body_idle_s = 0.3;
  options.body_rate = 2000;
  Site site(options);
  // Sends so many pieces of a body of 2,000 bytes, one each 50 ms; how long the connection took that.
  auto seconds = [&](size_t piece) {
    Client client(site.port());
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n");
    const double start = steady_seconds();
    for (size_t sent = 0; sent < 2000; sent += piece) {
      if (!client.send(std::string(piece, 'x'))) return steady_seconds() - start;
      std::this_thread::sleep_for(50ms);
    }
    EXPECT_TRUE(client.answer().ends_with("xx"));
    return HUGE_VAL;
  };
  const double dribbled = seconds(1);
  EXPECT_GT(dribbled, 0.25);
  EXPECT_LT(dribbled, 2) << "each byte came within the idle time";
  EXPECT_EQ(seconds(100), HUGE_VAL) << "slow, but it goes on: one second in all";
}

// Many threads come and go at the limit: whoever makes way may end on any of them.
TEST(Http, SeveralThreadsAtTheLimitOfConnections) {
  std::promise<void> ended;
  std::thread watch([end = ended.get_future()] {  // a server that hangs cannot be stopped either
    if (end.wait_for(30s) == std::future_status::ready) return;
    ADD_FAILURE() << "the server hangs";
    std::abort();
  });
  {
    HttpOptions options;
    options.threads = 4;
    options.connections = 64;
    Site site(options);
    std::vector<std::thread> visitors;
    const double until = steady_seconds() + 1.5;
    for (int i = 0; i < 4; ++i)
      visitors.emplace_back([&] {
        std::deque<Client> mine;
        while (steady_seconds() < until) {
          mine.emplace_back(site.port()).send("GET ");
          if (mine.size() > 40) mine.pop_front();
        }
      });
    for (std::thread& one : visitors) one.join();
    EXPECT_GT(site.server->counts().accepted, 1000);
    Client client(site.port());
    client.send(get("/ping"));
    EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(site.server->drain(5));
    EXPECT_EQ(site.server->counts().connections, 0);
  }
  ended.set_value();
  watch.join();
}

TEST(Http, ASlowReaderIsCutOffAndHoldsNobody) {
  HttpOptions options;
  options.write_stall_s = 0.5;
  Site site(options);
  Client slow(site.port(), 4096);
  auto reply = site.ask(slow, post("/stream", ""));
  ASSERT_TRUE(reply);
  const std::string event(100000, 'x');
  const double start = steady_seconds();
  size_t most = 0;
  int written = 0;
  while (reply->write(event) && steady_seconds() - start < 5) {
    most = std::max(most, reply->pending_bytes());
    ++written;
  }
  EXPECT_LT(steady_seconds() - start, 1);  // the cap, long before the time-out
  EXPECT_LE(most, Reply::kStreamBytes + 2 * event.size());
  EXPECT_GT(written, 10);
  EXPECT_TRUE(site.wait_gone(1, 1));

  Client stalled(site.port(), 4096);
  auto other = site.ask(stalled, post("/stream", ""));
  ASSERT_TRUE(other);
  for (int i = 0; i < 38; ++i) EXPECT_TRUE(other->write(event));
  Client client(site.port());
  client.send(post("/echo", "meanwhile"));
  EXPECT_TRUE(client.answer().ends_with("POST meanwhile"));
  EXPECT_TRUE(site.wait_gone(2, 3));
  for (double end = steady_seconds() + 2; site.server->counts().stalled < 1 && steady_seconds() < end;)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(site.server->counts().stalled, 1);
}

TEST(Http, DrainLetsAnswersEndAndTakesNoMore) {
  Site site;
  Client idle(site.port()), busy(site.port());
  auto reply = site.ask(busy, post("/wait", ""));
  ASSERT_TRUE(reply);
  EXPECT_FALSE(site.server->drain(0.2));
  EXPECT_TRUE(idle.ended());
  EXPECT_FALSE(Client(site.port()).connected());
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    reply->send(200, {}, "done");
  });
  EXPECT_TRUE(site.server->drain(5));
  later.join();
  EXPECT_TRUE(busy.answer().ends_with("done"));
  EXPECT_TRUE(busy.ended());
}

TEST(Http, DuringTheDrainOpenConnectionsAreAnswered) {
  Site site;
  Client idle(site.port()), asks(site.port()), half(site.port()), busy(site.port());
  for (Client* one : {&idle, &asks}) {
    one->send(get("/echo"));
    EXPECT_NE(one->answer().find("Connection: keep-alive"), std::string::npos);
  }
  half.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
  auto reply = site.ask(busy, post("/wait", ""));
  ASSERT_TRUE(reply);
  std::thread end([&] { EXPECT_TRUE(site.server->drain(10)); });
  std::string answer = half.answer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_NE(answer.find("\"shutting_down\""), std::string::npos);
  EXPECT_TRUE(half.ended());
  half.close();
  const size_t before = site.seen.size();
  asks.send(post("/echo", "new"));
  answer = asks.answer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(asks.ended());
  EXPECT_EQ(site.seen.size(), before) << "the handler does not hear of it";
  idle.send(get("/readyz"));
  answer = idle.answer();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << "what is true is the handler's business: " << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  reply->send(200, {}, "done");
  answer = busy.answer();
  EXPECT_TRUE(answer.ends_with("done"));
  EXPECT_NE(answer.find("Connection: close"), std::string::npos) << "it was asked before the drain";
  EXPECT_TRUE(busy.ended());
  end.join();
}

TEST(Http, RepliesOutliveTheServer) {
  Site site;
  Client client(site.port());
  auto reply = site.ask(client, post("/stream", ""));
  ASSERT_TRUE(reply);
  reply->write("x");
  site.server.reset();
  EXPECT_TRUE(reply->gone());
  EXPECT_EQ(site.gone, 1);
  EXPECT_FALSE(reply->write("y"));
  reply->end();
  bool called = false;
  reply->on_gone([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(Http, OneLineInTheLogForEachRequest) {
  HttpOptions options;
  options.keys = {"secret"};
  Site site(options);
  {
    Client client(site.port());
    client.send(post("/echo", "private words", "x-api-key: secret\r\nX-Request-Id: r1\r\n") + get("/health"));
    client.answer();
    client.answer();
    auto reply = site.ask(client, post("/stream", "", "x-api-key: secret\r\nX-Request-Id: r2\r\n"));
    ASSERT_TRUE(reply);
    reply->log({{"answer_tokens", 7}});
    reply->write("x");
  }
  ASSERT_TRUE(site.wait_gone(1, 2));
  site.open.clear();
  while (site.server->counts().connections > 0) std::this_thread::sleep_for(1ms);
  std::lock_guard lock(site.mutex);
  ASSERT_EQ(site.lines.size(), 2u);
  const Json one = *parse_ordered_json(site.lines[0], "log"), two = *parse_ordered_json(site.lines[1], "log");
  EXPECT_EQ(one["request_id"], "r1");
  EXPECT_EQ(one["status"], 200);
  EXPECT_EQ(two["answer_tokens"], 7);
  EXPECT_EQ(two["complete"], false);
  for (const std::string& line : site.lines) {
    EXPECT_EQ(line.find("private"), std::string::npos);
    EXPECT_EQ(line.find("secret"), std::string::npos);
  }
}

size_t open_files() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class HttpThreads : public testing::TestWithParam<int> {};

TEST_P(HttpThreads, AThousandVisitorsLeaveNothingBehind) {
  HttpOptions options;
  options.threads = GetParam();
  Site site(options);
  {
    Client first(site.port());
    first.send(post("/echo", "x"));
    first.answer();
  }
  while (site.server->counts().connections > 0) std::this_thread::sleep_for(1ms);
  const size_t before = open_files();
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Client>> some;
  for (int i = 0; i < 1000; ++i) {
    auto client = std::make_unique<Client>(site.port());
    ASSERT_TRUE(client->connected());
    const std::string request = post(random() % 2 ? "/stream" : random() % 2 ? "/wait" : "/echo", "body");
    client->send(std::string_view(request).substr(0, random() % (2 * request.size())));
    if (random() % 3 == 0) client->reset();
    else if (random() % 2 == 0) some.push_back(std::move(client));
    if (some.size() > 20) some.erase(some.begin() + long(random() % some.size()));
  }
  some.clear();
  for (double end = steady_seconds() + 5; site.server->counts().connections > 0 && steady_seconds() < end;)
    std::this_thread::sleep_for(5ms);
  EXPECT_EQ(site.server->counts().connections, 0);
  EXPECT_EQ(open_files(), before);
  for (const auto& reply : site.open) EXPECT_TRUE(reply->gone());
  EXPECT_GT(site.open.size(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Threads, HttpThreads, testing::Values(1, 4));

TEST(Http, PathsOfOnePlace) {
  EXPECT_EQ(normal_path("/v1/chat/completions"), "/v1/chat/completions");
  EXPECT_EQ(normal_path("/chat/completions/"), "/v1/chat/completions");
  EXPECT_EQ(normal_path("/v1/v1/models"), "/v1/models");
  EXPECT_EQ(normal_path("//v1//models//a%2Fb"), "/v1/models/a%2Fb");
  EXPECT_EQ(normal_path("/modelsx"), "/modelsx");
  EXPECT_EQ(normal_path("/"), "/");
  EXPECT_EQ(normal_path("/metrics"), "/metrics");
  EXPECT_EQ(percent_decoded("a%2Fb%zz%4"), "a/b%zz%4");
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_TRUE(is_loopback("127.0.0.1"));
}

TEST(Http, AnAddressThatCannotBeHadIsAnError) {
  Site site;
  HttpOptions options;
  options.port = site.port();
  HttpServer second(options, [](HttpRequest, std::shared_ptr<Reply>) {});
  const Status status = second.start();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::Io);
  options.host = "no-such-place";
  HttpServer third(options, [](HttpRequest, std::shared_ptr<Reply>) {});
  EXPECT_EQ(third.start().error().code, Code::Usage);
}

}  // namespace
}  // namespace invar::server
