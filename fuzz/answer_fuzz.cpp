#include "fuzz/text_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  invar::fuzz_answer(std::as_bytes(std::span(data, size)));
  return 0;
}
