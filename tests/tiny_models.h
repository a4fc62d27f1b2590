// Tiny random models of each architecture, runners over them with room for so many sequences, and what must
// be equal of two answers.
#pragma once

#include <cstdio>
#include <gtest/gtest.h>
#include <optional>
#include <string>

#include "questions.h"

namespace invar {

struct Setting {
  int threads = 2, chunk = 512, sequences = 16;
  int64_t context = 1200;
  double memory_of_contexts = 40;  // state for so many full sequences
};

class TinyModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = tiny_model(GetParam());
    file_ = ModelFile::open(path_).take();
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::unique_ptr<ModelRunner> runner(const Setting& s) {
    RunnerOptions options;
    options.threads = s.threads;
    options.chunk = s.chunk;
    options.sequences = s.sequences;
    options.context = s.context;
    options.memory_bytes = int64_t(1) << 33;
    auto roomy = ModelRunner::open(*file_, options);
    EXPECT_TRUE(roomy) << roomy.error().message;
    const RunnerMemory m = (*roomy)->memory();
    options.memory_bytes =
        m.weights_bytes + m.scratch_bytes + int64_t(double(m.state_bytes) * s.memory_of_contexts);
    roomy->reset();
    return ModelRunner::open(*file_, options).take();
  }

  std::string path_;
  std::optional<ModelFile> file_;
};

inline void expect_same(const Heard& want, const Heard& got, const std::string& where) {
  EXPECT_EQ(got.ends, 1) << where;
  EXPECT_EQ(got.finish, want.finish) << where << (got.error ? ": " + got.error->message : "");
  EXPECT_EQ(got.tokens, want.tokens) << where;
  EXPECT_EQ(hex(got.logits), hex(want.logits)) << where;
}

inline void expect_nothing_lives(Engine& engine) {
  const Statistics s = engine.statistics();
  EXPECT_EQ(s.running + s.queued, 0);
  EXPECT_EQ(s.state.pages.live, 0);
  EXPECT_EQ(s.state.sets.live, 0);
}

inline std::string new_folder() {
  static int count = 0;
  return testing::TempDir() + "reuse-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

inline const auto kTinyModels = testing::Values("qwen35:tiny", "qwen35moe:tiny", "llama:tiny");

inline std::string name_of_model(const testing::TestParamInfo<const char*>& p) {
  return std::string(p.param).substr(0, std::string_view(p.param).find(':'));
}

}  // namespace invar
