// Bytes of a connection: whole, and cut into pieces of the size that the first byte says, they must be the
// same request, and no more than one reading of where it ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/request_reader.h"

namespace invar {

struct HttpRead {
  server::RequestReader::At at;
  std::string path, body;
  size_t rest;
};

inline HttpRead read_http(std::string_view bytes, size_t piece) {
  using server::RequestReader;
  RequestReader reader(4096, 4096);
  std::string buffer;
  while (true) {
    const auto before = reader.at();
    buffer.erase(0, reader.feed(buffer));
    if (reader.at() != before) continue;
    if (bytes.empty() || reader.at() == RequestReader::At::Done || reader.at() == RequestReader::At::Fault)
      break;
    const size_t size = std::min(piece, bytes.size());
    buffer += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  HttpRead got{reader.at(), reader.head().path, "", buffer.size() + bytes.size()};
  if (got.at == RequestReader::At::Done) got.body = reader.take().body;
  return got;
}

// Whether there is a whole request behind the first byte.
inline bool fuzz_http(std::span<const std::byte> data) {
  if (data.empty()) return false;
  const std::string_view bytes(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  const HttpRead whole = read_http(bytes, data.size()),
                 cut = read_http(bytes, std::to_integer<size_t>(data[0]) % 16 + 1);
  CHECK(whole.at == cut.at);
  if (whole.at != server::RequestReader::At::Done) return false;
  CHECK(whole.path == cut.path && whole.body == cut.body && whole.rest == cut.rest);
  return true;
}

}  // namespace invar
