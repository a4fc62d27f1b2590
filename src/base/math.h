// Elementary functions in fp64 that give the same bits on every machine: written with add, multiply, divide,
// std::fma and exact bit operations only, no libm.  Largest error 1 ulp; math_test.cpp measures it.
// For tables and sampling; the kernels have their own fp32 functions.  Keeps rule N10.
#pragma once

namespace invar::math {

double exp(double x);    // 0 where the result would be subnormal
double exp2(double x);   // likewise
double log(double x);    // -inf at 0, NaN below
double log1p(double x);  // -inf at -1, NaN below
double log2(double x);

struct SinCos {
  double sin, cos;
};
SinCos sincos(double x);  // |x| <= 2^23

}  // namespace invar::math
