#include "base/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace invar {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The distance of y from the true value, in units of the last place of the true value.
double error_in_ulp(double y, long double exact) {
  double near = double(exact);
  if (y == near) near = y;
  int exponent;
  std::frexp(near, &exponent);
  long double ulp = std::ldexp(1.0L, std::max(exponent - 53, -1074));
  return double(std::fabs((long double)y - exact) / ulp);
}

template <class Ours, class Exact>
double worst(double low, double high, Ours ours, Exact exact) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(low, high);
  double most = 0;
  for (int i = 0; i < 200000; ++i) {
    double x = i < 100000 ? low + (high - low) * i / 100000 : uniform(random);
    most = std::max(most, error_in_ulp(ours(x), exact((long double)x)));
  }
  return most;
}

// Random bits between two positive values: every exponent is as likely.
template <class Ours, class Exact>
double worst_over_exponents(double low, double high, Ours ours, Exact exact) {
  std::mt19937_64 random(9);
  std::uniform_int_distribution<uint64_t> bits(std::bit_cast<uint64_t>(low), std::bit_cast<uint64_t>(high));
  double most = 0;
  for (int i = 0; i < 200000; ++i) {
    double x = std::bit_cast<double>(bits(random));
    most = std::max(most, error_in_ulp(ours(x), exact((long double)x)));
  }
  return most;
}

TEST(Math, Exp) {
  auto exact = [](long double x) { return std::exp(x); };
  EXPECT_LE(worst(-1, 1, math::exp, exact), 0.95);
  EXPECT_LE(worst(-708, 709.7, math::exp, exact), 0.95);
  EXPECT_EQ(math::exp(0), 1);
  EXPECT_EQ(math::exp(-kInfinity), 0);
  EXPECT_EQ(math::exp(-708.5), 0) << "would be subnormal";
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::exp(710), kInfinity);
  EXPECT_LT(error_in_ulp(math::exp(709.78), std::exp((long double)709.78)), 0.95);
  EXPECT_TRUE(std::isnan(math::exp(NAN)));
}

TEST(Math, Exp2) {
  auto exact = [](long double x) { return std::exp2(x); };
  EXPECT_LE(worst(-1, 1, math::exp2, exact), 0.95);
  EXPECT_LE(worst(-1021, 1023.9, math::exp2, exact), 0.95);
  for (int k = -1022; k < 1024; ++k) EXPECT_EQ(math::exp2(k), std::ldexp(1.0, k));
  EXPECT_EQ(math::exp2(-1023), 0);
  EXPECT_EQ(math::exp2(1024), kInfinity);
}

TEST(Math, Log) {
  auto exact = [](long double x) { return std::log(x); };
  EXPECT_LE(worst(0.4, 2.5, math::log, exact), 0.8);
  EXPECT_LE(worst(0.99, 1.01, math::log, exact), 0.8);
  EXPECT_LE(worst_over_exponents(5e-324, 1.7e308, math::log, exact), 0.8);
  EXPECT_EQ(math::log(1), 0);
  EXPECT_EQ(math::log(0), -kInfinity);
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(math::log(-1)));
}

TEST(Math, Log1p) {
  auto exact = [](long double x) { return std::log1p(x); };
  EXPECT_LE(worst(-0.99999, 1, math::log1p, exact), 1);
  EXPECT_LE(worst_over_exponents(1e-300, 1e300, math::log1p, exact), 1);
  EXPECT_LE(worst_over_exponents(
                1e-12, 0.9999999999, [](double u) { return math::log1p(-u); },
                [](long double u) { return std::log1p(-u); }),
            1);
  EXPECT_EQ(math::log1p(0), 0);
  EXPECT_EQ(math::log1p(-1), -kInfinity);
  EXPECT_TRUE(std::isnan(math::log1p(-1.5)));
}

TEST(Math, Log2) {
  auto exact = [](long double x) { return std::log2(x); };
  EXPECT_LE(worst(0.4, 2.5, math::log2, exact), 0.8);
  EXPECT_LE(worst_over_exponents(5e-324, 1.7e308, math::log2, exact), 0.8);
  for (int k = -1074; k < 1024; ++k) EXPECT_EQ(math::log2(std::ldexp(1.0, k)), k);
}

TEST(Math, SinCos) {
  auto sin = [](double x) { return math::sincos(x).sin; };
  auto cos = [](double x) { return math::sincos(x).cos; };
  auto exact_sin = [](long double x) { return std::sin(x); };
  auto exact_cos = [](long double x) { return std::cos(x); };
  for (double most : {0.8, 8.0, 1000.0, 0x1p23}) {
    EXPECT_LE(worst(-most, most, sin, exact_sin), 0.9) << most;
    EXPECT_LE(worst(-most, most, cos, exact_cos), 0.9) << most;
  }
  for (int k = 1; k < 5000000; k += 997) {  // beside the zeros
    double x = k * 1.57079632679489661923;
    EXPECT_LE(error_in_ulp(sin(x), exact_sin(x)), 0.9) << k;
    EXPECT_LE(error_in_ulp(cos(x), exact_cos(x)), 0.9) << k;
  }
  EXPECT_EQ(sin(0), 0);
  EXPECT_EQ(cos(0), 1);
}

}  // namespace
}  // namespace invar
