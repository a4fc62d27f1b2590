// Bytes of a connection: whole, and cut into pieces of the size that the first byte says, they must be the
// same request, and no more than one reading of where it ends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/request_reader.h"

namespace {

using invar::server::RequestReader;

struct Read {
  RequestReader::At at;
  std::string path, body;
  size_t rest;
};

Read read(std::string_view bytes, size_t piece) {
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
  Read got{reader.at(), reader.head().path, "", buffer.size() + bytes.size()};
  if (got.at == RequestReader::At::Done) got.body = reader.take().body;
  return got;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read(bytes, size), cut = read(bytes, data[0] % 16 + 1);
  CHECK(whole.at == cut.at);
  if (whole.at == RequestReader::At::Done)
    CHECK(whole.path == cut.path && whole.body == cut.body && whole.rest == cut.rest);
  return 0;
}
