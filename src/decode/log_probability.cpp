#include "decode/log_probability.h"

#include <algorithm>

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
  // Ids ascend, so the earlier of equals stays before the later.
  const auto most = std::min(size_t(std::max(best, 0)), logits.size());
  auto higher = [](float logit, const auto& of) { return logit > of.second; };
  told.best.reserve(most + 1);
  for (size_t t = 0; t < logits.size(); ++t) {
    if (told.best.size() == most && (most == 0 || !higher(logits[t], told.best.back()))) continue;
    told.best.emplace(std::upper_bound(told.best.begin(), told.best.end(), logits[t], higher), Token(t),
                      logits[t]);
    if (told.best.size() > most) told.best.pop_back();
  }
  for (auto& [id, log] : told.best) log = value(id);
  return told;
}

}  // namespace invar
