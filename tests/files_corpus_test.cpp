// Replays the seed corpus of fuzz/ through the entry points of the fuzz targets: ok-* must be accepted,
// bad-* refused, anything else (an input a fuzzer found) must only end well.
#include <filesystem>
#include <gtest/gtest.h>

#include "../fuzz/http_target.h"
#include "../fuzz/targets.h"
#include "../fuzz/text_targets.h"

namespace invar {
namespace {

using Target = bool (*)(std::span<const std::byte>);

void replay(const char* name, Target target, int at_least) {
  int count = 0;
  const std::string folder = std::string(INVAR_TEST_DATA) + "/../../fuzz/corpus/" + name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Result<std::string> text = read_file(entry.path(), 1 << 20);
    ASSERT_TRUE(text);
    const bool accepted = target(std::as_bytes(std::span(*text)));
    const std::string file = entry.path().filename();
    EXPECT_TRUE(!file.starts_with("ok-") || accepted) << file;
    EXPECT_TRUE(!file.starts_with("bad-") || !accepted) << file;
    ++count;
  }
  EXPECT_GE(count, at_least);
}

TEST(Corpus, Gguf) { replay("gguf", fuzz_gguf, 100); }
TEST(Corpus, Safetensors) { replay("safetensors", fuzz_safetensors, 50); }
TEST(Corpus, Config) { replay("config", fuzz_config, 20); }
TEST(Corpus, Answer) { replay("answer", fuzz_answer, 60); }
TEST(Corpus, Grammar) { replay("grammar", fuzz_grammar, 20); }
TEST(Corpus, Http) { replay("http", fuzz_http, 6); }
TEST(Corpus, StoredState) { replay("stored_state", fuzz_stored_state, 25); }

}  // namespace
}  // namespace invar
