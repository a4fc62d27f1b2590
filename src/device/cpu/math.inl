// exp, sigmoid, silu and softplus of 16 lanes: range reduction and polynomial out of correctly rounded
// operations, the same sequence on every tier (docs/numbers.md, N10).  Included by kernels.inl only. Largest
// errors against a long double reference over dense and random inputs: device/cpu/math_test.cpp.
#pragma once

namespace invar::cpu {

// Round to an integral value, ties to even; for |x| < 2^22.
template <class V>
inline typename V::F round(typename V::F x) {
  typename V::F magic = V::set(12582912.0f);  // 1.5 * 2^23: the sum has an ulp of 1
  return V::sub(V::add(x, magic), magic);
}

// exp(0) = 1; 0 where the result would be subnormal; infinity from 88.7228 on; NaN stays NaN.
// exp(r) on [-ln2/2, ln2/2] = 1 + r + r^2 p(r), coefficients of Cephes' expf (Moshier).
template <class V>
inline typename V::F exp(typename V::F x) {
  using F = typename V::F;
  x = V::min(V::set(89.0f), V::max(V::set(-104.0f), x));
  F n = round<V>(V::mul(x, V::set(1.44269504f)));
  F r = V::fnma(n, V::set(0.693359375f), x);
  r = V::fnma(n, V::set(-2.12194440e-4f), r);
  F p = V::set(1.9875691500e-4f);
  p = V::fma(p, r, V::set(1.3981999507e-3f));
  p = V::fma(p, r, V::set(8.3334519073e-3f));
  p = V::fma(p, r, V::set(4.1665795894e-2f));
  p = V::fma(p, r, V::set(1.6666665459e-1f));
  p = V::fma(p, r, V::set(5.0000001201e-1f));
  p = V::add(V::fma(p, V::mul(r, r), r), V::set(1.0f));
  // 2^n in two factors, since n reaches 128 and -150.
  typename V::I whole = V::to_int(n), half = V::template shift_right_int<1>(whole);
  typename V::I rest = V::sub_int(whole, half), bias = V::set_int(127);
  F first = V::as_float(V::template shift_left_int<23>(V::add_int(half, bias)));
  F second = V::as_float(V::template shift_left_int<23>(V::add_int(rest, bias)));
  F y = V::mul(V::mul(p, first), second);
  return V::select(V::less(y, V::set(0x1p-126f)), V::zero(), y);
}

template <class V>
inline typename V::F neg(typename V::F x) {
  return V::sub(V::set(-0.0f), x);
}

template <class V>
inline typename V::F sigmoid(typename V::F x) {
  return V::div(V::set(1.0f), V::add(V::set(1.0f), exp<V>(neg<V>(x))));
}

template <class V>
inline typename V::F silu(typename V::F x) {
  return V::div(x, V::add(V::set(1.0f), exp<V>(neg<V>(x))));
}

// ln(1 + e^x) = max(x, 0) + log1p(y), y = e^-|x| in (0, 1];  log1p(y) = 2 atanh(s), s = y / (2 + y) <= 1/3,
// by its Taylor series 2 s (1 + z/3 + z^2/5 + ...), z = s^2, to z^9.
template <class V>
inline typename V::F softplus(typename V::F x) {
  using F = typename V::F;
  F y = exp<V>(neg<V>(V::abs(x)));
  F s = V::div(y, V::add(V::set(2.0f), y)), z = V::mul(s, s);
  F p = V::set(1.0f / 19);
  p = V::fma(p, z, V::set(1.0f / 17));
  p = V::fma(p, z, V::set(1.0f / 15));
  p = V::fma(p, z, V::set(1.0f / 13));
  p = V::fma(p, z, V::set(1.0f / 11));
  p = V::fma(p, z, V::set(1.0f / 9));
  p = V::fma(p, z, V::set(1.0f / 7));
  p = V::fma(p, z, V::set(1.0f / 5));
  p = V::fma(p, z, V::set(1.0f / 3));
  F twice = V::add(s, s);
  F log1p = V::fma(V::mul(p, z), twice, twice);
  return V::add(V::max(x, V::zero()), log1p);
}

}  // namespace invar::cpu
