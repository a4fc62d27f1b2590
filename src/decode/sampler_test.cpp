#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include "base/math.h"

namespace invar {
namespace {

std::vector<float> random_logits(size_t n, float spread, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

Token pick(const std::vector<float>& logits, const SamplingParams& p, const std::vector<Token>& history = {},
           int64_t prompt_tokens = 0, std::span<const uint64_t> allowed = {}) {
  static SamplingBuffers buffers;  // what an earlier choice left in them never matters
  auto token = choose(logits, allowed, p, history, prompt_tokens, buffers);
  EXPECT_TRUE(token) << token.error().message;
  return *token;
}

// The definition without any shortcut: `kept` ids, the sums of all of them.
Token plain_argmax(const std::vector<float>& logits, const std::vector<Token>& kept, const SamplingParams& p,
                   size_t position) {
  Token best = -1;
  double highest = 0;
  for (Token t : kept) {
    double sum = logits[t] / double(p.temperature) + gumbel(p.seed, position, t, p.choice);
    if (best < 0 || sum > highest) best = t, highest = sum;
  }
  return best;
}

// Which tokens come up over many seeds.
std::map<Token, int> counts(const std::vector<float>& logits, SamplingParams p, int seeds) {
  std::map<Token, int> n;
  for (int s = 0; s < seeds; ++s) p.seed = s, ++n[pick(logits, p)];
  return n;
}

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> l;
  for (double x : p) l.push_back(float(std::log(x)));
  return l;
}

TEST(Sampler, TemperatureZeroIsTheLowestOfTheBest) {
  SamplingParams p{.temperature = 0};
  EXPECT_EQ(pick({1, 3, 2, 3}, p), 1);
  EXPECT_EQ(pick({-0.0f, 0.0f}, p), 0);
}

TEST(Sampler, LowestIdAmongEqualSums) {
  // Equal logits and equal noise cannot be forced, but noise vanishes beside a huge logit / temperature.
  SamplingParams p{.temperature = 1e-6f};
  std::vector<float> logits(1000, 0);
  for (int i : {301, 302, 700}) logits[i] = 3e38f;
  EXPECT_EQ(pick(logits, p), 301);
  p.top_k = 10;
  EXPECT_EQ(pick(logits, p), 301);
}

TEST(Sampler, NoiseIsTheHashOfSeedPositionTokenChoice) {
  // Philox of counter 0, key 0 gives 0x6627e8d5 first: u = (r + 0.5) / 2^32.
  double u = (double(0x6627e8d5) + 0.5) / 4294967296.0;
  EXPECT_NEAR(gumbel(0, 0, 0, 0), -std::log(-std::log1p(-u)), 1e-12);
  EXPECT_NE(gumbel(0, 0, 0, 0), gumbel(0, 0, 1, 0));
  EXPECT_NE(gumbel(0, 0, 0, 0), gumbel(0, 0, 4, 0));
  EXPECT_NE(gumbel(0, 0, 0, 0), gumbel(0, 0, 0, 1));
  EXPECT_NE(gumbel(0, 0, 0, 0), gumbel(0, 1ull << 32, 0, 0));
  EXPECT_NE(gumbel(0, 0, 0, 0), gumbel(1ull << 32, 0, 0, 0));
}

TEST(Sampler, PruningChangesNothing) {
  for (float spread : {0.0f, 0.5f, 3.0f, 20.0f, 1e6f}) {
    auto logits = random_logits(5000, spread);
    std::vector<Token> all(logits.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = Token(i);
    for (float t : {0.1f, 1.0f, 7.0f})
      for (uint64_t seed = 0; seed < 20; ++seed) {
        SamplingParams p{.temperature = t, .seed = seed};
        EXPECT_EQ(pick(logits, p, std::vector<Token>(seed)), plain_argmax(logits, all, p, seed))
            << spread << " " << t << " " << seed;
      }
  }
}

TEST(Sampler, FrequenciesAreTheSoftmax) {
  auto logits = random_logits(40, 1.5);
  for (float temperature : {0.7f, 1.3f}) {
    std::vector<double> expected;
    double sum = 0;
    for (float x : logits) sum += std::exp(x / temperature);
    for (float x : logits) expected.push_back(std::exp(x / temperature) / sum);
    const int n = 20000;
    auto seen = counts(logits, {.temperature = temperature}, n);
    double chi = 0;
    for (int i = 0; i < 40; ++i) chi += std::pow(seen[i] - n * expected[i], 2) / (n * expected[i]);
    EXPECT_LT(chi, 39 + 4 * std::sqrt(2 * 39.0)) << temperature;
  }
}

TEST(Sampler, PositionsDrawIndependently) {
  std::vector<float> logits(2, 0);
  int ones = 0, changes = 0, last = 0;
  for (size_t position = 0; position < 4000; ++position) {
    int t = pick(logits, {.seed = 5}, std::vector<Token>(position));
    ones += t, changes += t != last, last = t;
  }
  EXPECT_NEAR(ones, 2000, 130);
  EXPECT_NEAR(changes, 2000, 130);
}

TEST(Sampler, TopKTakesTheLowerIdAtTheBorder) {
  auto seen = counts({1, 2, 1, 2, 1}, {.top_k = 3}, 300);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_TRUE(seen.count(0) && seen.count(1) && seen.count(3));
}

TEST(Sampler, TopPIncludesTheOneThatReachesIt) {
  auto logits = logs({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(counts(logits, {.top_p = 0.39f}, 300).size(), 1u);
  EXPECT_EQ(counts(logits, {.top_p = 0.5f}, 300).size(), 2u);
  EXPECT_EQ(counts(logits, {.top_p = 0.69f}, 300).size(), 2u);
  EXPECT_EQ(counts(logits, {.top_p = 0.71f}, 300).size(), 3u);
  EXPECT_EQ(counts(logits, {.top_p = 0}, 50).size(), 1u);
  // Equal weights are exact in binary: two of four reach one half, and the third is not wanted.
  EXPECT_EQ(counts({0, 0, 0, 0}, {.top_p = 0.5f}, 300).size(), 2u);
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Of 0.4 and 0.3 the first has 4/7: below 0.6, above 0.5.
  auto logits = logs({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(counts(logits, {.top_p = 0.5f, .top_k = 2}, 300).size(), 1u);
  EXPECT_EQ(counts(logits, {.top_p = 0.6f, .top_k = 2}, 300).size(), 2u);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  auto logits = logs({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(counts(logits, {.min_p = 0.76f}, 300).size(), 1u);
  EXPECT_EQ(counts(logits, {.min_p = 0.74f}, 300).size(), 2u);
  EXPECT_EQ(counts(logits, {.min_p = 0.26f}, 300).size(), 3u);
  EXPECT_EQ(counts({1, 1, 0}, {.min_p = 1}, 300).size(), 2u);
}

TEST(Sampler, FiltersAgreeWithTheDefinition) {
  auto logits = random_logits(3000, 2);
  std::vector<Token> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = Token(i);
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return logits[a] > logits[b]; });
  for (int top_k : {0, 100})
    for (float top_p : {1.0f, 0.9f, 0.3f})
      for (float min_p : {0.0f, 0.02f}) {
        SamplingParams p{.temperature = 0.8f, .top_p = top_p, .min_p = min_p, .top_k = top_k};
        auto weight = [&](Token t) { return std::exp((logits[t] - logits[order[0]]) / 0.8f); };
        std::vector<Token> kept(order.begin(), order.begin() + (top_k ? top_k : 3000));
        double total = 0, sum = 0;
        for (Token t : kept) total += weight(t);
        size_t n = 0;
        while (n < kept.size() && sum < top_p * total) sum += weight(kept[n++]);
        if (top_p < 1) kept.resize(n);
        std::erase_if(kept, [&](Token t) { return weight(t) < min_p; });
        std::sort(kept.begin(), kept.end());
        for (uint64_t seed = 0; seed < 20; ++seed) {
          p.seed = seed;
          EXPECT_EQ(pick(logits, p), plain_argmax(logits, kept, p, 0))
              << top_k << " " << top_p << " " << min_p;
        }
      }
}

TEST(Sampler, RepetitionPenaltyHitsPromptAndAnswerOnce) {
  SamplingParams p{.temperature = 0, .repetition = 2};
  EXPECT_EQ(pick({4, 3, 0}, p), 0);
  EXPECT_EQ(pick({4, 3, 0}, p, {0, 0}, 2), 1) << "4 / 2 < 3";
  EXPECT_EQ(pick({4, 1.5f, 0}, p, {0, 0}, 1), 0) << "4 / 2 > 1.5: once, not twice";
  EXPECT_EQ(pick({-1, -1.5f, -9}, p, {0}, 1), 1) << "-1 * 2 < -1.5";
}

TEST(Sampler, FrequencyAndPresenceCountTheAnswerOnly) {
  std::vector<Token> history = {0, 0, 0, 1, 1};  // the prompt is the first three
  EXPECT_EQ(pick({4, 5, 0}, {.temperature = 0, .frequency = 0.6f}, history, 3), 0) << "5 - 1.2 < 4";
  EXPECT_EQ(pick({4, 5, 0}, {.temperature = 0, .frequency = 0.4f}, history, 3), 1) << "5 - 0.8 > 4";
  EXPECT_EQ(pick({4, 5, 0}, {.temperature = 0, .presence = 1.2f}, history, 3), 0) << "5 - 1.2 < 4";
  EXPECT_EQ(pick({4, 5, 0}, {.temperature = 0, .presence = 0.8f}, history, 3), 1) << "5 - 0.8 > 4";
  EXPECT_EQ(pick({3.5f, 5, 0}, {.temperature = 0, .presence = 0.8f, .frequency = 0.4f}, history, 3), 0)
      << "5 - 0.8 - 0.8 < 3.5";
}

TEST(Sampler, BiasComesBeforePenalties) {
  SamplingParams p{.temperature = 0, .repetition = 2, .bias = {{0, 2}}};
  EXPECT_EQ(pick({1, 1.6f}, p, {0}, 1), 1) << "(1 + 2) / 2 < 1.6; the other order gives 0.5 + 2";
}

TEST(Sampler, MaskForbids) {
  std::vector<float> logits = {5, 4, 3, 2};
  std::vector<uint64_t> allowed = {0b1100};
  EXPECT_EQ(pick(logits, {.temperature = 0}, {}, 0, allowed), 2);
  for (uint64_t seed = 0; seed < 50; ++seed) EXPECT_GE(pick(logits, {.seed = seed}, {}, 0, allowed), 2);
  std::vector<uint64_t> none = {0};
  SamplingBuffers buffers;
  EXPECT_FALSE(choose(logits, none, {}, {}, 0, buffers));
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    SamplingBuffers buffers;
    auto r = choose(std::vector<float>{1, bad, 2}, {}, {}, {}, 0, buffers);
    ASSERT_FALSE(r);
    EXPECT_NE(r.error().message.find("token 1"), std::string::npos) << r.error().message;
  }
}

TEST(Sampler, LogProbability) {
  auto logits = logs({0.125, 0.5, 0.375});
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.5), 1e-6);
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.125), 1e-6);
}

TEST(Sampler, ParametersOutOfRangeAreNamed) {
  EXPECT_TRUE(check_sampling({}, 100));
  struct {
    SamplingParams params;
    const char* name;
  } cases[] = {{{.temperature = -1}, "--temperature"},
               {{.temperature = NAN}, "--temperature"},
               {{.top_p = 1.1f}, "--top-p"},
               {{.min_p = -0.1f}, "--min-p"},
               {{.repetition = 0}, "--repetition-penalty"},
               {{.presence = INFINITY}, "--presence-penalty"},
               {{.frequency = NAN}, "--frequency-penalty"},
               {{.top_k = -1}, "--top-k"},
               {{.bias = {{100, 1}}}, "--logit-bias"},
               {{.bias = {{-1, 1}}}, "--logit-bias"},
               {{.bias = {{1, NAN}}}, "--logit-bias"}};
  for (auto& c : cases) {
    Status s = check_sampling(c.params, 100);
    ASSERT_FALSE(s) << c.name;
    EXPECT_EQ(s.error().where, c.name);
  }
}

}  // namespace
}  // namespace invar
