// However the bytes of a request are cut, it is the same request.
#include "server/request_reader.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace invar::server {
namespace {

struct Read {
  RequestReader::At at;
  HttpRequest request;
  HttpFault fault;
  std::string rest;
};

// As a connection does it: pieces are appended to what was not taken.
Read read(std::string_view bytes, size_t first, size_t second) {
  RequestReader reader(4096, 4096);
  std::string buffer;
  for (std::string_view piece :
       {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)}) {
    buffer += piece;
    for (auto before = RequestReader::At::Fault; before != reader.at();) {
      before = reader.at();
      buffer.erase(0, reader.feed(buffer));
    }
  }
  Read got{reader.at(), {}, reader.fault(), buffer};
  if (got.at == RequestReader::At::Done) got.request = reader.take();
  return got;
}

TEST(RequestReader, AnyTwoCutsGiveTheSameRequest) {
  const std::string cases[] = {
      "\r\nPOST /v1/x?q=1 HTTP/1.1\r\nHost: h\r\nA: b \r\nContent-Length: 5\r\n\r\nhelloNEXT",
      "POST http://h/y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: 1\r\n\r\nNEXT",
  };
  for (const std::string& bytes : cases) {
    const Read whole = read(bytes, bytes.size(), bytes.size());
    ASSERT_EQ(whole.at, RequestReader::At::Done);
    EXPECT_EQ(whole.request.body.size(), 5u);
    EXPECT_EQ(whole.rest, "NEXT");
    for (size_t i = 0; i <= bytes.size(); ++i)
      for (size_t j = i; j <= bytes.size(); j += 3) {
        const Read cut = read(bytes, i, j);
        ASSERT_EQ(cut.at, RequestReader::At::Done) << i << " " << j << " " << cut.fault.message;
        ASSERT_EQ(cut.request.body, whole.request.body);
        ASSERT_EQ(cut.request.path, whole.request.path);
        ASSERT_EQ(cut.request.headers.size(), whole.request.headers.size());
        ASSERT_EQ(cut.rest, "NEXT");
      }
  }
  EXPECT_EQ(read(cases[0], 0, 0).request.query, "q=1");
  EXPECT_EQ(read(cases[1], 0, 0).request.path, "/y");
}

TEST(RequestReader, ARefusedBodyStillHasItsPath) {
  RequestReader reader(4096, 10);
  reader.feed("POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n");
  EXPECT_EQ(reader.at(), RequestReader::At::Fault);
  EXPECT_EQ(reader.fault().status, 413);
  EXPECT_EQ(reader.head().path, "/v1/messages");
}

// Some of these paths answer without a key.
TEST(RequestReader, MethodsWithoutABodyMayHaveASmallOne) {
  auto read_head = [](const std::string& method, const std::string& field) {
    RequestReader reader(4096, 32 << 20);
    reader.feed(method + " /health HTTP/1.1\r\nHost: h\r\n" + field + "\r\n\r\n");
    return reader;
  };
  for (const char* method : {"GET", "HEAD", "OPTIONS", "DELETE"}) {
    EXPECT_EQ(read_head(method, "Content-Length: 65536").at(), RequestReader::At::Body) << method;
    EXPECT_EQ(read_head(method, "Content-Length: 65537").fault().status, 413) << method;
    RequestReader chunked = read_head(method, "Transfer-Encoding: chunked");
    EXPECT_EQ(chunked.at(), RequestReader::At::Body);
    chunked.feed("10001\r\n");
    EXPECT_EQ(chunked.fault().status, 413) << method;
    EXPECT_EQ(chunked.at(), RequestReader::At::Fault) << method;
  }
  EXPECT_EQ(read_head("POST", "Content-Length: 33554432").at(), RequestReader::At::Body);
}

TEST(RequestReader, LongPathsTakeNoLonger) {
  std::string path;
  for (int i = 0; i < 300'000; ++i) path += "/v1";
  const double start = steady_seconds();
  EXPECT_EQ(normal_path(path + "/models"), "/v1/models");
  EXPECT_EQ(normal_path(path), "/v1");
  EXPECT_LT(steady_seconds() - start, 1);
}

TEST(RequestReader, LinesBetweenChunksAreBounded) {
  RequestReader reader(4096, 1 << 20);
  reader.feed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  reader.feed("1;" + std::string(40000, 'x'));
  EXPECT_EQ(reader.at(), RequestReader::At::Fault);
}

}  // namespace
}  // namespace invar::server
