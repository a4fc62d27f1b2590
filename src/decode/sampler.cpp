#include "decode/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>

#include "base/math.h"
#include "base/rng.h"

namespace invar {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The noise of all tokens at one position; four tokens share a block of the generator.
class Noise {
 public:
  Noise(uint64_t seed, uint64_t position, int choice)
      : key_{uint32_t(seed), uint32_t(seed >> 32)},
        counter_{uint32_t(position), uint32_t(position >> 32), 0, uint32_t(choice)} {}

  uint32_t bits(Token token) {
    if (uint32_t block = uint32_t(token) >> 2; block != counter_[2] || !drawn_) {
      counter_[2] = block;
      words_ = philox(counter_, key_);
      drawn_ = true;
    }
    return words_[token & 3];
  }

  // Standard Gumbel; large values come from small u, where u has resolution.
  static double of(uint32_t bits) {
    double u = (bits + 0.5) * 0x1p-32;
    return -math::log(-math::log1p(-u));
  }

 private:
  std::array<uint32_t, 2> key_;
  Philox4 counter_, words_{};
  bool drawn_ = false;
};

bool needs_processing(std::span<const uint64_t> allowed, const SamplingParams& p) {
  return !allowed.empty() || !p.bias.empty() || p.repetition != 1 || p.presence != 0 || p.frequency != 0;
}

// Mask, bias, repetition, then frequency and presence, each skipped at its neutral value.
void process(std::span<float> l, std::span<const uint64_t> allowed, const SamplingParams& p,
             std::span<const Token> history, int64_t prompt_tokens, SamplingBuffers& buffers) {
  for (size_t i = 0; !allowed.empty() && i < l.size(); i += 64) {
    uint64_t bits = i / 64 < allowed.size() ? allowed[i / 64] : 0;
    if (bits == ~uint64_t(0)) continue;
    for (size_t j = i; j < std::min(i + 64, l.size()); ++j)
      if (!(bits >> (j - i) & 1)) l[j] = kMinusInfinity;
  }
  for (auto [token, value] : p.bias) l[token] += value;
  if (p.repetition != 1) {
    std::vector<bool>& seen = buffers.seen;
    seen.assign(l.size(), false);
    for (Token t : history) {
      if (seen[t]) continue;
      seen[t] = true;
      l[t] = l[t] > 0 ? l[t] / p.repetition : l[t] * p.repetition;
    }
  }
  if (p.frequency != 0 || p.presence != 0) {
    std::vector<Token>& answer = buffers.tokens;
    answer.assign(history.begin() + prompt_tokens, history.end());
    std::sort(answer.begin(), answer.end());
    for (auto first = answer.begin(); first != answer.end();) {
      auto last = std::upper_bound(first, answer.end(), *first);
      float& x = l[*first];
      if (p.frequency != 0) x = std::fma(-p.frequency, float(last - first), x);
      if (p.presence != 0) x -= p.presence;
      first = last;
    }
  }
}

// Without branches, as the next ones, so that a compiler can look at many at once.
bool all_finite(std::span<const float> l) {
  int32_t highest = 0;
  for (float x : l) highest = std::max(highest, std::bit_cast<int32_t>(x) & 0x7fffffff);
  return highest < 0x7f800000;
}

// Rises with the logit, and is a whole number.
int32_t rank_of(float logit) {
  int32_t bits = std::bit_cast<int32_t>(logit + 0.0f);  // one zero
  return bits ^ (bits >> 31 & 0x7fffffff);
}

float logit_of(int32_t rank) { return std::bit_cast<float>(rank ^ (rank >> 31 & 0x7fffffff)); }

// Orders by falling logit, then rising id: the smallest key comes first.
uint64_t key_of(int32_t rank, Token token) {
  return uint64_t(uint32_t(~rank) ^ 0x80000000) << 32 | uint32_t(token);
}
uint64_t key_of(float logit, Token token) { return key_of(rank_of(logit), token); }

// Of logits in runs of kRun, what a walk over all of them needs to skip most.
constexpr size_t kRun = 256;
int32_t highest_rank(std::span<const float> run) {
  int32_t highest = std::numeric_limits<int32_t>::min();
  for (float x : run) highest = std::max(highest, rank_of(x));
  return highest;
}

// visit(first, run) for each run that `wanted(highest rank)`.
template <class Wanted, class Visit>
void for_runs(std::span<const float> l, Wanted wanted, Visit visit) {
  for (size_t i = 0; i < l.size(); i += kRun) {
    auto run = l.subspan(i, std::min(kRun, l.size() - i));
    if (wanted(highest_rank(run))) visit(i, run);
  }
}

// The lowest id of the largest logit.
Token largest(std::span<const float> l) {
  uint64_t best = ~uint64_t(0);
  for_runs(
      l, [&](int32_t rank) { return key_of(rank, 0) >> 32 < best >> 32; },
      [&](size_t first, std::span<const float> run) {
        for (size_t i = 0; i < run.size(); ++i) best = std::min(best, key_of(run[i], Token(first + i)));
      });
  return Token(uint32_t(best));
}

// The k smallest keys, in no order; 0 < k < l.size().
void smallest_keys(std::span<const float> l, size_t k, std::vector<uint64_t>& keys) {
  keys.clear();
  uint64_t bar = ~uint64_t(0);  // what k keys are known to stay below or at
  auto cut = [&] {
    if (keys.size() <= k) return;
    std::nth_element(keys.begin(), keys.begin() + std::ptrdiff_t(k - 1), keys.end());
    keys.resize(k);
    bar = keys.back();
  };
  for_runs(
      l, [&](int32_t rank) { return key_of(rank, 0) <= bar; },
      [&](size_t first, std::span<const float> run) {
        for (size_t i = 0; i < run.size(); ++i)
          if (uint64_t key = key_of(run[i], Token(first + i)); key <= bar) keys.push_back(key);
        if (keys.size() >= 2 * k + kRun) cut();
      });
  cut();
}

Token token_of(uint64_t key) { return Token(uint32_t(key)); }

// A vocabulary is sorted in three passes over the logits' bits; the keys come in with rising ids.
void sort_keys(std::vector<uint64_t>& keys, std::vector<uint64_t>& other) {
  if (keys.size() < 4096) return std::sort(keys.begin(), keys.end());
  other.resize(keys.size());
  for (int shift : {32, 43, 54}) {
    std::array<size_t, 2049> first{};
    for (uint64_t key : keys) ++first[(key >> shift & 2047) + 1];
    for (int i = 0; i < 2048; ++i) first[i + 1] += first[i];
    for (uint64_t key : keys) other[first[key >> shift & 2047]++] = key;
    keys.swap(other);
  }
}

// The ids left by top-k, top-p and min-p, ascending; the first of the order always stays.
std::span<const Token> filter(std::span<const float> l, const SamplingParams& p, float best,
                              SamplingBuffers& buffers) {
  double temperature = p.temperature, highest = best / temperature;
  auto weight = [&](Token t) { return math::exp(l[t] / temperature - highest); };

  std::vector<uint64_t>& keys = buffers.keys;
  if (p.top_k > 0 && size_t(p.top_k) < l.size()) {
    smallest_keys(l, size_t(p.top_k), keys);
    std::sort(keys.begin(), keys.end(), [](uint64_t a, uint64_t b) { return token_of(a) < token_of(b); });
  } else {
    keys.resize(l.size());
    for (size_t i = 0; i < l.size(); ++i) keys[i] = key_of(l[i], Token(i));
  }
  uint64_t last = ~uint64_t(0);  // the last key that stays
  if (p.top_p < 1) {
    double total = 0, sum = 0;  // the total in ascending id, the sum in falling weight
    for (uint64_t key : keys) total += weight(token_of(key));
    std::vector<uint64_t>& sorted = buffers.sorted;
    sorted = keys;
    sort_keys(sorted, buffers.other);
    size_t n = 0;
    do sum += weight(token_of(sorted[n++]));
    while (n < sorted.size() && sum < p.top_p * total);
    last = sorted[n - 1];
  }
  std::vector<Token>& kept = buffers.tokens;
  kept.clear();
  for (uint64_t key : keys)
    if (key <= last && (p.min_p == 0 || weight(token_of(key)) >= p.min_p)) kept.push_back(token_of(key));
  return kept;
}

// For a gap of at least i / 16 below the best sum, the random bits that may still reach it: noise above g
// needs u < 1 - exp(-exp(-g)) < exp(-g).
constexpr int kSteps = 16 * 23;  // noise is below 22.9
std::array<uint32_t, kSteps> reachable_bits() {
  std::array<uint32_t, kSteps> bits{};
  for (int i = 0; i < kSteps; ++i)
    bits[i] = uint32_t(std::min(0x1p32 - 1, math::exp(-i / 16.0) * 0x1p32 + 1));
  return bits;
}

// argmax of l / T + noise; the lowest id among equals.  Ids whose noise cannot lift them to the best sum so
// far are left out, which changes nothing.
class GumbelArgmax {
 public:
  GumbelArgmax(std::span<const float> l, double temperature, const Noise& noise, Token start)
      : l_(l), temperature_(temperature), noise_(noise), best_(start) {
    double x = l[start] / temperature;
    sum_ = x + Noise::of(noise_.bits(start));
    margin_ = 1e-9 + 1e-15 * std::fabs(x);  // above the rounding of sums and gaps
  }

