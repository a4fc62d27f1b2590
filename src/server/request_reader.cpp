#include "server/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/check.h"

namespace invar::server {
namespace {

namespace http = boost::beast::http;

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";
constexpr size_t kFramingBytes = 16 << 10;  // that a line between chunks, or behind them, may have

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) {
  auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

HttpFault bad(std::string message) { return {400, std::move(message)}; }

// What may occur once, and what the lines of a head said of it.
struct Framing {
  int lengths = 0, codings = 0, hosts = 0;

  std::optional<HttpFault> take(std::string_view name, std::string_view value) {
    if (same_name(name, "content-length")) {
      ++lengths;
      const bool digits =
          !value.empty() && value.size() <= 18 &&
          std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (!digits) return bad("expected Content-Length to be a number, found another value");
    } else if (same_name(name, "transfer-encoding")) {
      ++codings;
      if (!same_name(value, "chunked"))
        return bad("expected Transfer-Encoding: chunked, found another coding");
    } else if (same_name(name, "host")) {
      ++hosts;
    }
    return {};
  }

  std::optional<HttpFault> check(bool http_1_0) const {
    if (lengths + codings > 1)
      return bad("expected one of Content-Length and Transfer-Encoding, once; found more");
    if (codings > 0 && http_1_0) return bad("expected no Transfer-Encoding in HTTP/1.0, found one");
    if (hosts > 1 || (hosts == 0 && !http_1_0))
      return bad("expected one Host, found " + std::to_string(hosts));
    return {};
  }
};

}  // namespace

std::optional<HttpFault> check_head(std::string_view head) {
  Framing framing;
  bool first = true, http_1_0 = false;
  while (!head.empty()) {
    const size_t end = head.find(kLineEnd);
    if (end == head.npos) return bad("expected the head to end with an empty line, found none");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + kLineEnd.size());
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos)
      return bad("expected lines that end with CR LF, found a bare control character");
    if (first) {
      http_1_0 = line.ends_with(" HTTP/1.0");
      first = false;
      continue;
    }
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon)))
      return bad("expected NAME: VALUE on each line of the head, found a folded or broken line");
    if (auto fault = framing.take(line.substr(0, colon), trimmed(line.substr(colon + 1)))) return fault;
  }
  return framing.check(http_1_0);
}

struct RequestReader::Parser {
  http::request_parser<http::string_body> beast;
};

RequestReader::RequestReader(uint64_t head_bytes, uint64_t body_bytes)
    : head_bytes_(head_bytes), body_bytes_(body_bytes), parser_(std::make_unique<Parser>()) {
  parser_->beast.header_limit(uint32_t(head_bytes + kFramingBytes));
  parser_->beast.body_limit(boost::none);  // until the head is read, so that the refusal knows its path
  parser_->beast.eager(true);
}

RequestReader::~RequestReader() = default;

void RequestReader::refuse(int status, std::string message) {
  at_ = At::Fault;
  fault_ = {status, std::move(message)};
}

size_t RequestReader::feed(std::string_view bytes) {
  if (at_ == At::Head) return feed_head(bytes);
  return at_ == At::Body ? feed_body(bytes) : 0;
}

size_t RequestReader::feed_head(std::string_view bytes) {
  size_t skipped = 0;  // empty lines before a request are tolerated
  while (bytes.substr(skipped).starts_with(kLineEnd)) skipped += kLineEnd.size();
  bytes.remove_prefix(skipped);
  const size_t end = bytes.find(kHeadEnd);
  const size_t size = end == bytes.npos ? bytes.size() : end + kHeadEnd.size();
  if (size > head_bytes_) {
    refuse(431, "expected a head of at most " + std::to_string(head_bytes_) + " bytes");
  } else if (end != bytes.npos) {
    read_head(bytes.substr(0, size));
    return skipped + size;
  }
  return skipped;
}

void RequestReader::read_head(std::string_view head) {
  if (auto fault = check_head(head)) return refuse(fault->status, std::move(fault->message));
  auto& beast = parser_->beast;
  boost::system::error_code error;
  beast.put(boost::asio::buffer(head), error);
  if ((error && error != http::error::need_more) || !beast.is_header_done())
    return refuse(400, "expected a request of HTTP/1.1, found: " + error.message());

  const auto& message = beast.get();
  request_.method = std::string(message.method_string());
  std::string target = std::string(message.target());
  for (const char* scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      const size_t path = target.find('/', std::string_view(scheme).size());
      target = path == target.npos ? "/" : target.substr(path);
      break;
    }
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  if (question != target.npos) request_.query = target.substr(question + 1);
  request_.path = normal_path(std::string_view(target).substr(0, question));
  for (const auto& field : message)
    request_.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  http_1_1_ = message.version() == 11;
  keep_alive_ = message.keep_alive();

  if (auto coding = request_.header("content-encoding"); !coding.empty() && !same_name(coding, "identity"))
    return refuse(
        415, "expected a body without Content-Encoding, found '" + std::string(coding.substr(0, 40)) + "'");
  const auto expect = request_.header("expect");
  expects_continue_ = same_name(expect, "100-continue") && http_1_1_;
  if (!expect.empty() && !same_name(expect, "100-continue"))
    return refuse(417, "expected Expect: 100-continue, found another expectation");
  if (const auto length = beast.content_length(); length && *length > body_bytes_)
    return refuse(413, "expected a body of at most " + std::to_string(body_bytes_) + " bytes, found " +
                           std::to_string(*length));
  beast.body_limit(body_bytes_);
  at_ = beast.is_done() ? At::Done : At::Body;
}

size_t RequestReader::feed_body(std::string_view bytes) {
  auto& beast = parser_->beast;
  size_t taken = 0;
  while (taken < bytes.size() && !beast.is_done()) {
    boost::system::error_code error;
    const size_t used = beast.put(boost::asio::buffer(bytes.substr(taken)), error);
    taken += used;
    if (error == http::error::body_limit) {
      refuse(413, "expected a body of at most " + std::to_string(body_bytes_) + " bytes");
      return taken;
    }
    if (error && error != http::error::need_more) {
      refuse(400, "expected a whole body, found: " + error.message());
      return taken;
    }
    if (error == http::error::need_more) {
      if (bytes.size() - taken > kFramingBytes)
        refuse(400, "expected shorter lines around the chunks of a body");
      return taken;
    }
  }
  if (beast.is_done()) at_ = At::Done;
  return taken;
}

HttpRequest RequestReader::take() {
  CHECK(at_ == At::Done);
  request_.body = std::move(parser_->beast.get().body());
  return std::move(request_);
}

}  // namespace invar::server
