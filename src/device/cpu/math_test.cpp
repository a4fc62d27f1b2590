// Largest errors of the kernels' own functions, in units of the last place of the fp32 result, against long
// double.
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "device/cpu/tiers.h"

namespace invar::cpu {
namespace {

// Dense over [-110, 110], and random over all magnitudes.
std::vector<float> inputs() {
  std::vector<float> x;
  for (int i = -110000; i <= 110000; ++i) x.push_back(float(i) * 1e-3f);
  std::mt19937 rng(5);
  std::uniform_real_distribution<float> exponent(-30, 6.7f);
  for (int i = 0; i < 200000; ++i) x.push_back((i % 2 ? -1.0f : 1.0f) * std::exp2(exponent(rng)));
  return x;
}

double ulps(float got, long double want) {
  float nearest = float(want);
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : 1e9;
  long double ulp = std::nextafter(std::fabs(nearest), INFINITY) - std::fabs(nearest);
  return double(std::fabs((long double)(got)-want) / ulp);
}

// Where the result is below 2^-118 the functions may give 0: e^-x is infinite there.
template <class Want>
double worst(const std::vector<float>& x, const std::vector<float>& y, Want want) {
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    long double w = want((long double)(x[i]));
    bool vanishing = std::fabs(w) < 0x1p-118L;
    EXPECT_TRUE(!vanishing || y[i] == 0 || ulps(y[i], w) < 3) << x[i];
    if (!vanishing) most = std::max(most, ulps(y[i], w));
  }
  return most;
}

// As a product of weights and activations that are all 1, gated by x.
std::vector<float> silu(const KernelTable& t, std::vector<float> x) {
  const int64_t outs = int64_t(x.size()), tile_rows = (outs + kLanes - 1) / kLanes;
  const std::vector<float> ones(size_t(tile_rows * kLanes), 1);
  float* y = x.data();
  t.matmul[int(format_of<F32>)]({reinterpret_cast<const std::byte*>(ones.data()),
                                 kLanes * int64_t(sizeof(float)), outs, 1, ones.data(), &y, 1, nullptr, 1,
                                 Held::Gate});
  return x;
}

TEST(Math, ErrorsStayWithinTheirBounds) {
  const KernelTable& t = *available_tiers().back();  // the tiers agree bit by bit: kernels_test.cpp
  const std::vector<float> x = inputs();
  const int64_t n = int64_t(x.size());
  std::vector<float> y(x), zeros(x.size(), 0);

  t.sigmoid(y.data(), n);
  EXPECT_LE(worst(x, y, [](long double v) { return 1 / (1 + std::exp(-v)); }), 2.5);

  y = silu(t, x);
  EXPECT_LE(worst(x, y, [](long double v) { return v / (1 + std::exp(-v)); }), 2.5);

  // decay = exp(a softplus(alpha)): with a = -1 the reciprocal of 1 + e^x, through softplus and exp.
  std::vector<float> alpha(x), beta(x), minus(x.size(), -1);
  t.delta_gates(alpha.data(), beta.data(), minus.data(), zeros.data(), n);
  for (size_t i = 0; i < x.size(); ++i) {
    double want = double(std::exp(-std::log1p(std::exp((long double)(x[i])))));
    // An error of softplus is multiplied by its size.
    double bound = 3e-7 * std::max(1.0, std::fabs(double(x[i])));
    if (want > 1e-37) { EXPECT_NEAR(alpha[i] / want, 1, bound) << x[i]; }
  }
}

TEST(Math, ExpIsExactWhereItMust) {
  const KernelTable& t = *available_tiers().back();
  // The softmax of equal scores is exact only if exp(0) is 1.
  std::vector<float> x(8, 3.25f), y(8);
  t.softmax(x.data(), y.data(), 8);
  for (float v : y) EXPECT_EQ(v, 0.125f);
  std::vector<float> far = {0, -INFINITY, -200, -87.4f}, z(4);
  t.softmax(far.data(), z.data(), 4);
  EXPECT_EQ(z[0], 1);
  EXPECT_EQ(z[1], 0);
  EXPECT_EQ(z[2], 0);
  EXPECT_EQ(z[3], 0);
}

}  // namespace
}  // namespace invar::cpu
