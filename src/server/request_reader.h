// Bytes of a connection to one HTTP/1.x request, however they are cut.  Beast parses the head, behind a check
// that leaves no room for two readings of where the request ends; bodies are read here.  Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace invar::server {

struct HttpFault {
  int status = 400;
  std::string message;
};

// `head` with the empty line at its end.  Refuses bare CR and LF, folded lines, spaces before colons, more
// than one Content-Length, Transfer-Encoding or Host, both of the first two, and codings other than chunked.
std::optional<HttpFault> check_head(std::string_view head);

class RequestReader {
 public:
  RequestReader(uint64_t head_bytes, uint64_t body_bytes);

  enum class At { Head, Body, Done, Fault };
  At at() const { return at_; }
  const HttpFault& fault() const { return fault_; }

  // Takes what it can use from the front of `bytes`, up to the end of the request; gives the number of bytes
  // taken.  What was not taken comes again, with more behind it.  Stops once behind the head.
  size_t feed(std::string_view bytes);

  // What the body of a method that needs none may have: some of those are answered without a key.
  static constexpr uint64_t kIdleBodyBytes = 64 << 10;

  // Behind the head:
  const HttpRequest& head() const { return request_; }  // without a body
  bool keep_alive() const { return keep_alive_; }
  bool chunked_answers() const { return http_1_1_; }
  bool expects_continue() const { return expects_continue_; }

  HttpRequest take();  // when Done

 private:
  enum class Chunk { None, Size, Behind, Trailer };  // None: the body has a length
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void read_head(std::string_view head);
  void read_chunk_line(std::string_view line);
  void refuse(int status, std::string message);

  const uint64_t head_bytes_;
  uint64_t body_bytes_;  // behind the head: as its method may have
  At at_ = At::Head;
  HttpFault fault_;
  HttpRequest request_;
  Chunk chunk_ = Chunk::None;  // the line that comes next
  uint64_t body_left_ = 0;     // of the body, or of the chunk
  uint64_t framing_bytes_ = 0;
  bool keep_alive_ = false, http_1_1_ = true, expects_continue_ = false;
};

}  // namespace invar::server
