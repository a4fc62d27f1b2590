// Kernels over one row: norms, gates, rotation, softmax (docs/numbers.md, N1: 16 partial
// sums, lane l takes elements l, l + 16, ..., then the fixed tree).  Included by kernels.inl only.
#pragma once

namespace invar::cpu {

// Calls step(first, n) for 16 elements at a time; n < 16 at a ragged end.
template <class Step>
inline void sixteens(int64_t cols, Step step) {
  for (int64_t i = 0; i < cols; i += kLanes) step(i, int(cols - i < kLanes ? cols - i : kLanes));
}

template <class V>
inline typename V::F get(const float* p, int n) {
  return n == kLanes ? V::load(p) : V::load_first(p, n);
}

template <class V>
inline void put(float* p, typename V::F x, int n) {
  if (n == kLanes) V::store(p, x);
  else V::store_first(p, x, n);
}

template <class V>
inline float sum_of_squares(const float* x, int64_t cols) {
  typename V::F acc = V::zero();
  sixteens(cols, [&](int64_t i, int n) {
    typename V::F v = get<V>(x + i, n);
    acc = V::fma(v, v, acc);
  });
  return V::sum(acc);
}

template <class V>
inline float inverse_rms(const float* x, float eps, int64_t cols) {
  return 1 / std::sqrt(sum_of_squares<V>(x, cols) / float(cols) + eps);
}

// y = (x / rms) * gain
template <class V>
void rms_norm(const float* x, const float* gain, float eps, float* y, int64_t cols) {
  typename V::F inverse = V::set(inverse_rms<V>(x, eps, cols));
  sixteens(cols, [&](int64_t i, int n) {
    put<V>(y + i, V::mul(V::mul(get<V>(x + i, n), inverse), get<V>(gain + i, n)), n);
  });
}

// y = (x / rms) * gain * silu(z)
template <class V>
void gated_rms_norm(const float* x, const float* z, const float* gain, float eps, float* y, int64_t cols) {
  typename V::F inverse = V::set(inverse_rms<V>(x, eps, cols));
  sixteens(cols, [&](int64_t i, int n) {
    typename V::F normed = V::mul(V::mul(get<V>(x + i, n), inverse), get<V>(gain + i, n));
    put<V>(y + i, V::mul(normed, silu<V>(get<V>(z + i, n))), n);
  });
}

// x = x / sqrt(sum of squares + eps) * scale
template <class V>
void l2_norm(float* x, float eps, float scale, int64_t cols) {
  typename V::F inverse = V::set(1 / std::sqrt(sum_of_squares<V>(x, cols) + eps)), factor = V::set(scale);
  sixteens(cols,
           [&](int64_t i, int n) { put<V>(x + i, V::mul(V::mul(get<V>(x + i, n), inverse), factor), n); });
}

template <class V>
void add(const float* x, float* y, int64_t cols) {
  sixteens(cols, [&](int64_t i, int n) { put<V>(y + i, V::add(get<V>(y + i, n), get<V>(x + i, n)), n); });
}

template <class V>
void multiply_add(float weight, const float* x, float* y, int64_t cols) {
  typename V::F w = V::set(weight);
  sixteens(cols, [&](int64_t i, int n) { put<V>(y + i, V::fma(w, get<V>(x + i, n), get<V>(y + i, n)), n); });
}

template <class V>
void sigmoid_gate(const float* gate, float* y, int64_t cols) {
  sixteens(cols, [&](int64_t i, int n) {
    put<V>(y + i, V::mul(get<V>(y + i, n), sigmoid<V>(get<V>(gate + i, n))), n);
  });
}

template <class V>
void sigmoid_row(float* x, int64_t cols) {
  sixteens(cols, [&](int64_t i, int n) { put<V>(x + i, sigmoid<V>(get<V>(x + i, n)), n); });
}

// (a, b) -> (a cos - b sin, b cos + a sin); the first product is rounded, the second is fused.
template <class V>
void rope(float* x, const float* cos, const float* sin, int64_t pairs, bool halves) {
  int64_t step = halves ? 1 : 2, other = halves ? pairs : 1;
  for (int64_t i = 0; i < pairs; ++i) {
    float a = x[i * step], b = x[i * step + other];
    x[i * step] = std::fma(-b, sin[i], a * cos[i]);
    x[i * step + other] = std::fma(a, sin[i], b * cos[i]);
  }
}

template <class V>
void softmax(const float* x, float* y, int64_t cols) {
  float m = x[0];
  for (int64_t i = 1; i < cols; ++i) m = x[i] > m ? x[i] : m;
  typename V::F top = V::set(m), acc = V::zero();
  sixteens(cols, [&](int64_t i, int n) {
    typename V::F e = exp<V>(V::sub(get<V>(x + i, n), top));
    if (n < kLanes) e = V::select(V::first(n), e, V::zero());
    acc = V::add(acc, e);
    put<V>(y + i, e, n);
  });
  typename V::F total = V::set(V::sum(acc));
  sixteens(cols, [&](int64_t i, int n) { put<V>(y + i, V::div(get<V>(y + i, n), total), n); });
}

}  // namespace invar::cpu
