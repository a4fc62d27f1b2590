#include "server/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>

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

bool needs_no_body(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "DELETE";
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

RequestReader::RequestReader(uint64_t head_bytes, uint64_t body_bytes)
    : head_bytes_(head_bytes), body_bytes_(body_bytes) {}

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
  http::request_parser<http::empty_body> beast;
  beast.header_limit(uint32_t(head_bytes_ + kFramingBytes));
  beast.body_limit(boost::none);
  beast.skip(true);  // the body is read here
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
  if (needs_no_body(request_.method)) body_bytes_ = std::min(body_bytes_, kIdleBodyBytes);
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
  if (const auto length = beast.content_length()) body_left_ = *length;
  chunk_ = beast.chunked() ? Chunk::Size : Chunk::None;
  at_ = body_left_ > 0 || chunk_ != Chunk::None ? At::Body : At::Done;
}

size_t RequestReader::feed_body(std::string_view bytes) {
  size_t taken = 0;
  while (at_ == At::Body && taken < bytes.size()) {
    const std::string_view rest = bytes.substr(taken);
    if (body_left_ > 0) {
      const size_t size = size_t(std::min<uint64_t>(body_left_, rest.size()));
      request_.body += rest.substr(0, size);
      body_left_ -= size;
      taken += size;
      if (body_left_ == 0 && chunk_ == Chunk::None) at_ = At::Done;
      continue;
    }
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end == rest.npos ? end : end + 1);
    framing_bytes_ += end == rest.npos ? 0 : line.size();
    if (framing_bytes_ > kFramingBytes + 16 * request_.body.size() || line.size() > kFramingBytes)
      refuse(400, "expected shorter lines around the chunks of a body");
    else if (end == rest.npos) break;
    else read_chunk_line(line);
    taken += line.size();
  }
  return taken;
}

// `line` with its end: a size, the end behind a chunk's data, or what stands behind the last chunk.
void RequestReader::read_chunk_line(std::string_view line) {
  if (!line.ends_with(kLineEnd))
    return refuse(400, "expected lines that end with CR LF around a chunk, found a bare LF");
  line.remove_suffix(kLineEnd.size());
  if (line.find_first_of(std::string_view("\r\0", 2)) != line.npos)
    return refuse(400, "expected plain text around a chunk, found a control character");
  if (chunk_ == Chunk::Trailer) {
    if (line.empty()) at_ = At::Done;
    return;
  }
  if (chunk_ == Chunk::Behind) {
    if (!line.empty()) return refuse(400, "expected a line end behind a chunk, found more");
    chunk_ = Chunk::Size;
    return;
  }
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  uint64_t size = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  if (digits.empty() || error != std::errc{} || stop != digits.data() + digits.size())
    return refuse(400, "expected the size of a chunk, found another line");
  if (size > body_bytes_ - request_.body.size())
    return refuse(413, "expected a body of at most " + std::to_string(body_bytes_) + " bytes");
  body_left_ = size;
  chunk_ = size > 0 ? Chunk::Behind : Chunk::Trailer;
}

HttpRequest RequestReader::take() {
  CHECK(at_ == At::Done);
  return std::move(request_);
}

}  // namespace invar::server
