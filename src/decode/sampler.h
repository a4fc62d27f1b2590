// One row of logits to one token: penalties, filters, and Gumbel-max with noise that is a function of (seed,
// position, token, choice).  Depends on its arguments and nothing else, so a drafted row is checked by
// choosing at it exactly as without a draft.  Which tokens end an answer is the caller's matter.  Rule N9.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/operands.h"

namespace invar {

struct SamplingParams {
  float temperature = 1, top_p = 1, min_p = 0;  // temperature 0: the best token
  float repetition = 1;                         // for every token of prompt and answer
  float presence = 0, frequency = 0;            // for tokens of the answer
  int top_k = 0;                                // 0: off
  int choice = 0;                               // which of n answers to one prompt
  uint64_t seed = 0;
  std::vector<std::pair<Token, float>> bias = {};
};

// What a choice needs beside its arguments, kept for the next one: a vocabulary is large.
struct SamplingBuffers {
  std::vector<float> logits;
  std::vector<bool> seen;
  std::vector<uint64_t> keys, sorted, other;
  std::vector<Token> tokens;

  // Choices from so many logits, with histories of at most `context` tokens, then allocate nothing.
  void reserve(int64_t vocab, int64_t context);
  static int64_t bytes(int64_t vocab, int64_t context);  // that it then has
};

// What is out of range, by the names of the command line; `choose` relies on it.
Status check_sampling(const SamplingParams& params, int64_t vocab);

// `position`: of the token that the logits are for.
Status check_finite(std::span<const float> logits, int64_t position);

// `allowed`: one bit per token, empty for all.  `history`: prompt and answer so far; its length is the
// position of the token being chosen.  Fails if a logit is not finite or no token is allowed.
Result<Token> choose(std::span<const float> logits, std::span<const uint64_t> allowed,
                     const SamplingParams& params, std::span<const Token> history, int64_t prompt_tokens,
                     SamplingBuffers& buffers);

// The noise added to logit / temperature.
double gumbel(uint64_t seed, uint64_t position, Token token, int choice);

// The logarithm of the softmax of the model's own logits at `token`.  The sum runs over ascending ids.
double log_probability(std::span<const float> logits, Token token);

}  // namespace invar