  void add(Token t) {
    static const std::array<uint32_t, kSteps> reachable = reachable_bits();
    double x = l_[t] / temperature_, gap = sum_ - x - margin_;
    if (gap >= 23) return;
    uint32_t bits = noise_.bits(t);
    if (gap > 0 && bits > reachable[int(gap * 16)]) return;
    double s = x + Noise::of(bits);
    if (s > sum_ || (s == sum_ && t < best_)) sum_ = s, best_ = t;
  }
  void add_all() {
    for_runs(
        l_, [&](int32_t rank) { return sum_ - logit_of(rank) / temperature_ - margin_ < 23; },
        [&](size_t first, std::span<const float> run) {
          for (size_t i = 0; i < run.size(); ++i) add(Token(first + i));
        });
  }
  Token best() const { return best_; }

 private:
  std::span<const float> l_;
  double temperature_, sum_, margin_;
  Noise noise_;
  Token best_;
};

}  // namespace

void SamplingBuffers::reserve(int64_t vocab, int64_t context) {
  const auto n = size_t(vocab);
  logits.reserve(n), seen.reserve(n);
  keys.reserve(n), sorted.reserve(n), other.reserve(n);
  tokens.reserve(size_t(std::max(vocab, context)));
}

int64_t SamplingBuffers::bytes(int64_t vocab, int64_t context) {
  const SamplingBuffers b;
  auto each = [](const auto& values) { return int64_t(sizeof values[0]); };
  return vocab * (each(b.logits) + each(b.keys) + each(b.sorted) + each(b.other)) + vocab / 8 +
         std::max(vocab, context) * each(b.tokens);
}

