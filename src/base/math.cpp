// See math.h.  Values with more than 53 bits are pairs hi + lo, |lo| <= ulp(hi) or so.
#include "base/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace invar::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2: the first part has 40 bits, so its product with an exponent is exact.
constexpr double kLn2First = 0x1.62e42fefa2000p-1, kLn2Rest = 0x1.9ef35793c7673p-41;
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;
constexpr double kLog2e = 0x1.71547652b82fep+0, kLog2eLow = 0x1.777d0ffda0d24p-56;
// pi / 2 in parts of 30, 30, 53 and 53 bits: products with a 23-bit integer are exact in the first two.
constexpr double kHalfPi1 = 0x1.921fb54000000p+0, kHalfPi2 = 0x1.10b4611800000p-30;
constexpr double kHalfPi3 = 0x1.313198a2e0370p-61, kHalfPi4 = 0x1.cd129024e088ap-115;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// The nearest integer, ties to even; |x| < 2^51.
double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

double power_of_two(int k) { return std::bit_cast<double>(uint64_t(k + 1023) << 52); }  // -1022..1023

struct Pair {
  double hi, lo;
};

Pair sum(double a, double b) {  // exact
  double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

// 2^k e^(r + low) for |r| < 0.35: the Taylor series up to r^13, even and odd terms apart.
double scaled_exp(double r, double low, int k) {
  double z = r * r;
  double even = 1.0 / 479001600;
  even = even * z + 1.0 / 3628800;
  even = even * z + 1.0 / 40320;
  even = even * z + 1.0 / 720;
  even = even * z + 1.0 / 24;
  even = even * z + 0.5;
  double odd = 1.0 / 6227020800;
  odd = odd * z + 1.0 / 39916800;
  odd = odd * z + 1.0 / 362880;
  odd = odd * z + 1.0 / 5040;
  odd = odd * z + 1.0 / 120;
  odd = odd * z + 1.0 / 6;
  double y = 1 + (r + ((even + odd * r) * z + low));
  if (k > 1023) return k > 1024 ? kInfinity : y * 2 * power_of_two(1023);
  if (k < -1022 || (k == -1022 && y < 1)) return 0;
  return y * power_of_two(k);
}

// ln(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2), as a pair.  With s = f / (2 + f) it is 2 artanh(s) =
// 2s + sR, R the series in s^2, and 2s = f - sf gives f - f^2/2 + s (f^2/2 + R).
Pair log_of_one_plus(double f) {
  double s = f / (2 + f), z = s * s;
  double series = 2.0 / 25;
  series = series * z + 2.0 / 23;
  series = series * z + 2.0 / 21;
  series = series * z + 2.0 / 19;
  series = series * z + 2.0 / 17;
  series = series * z + 2.0 / 15;
  series = series * z + 2.0 / 13;
  series = series * z + 2.0 / 11;
  series = series * z + 2.0 / 9;
  series = series * z + 2.0 / 7;
  series = series * z + 2.0 / 5;
  series = series * z + 2.0 / 3;
  double half = 0.5 * f * f, half_low = std::fma(0.5 * f, f, -half);
  double hi = f - half;
  double lo = ((f - hi) - half) - half_low + s * (half + series * z);
  return {hi, lo};
}

// x = 2^exponent * (1 + fraction), the bracket between sqrt(1/2) and sqrt(2); x > 0 and finite.
struct Split {
  int exponent;
  double fraction;
};

Split split(double x) {
  int exponent = 0;
  if (x < 0x1p-1022) x *= 0x1p54, exponent = -54;
  uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += int(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 0x1.6a09e667f3bcdp+0) m *= 0.5, exponent += 1;
  return {exponent, m - 1};
}

// exponent * ln 2 + pair + low.
double log_sum(int exponent, Pair log, double low) {
  if (exponent == 0) return log.hi + (log.lo + low);
  Pair top = sum(exponent * kLn2First, log.hi);
  return top.hi + (top.lo + (log.lo + (low + exponent * kLn2Rest)));
}

}  // namespace

double exp(double x) {
  if (!(x < 710)) return x != x ? kNan : kInfinity;
  if (x < -746) return 0;
  double k = nearest(x * kLog2e);
  double t = x - k * kLn2First, w = k * kLn2Rest, r = t - w;
  return scaled_exp(r, (t - r) - w, int(k));
}

double exp2(double x) {
  if (!(x < 1025)) return x != x ? kNan : kInfinity;
  if (x < -1076) return 0;
  double k = nearest(x), t = x - k;
  double r = t * kLn2;
  return scaled_exp(r, std::fma(t, kLn2, -r) + t * kLn2Low, int(k));
}

double log(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNan;
  if (x == kInfinity) return x;
  auto [exponent, f] = split(x);
  return log_sum(exponent, log_of_one_plus(f), 0);
}

double log1p(double x) {
  if (!(x > -1)) return x == -1 ? -kInfinity : kNan;
  if (x == kInfinity) return x;
  if (x > -0x1p-54 && x < 0x1p-54) return x;
  if (x > -0.29 && x < 0.41) return log_sum(0, log_of_one_plus(x), 0);
  Pair one_plus = sum(1, x);
  auto [exponent, f] = split(one_plus.hi);
  return log_sum(exponent, log_of_one_plus(f), one_plus.lo / one_plus.hi);
}

double log2(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNan;
  if (x == kInfinity) return x;
  auto [exponent, f] = split(x);
  Pair log = log_of_one_plus(f);
  double p = log.hi * kLog2e;
  double low = std::fma(log.hi, kLog2e, -p) + (log.hi * kLog2eLow + log.lo * kLog2e);
  Pair top = sum(exponent, p);
  return top.hi + (top.lo + low);
}

SinCos sincos(double x) {
  CHECK(x >= -0x1p23 && x <= 0x1p23);
  double k = nearest(x * kTwoOverPi);
  double t = x - k * kHalfPi1;  // exact
  Pair y = sum(t, -(k * kHalfPi2));
  double w = k * kHalfPi3;
  Pair r = sum(y.hi, -w);
  r = sum(r.hi, r.lo + (y.lo - std::fma(k, kHalfPi3, -w) - k * kHalfPi4));

  double z = r.hi * r.hi;  // |r| <= pi / 4: Taylor series up to r^17
  double s = 1.0 / 355687428096000;
  s = s * z - 1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  double half = 0.5 * z;
  double sin = r.hi + (r.hi * z * s + r.lo * (1 - half));

  double c = -1.0 / 6402373705728000;
  c = c * z + 1.0 / 20922789888000;
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  double top = 1 - half;
  double cos = top + (((1 - top) - half) + (z * z * c - r.hi * r.lo));

  switch (int64_t(k) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace invar::math
