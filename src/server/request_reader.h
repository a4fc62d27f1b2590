// Bytes of a connection to one HTTP/1.x request, however they are cut.  Beast parses; in front of it stands a
// check of the head that leaves no room for two readings of where a request ends.  Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  ~RequestReader();

  enum class At { Head, Body, Done, Fault };
  At at() const { return at_; }
  const HttpFault& fault() const { return fault_; }

  // Takes what it can use from the front of `bytes`, up to the end of the request; gives the number of bytes
  // taken.  What was not taken comes again, with more behind it.  Stops once behind the head.
  size_t feed(std::string_view bytes);

  // Behind the head:
  const HttpRequest& head() const { return request_; }  // without a body
  bool keep_alive() const { return keep_alive_; }
  bool chunked_answers() const { return http_1_1_; }
  bool expects_continue() const { return expects_continue_; }

  HttpRequest take();  // when Done

 private:
  struct Parser;
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void read_head(std::string_view head);
  void refuse(int status, std::string message);

  const uint64_t head_bytes_, body_bytes_;
  std::unique_ptr<Parser> parser_;
  At at_ = At::Head;
  HttpFault fault_;
  HttpRequest request_;
  bool keep_alive_ = false, http_1_1_ = true, expects_continue_ = false;
};

}  // namespace invar::server
