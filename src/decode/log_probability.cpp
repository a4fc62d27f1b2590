#include "decode/log_probability.h"

#include <algorithm>
#include <ranges>

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
  told.best.resize(std::min(size_t(std::max(best, 0)), logits.size()));
  const auto all = std::views::iota(size_t(0), logits.size()) |
                   std::views::transform([&](size_t t) { return std::pair(Token(t), logits[t]); });
  std::ranges::partial_sort_copy(all, told.best, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  for (auto& [id, log] : told.best) log = value(id);
  return told;
}

}  // namespace invar
