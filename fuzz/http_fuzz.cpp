#include "fuzz/http_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  invar::fuzz_http(std::as_bytes(std::span(data, size)));
  return 0;
}
