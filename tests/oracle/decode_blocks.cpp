// Decodes blocks for tests/oracle/check_formats.py: `decode_blocks FORMAT < blocks > floats`, and without a
// format the list of formats, one a line: name, GGUF id, values and bytes of a block.
#include <cstdio>
#include <vector>

#include "formats/all.h"

using namespace invar;

static void list_formats() {
  for (const FormatInfo& f : kFormatTable)
    if (f.gguf_id >= 0) std::printf("%s %d %d %d\n", f.name, f.gguf_id, f.block_values, f.block_bytes);
}

template <class F>
static bool decode_stdin() {
  typename F::Block block;
  std::vector<float> values(F::block_values);
  while (std::fread(&block, sizeof block, 1, stdin) == 1) {
    F::decode(block, values.data());
    if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size()) return false;
  }
  return std::ferror(stdin) == 0 && std::fflush(stdout) == 0;
}

int main(int argc, char** argv) {
  if (argc == 1) return list_formats(), 0;
  auto format = format_by_name(argv[1]);
  if (!format) return std::fprintf(stderr, "error: %s: no such format\n", argv[1]), 2;
  bool done = false;
  with_format(*format, [&]<class F>() {
    if constexpr (F::gguf_id >= 0) done = decode_stdin<F>();
  });
  return done ? 0 : 6;
}