Status check_sampling(const SamplingParams& p, int64_t vocab) {
  auto outside = [](const char* name, const char* range, double value) {
    return Error{Code::Usage, name, "expected " + std::string(range) + ", found " + std::to_string(value)};
  };
  if (!(p.temperature >= 0 && p.temperature <= 1e6))
    return outside("--temperature", "0 to 1000000", p.temperature);
  if (p.temperature > 0 && p.temperature < 1e-6f)
    return outside("--temperature", "0, or 0.000001 and up", p.temperature);
  if (p.top_k < 0) return outside("--top-k", "0 or more", p.top_k);
  if (!(p.top_p >= 0 && p.top_p <= 1)) return outside("--top-p", "0 to 1", p.top_p);
  if (!(p.min_p >= 0 && p.min_p <= 1)) return outside("--min-p", "0 to 1", p.min_p);
  if (!(p.repetition > 0 && p.repetition <= 1000))
    return outside("--repetition-penalty", "above 0, at most 1000", p.repetition);
  if (!(std::fabs(p.presence) <= 1000)) return outside("--presence-penalty", "-1000 to 1000", p.presence);
  if (!(std::fabs(p.frequency) <= 1000)) return outside("--frequency-penalty", "-1000 to 1000", p.frequency);
  for (auto [token, value] : p.bias) {
    if (token < 0 || token >= vocab)
      return Error{Code::Usage, "--logit-bias",
                   "expected a token below " + std::to_string(vocab) + ", found " + std::to_string(token)};
    if (!(std::fabs(value) <= 1000)) return outside("--logit-bias", "a value from -1000 to 1000", value);
  }
  return Ok{};
}

Status check_finite(std::span<const float> logits, int64_t position) {
  if (all_finite(logits)) return Ok{};
  auto at = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  return Error{Code::BadFile, "logits",
               "token " + std::to_string(at - logits.begin()) +
                   " has a logit that is not finite, at position " + std::to_string(position)};
}

Result<Token> choose(std::span<const float> logits, std::span<const uint64_t> allowed,
                     const SamplingParams& params, std::span<const Token> history, int64_t prompt_tokens,
                     SamplingBuffers& buffers) {
  TRY(check_finite(logits, int64_t(history.size())));
  if (needs_processing(allowed, params)) {
    buffers.logits.assign(logits.begin(), logits.end());
    process(buffers.logits, allowed, params, history, prompt_tokens, buffers);
    logits = buffers.logits;
  }
  Token best = largest(logits);
  if (!std::isfinite(logits[best]))
    return Error{Code::BadRequest, "sampling",
                 "expected an allowed token, and a largest logit that is finite after bias and penalties"};
  if (params.temperature == 0) return best;

  GumbelArgmax choice(logits, params.temperature, Noise(params.seed, history.size(), params.choice), best);
  if (params.top_k == 0 && params.top_p == 1 && params.min_p == 0) choice.add_all();
  else
    for (Token t : filter(logits, params, logits[best], buffers)) choice.add(t);
  return choice.best();
}

double gumbel(uint64_t seed, uint64_t position, Token token, int choice) {
  return Noise::of(Noise(seed, position, choice).bits(token));
}

double log_probability(std::span<const float> logits, Token token) {
  double highest = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (float x : logits) sum += math::exp(x - highest);
  return logits[token] - highest - math::log(sum);
}

}  // namespace invar
