#include "decode/log_probability.h"

#include <algorithm>
#include <numeric>

#include "base/math.h"

namespace invar {

TokenLogprob log_probabilities(std::span<const float> logits, Token token, int best) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;  // over ascending ids
  for (float x : logits) sum += math::exp(x - highest);
  const double norm = highest + math::log(sum);
  auto value = [&](Token t) { return float(logits[size_t(t)] - norm); };

  TokenLogprob told{token, value(token), 1, {}};
  for (float x : logits) told.rank += x > logits[size_t(token)];
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(ptrdiff_t(best), ptrdiff_t(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](Token a, Token b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  });
  for (auto id = ids.begin(); id != end; ++id) told.best.emplace_back(*id, value(*id));
  return told;
}

}  // namespace invar
