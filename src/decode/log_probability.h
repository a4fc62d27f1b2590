// Log-probabilities of the model's own distribution, before temperature, penalties and masks: what APIs
// report, and evaluations add up.  One float per token, so that equal ones compare equal.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "decode/sampler.h"

namespace invar {

struct TokenLogprob {
  Token token = 0;
  float value = 0;
  int64_t rank = 0;                           // 1: no other token is likelier
  std::vector<std::pair<Token, float>> best;  // of the whole vocabulary: falling, then by rising id
};

// `best`: how many alternatives are listed.  The logits are finite.
TokenLogprob log_probabilities(std::span<const float> logits, Token token, int best);

}  // namespace invar
