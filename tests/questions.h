// Requests that can be asked again, and what an engine answered; the plain answer to compare with: one
// sequence, one pass for the prompt, one for each token.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "engine/engine.h"
#include "files/model_file.h"

namespace invar {

struct Question {
  std::vector<Token> prompt;
  int64_t most = -1;
  SamplingParams sampling;
  std::vector<Token> stop = {};
  std::vector<int64_t> marks = {};
  int priority = 0, n = 1;
  std::string save_as = {}, from = {};
};

struct Heard {
  std::vector<Token> tokens;
  Finish finish = Finish::Running;
  Digest logits{};
  TokenUsage usage;
  std::optional<Error> error;
  int ends = 0;
};

inline Request request_of(const Question& q) {
  Request r;
  r.prompt = q.prompt;
  r.max_tokens = q.most;
  r.sampling = q.sampling;
  r.stop = q.stop;
  r.marks = q.marks;
  r.priority = q.priority;
  r.n = q.n;
  r.save_as = q.save_as;
  r.from = q.from;
  r.digest = true;
  return r;
}

inline void hear(const Event& e, Heard& heard) {
  EXPECT_EQ(heard.ends, 0) << "an event after the last";
  heard.tokens.insert(heard.tokens.end(), e.tokens.begin(), e.tokens.end());
  heard.usage = e.usage;
  if (e.finish == Finish::Running) return;
  ++heard.ends;
  heard.finish = e.finish;
  heard.logits = e.logits;
  heard.error = e.error;
}

// `heard` outlives the request.
inline uint64_t ask(Engine& engine, const Question& q, Heard& heard) {
  Request r = request_of(q);
  r.on_event = [&heard](const Event& e) {
    hear(e, heard);
    return true;
  };
  auto id = engine.submit(std::move(r));
  EXPECT_TRUE(id) << id.error().message;
  return id ? *id : 0;
}

inline Heard answer(Engine& engine, const Question& q) {
  Heard heard;
  ask(engine, q, heard);
  engine.run_until_idle();
  EXPECT_EQ(heard.ends, 1);
  return heard;
}

// Under a name that the answer is saved as, or that it goes on from; empty: neither.
inline Heard answer_named(Engine& engine, Question q, const std::string& save_as, const std::string& from) {
  q.save_as = save_as;
  q.from = from;
  return answer(engine, q);
}

inline Heard plain_answer(ModelRunner& runner, const Question& q) {
  Heard heard;
  Sha256 digest;
  std::vector<Token> tokens = q.prompt;
  std::vector<float> row;
  SamplingBuffers buffers;
  auto state = runner.new_sequence();
  auto read = [&](std::span<const Token> more) {
    EXPECT_TRUE(state && runner.forward(*state, more, ModelRunner::Rows::Last,
                                        [&](int64_t, std::span<const float> logits) {
                                          row.assign(logits.begin(), logits.end());
                                          digest.update(std::as_bytes(logits));
                                          return true;
                                        }));
  };
  read(tokens);
  int64_t limit = runner.context() - int64_t(tokens.size());
  if (q.most >= 0) limit = std::min(limit, q.most);
  heard.finish = Finish::Length;
  while (int64_t(heard.tokens.size()) < limit) {
    auto token = choose(row, {}, q.sampling, tokens, int64_t(q.prompt.size()), buffers);
    EXPECT_TRUE(token);
    if (std::find(q.stop.begin(), q.stop.end(), *token) != q.stop.end()) {
      heard.finish = Finish::Stop;
      break;
    }
    heard.tokens.push_back(*token);
    tokens.push_back(*token);
    if (int64_t(heard.tokens.size()) < limit) read(std::span(tokens).last(1));
  }
  heard.logits = digest.finish();
  heard.ends = 1;
  return heard;
}

// A tiny random model in a file, as `invar synth` makes it.
inline std::string tiny_model(const std::string& shape, const std::string& mix = "Q4_K") {
  std::string path = testing::TempDir() + "tiny-" + std::to_string(getpid()) + "-" + shape + ".gguf";
  std::string make =
      std::string(INVAR_BINARY) + " synth " + shape + " --mix " + mix + " --seed 3 -q -o '" + path + "'";
  EXPECT_EQ(std::system(make.c_str()), 0) << make;
  return path;
}

inline std::vector<Token> random_tokens(int64_t n, uint32_t seed, int64_t vocab) {
  std::vector<Token> t;
  for (int64_t i = 0; i < n; ++i)
    t.push_back(Token((seed = seed * 1664525 + 1013904223) / 256 % uint32_t(vocab)));
  return t;
}

}  // namespace invar
