#include "decode/log_probability.h"

#include <cmath>
#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(LogProbability, TheWholeVocabularyAddsUpToOneAndIsInOrder) {
  const std::vector<float> logits = {1, -2, 3.5f, 0, 3.5f, -30};
  const TokenLogprob told = log_probabilities(logits, 0, 6);
  double sum = 0;
  for (auto [token, value] : told.best) sum += std::exp(double(value));
  EXPECT_NEAR(sum, 1, 1e-6);
  ASSERT_EQ(told.best.size(), 6u);
  const Token order[] = {2, 4, 0, 3, 1, 5};  // equal ones by rising id
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(told.best[i].first, order[i]);
  EXPECT_EQ(told.rank, 3);
  EXPECT_EQ(told.value, told.best[2].second);
}

TEST(LogProbability, EqualLogitsAreEqualFloatsOfRankOne) {
  const std::vector<float> logits = {2, 7, 7, 1};
  const TokenLogprob one = log_probabilities(logits, 1, 1), two = log_probabilities(logits, 2, 1);
  EXPECT_EQ(one.value, two.value);
  EXPECT_EQ(two.rank, 1);
  EXPECT_EQ(two.best[0].first, 1);
  EXPECT_EQ(two.best[0].second, two.value);
}

TEST(LogProbability, AgreesWithTheSamplersOwn) {
  const std::vector<float> logits = {0.25f, -3, 11, 10.5f};
  for (Token t = 0; t < 4; ++t)
    EXPECT_EQ(log_probabilities(logits, t, 0).value, float(log_probability(logits, t)));
  EXPECT_TRUE(log_probabilities(logits, 3, 0).best.empty());
}

}  // namespace
}  // namespace invar
