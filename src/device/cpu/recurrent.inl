// The short convolution, the gates and the delta rule, row by row (docs/numbers.md, N5): what a row gives
// does not depend on how many rows a pass has.  Columns of a state do not depend on each other, so a call
// owns a strip of them, and all its rows pass before the next strip.  Included by kernels.inl only.
#pragma once

namespace invar::cpu {

// y = silu(w_0 x_0 + w_1 x_1 + ...), oldest tap first; the state keeps the inputs of the last taps - 1 rows.
template <class V>
void conv(const ConvArgs& a) {
  const int64_t past = a.taps - 1;
  auto input = [&](int64_t row) {
    return row < 0 ? a.state + (past + row) * a.channels : a.x + row * a.x_stride;
  };
  for (int64_t r = 0; r < a.rows; ++r)
    sixteens(a.count, [&](int64_t i, int n) {
      int64_t c = a.first + i;
      if (r + 2 < a.rows) __builtin_prefetch(input(r + 2) + c);  // rows lie far apart
      typename V::F y = V::mul(get<V>(a.weight + c, n), get<V>(input(r - past) + c, n));
      for (int64_t j = 1; j < a.taps; ++j)
        y = V::fma(get<V>(a.weight + j * a.channels + c, n), get<V>(input(r - past + j) + c, n), y);
      put<V>(a.y + r * a.y_stride + c, silu<V>(y), n);
    });
  for (int64_t j = 0; j < past; ++j) {
    const float* from = input(a.rows - past + j);
    float* to = a.state + j * a.channels;
    for (int64_t c = a.first; c < a.first + a.count; ++c) to[c] = from[c];
  }
}

// alpha -> decay = exp(a softplus(alpha + dt)), beta -> sigmoid(beta); one number per head.
template <class V>
void delta_gates(float* alpha, float* beta, const float* a, const float* dt, int64_t heads) {
  sixteens(heads, [&](int64_t i, int n) {
    typename V::F s = softplus<V>(V::add(get<V>(alpha + i, n), get<V>(dt + i, n)));
    put<V>(alpha + i, exp<V>(V::mul(get<V>(a + i, n), s)), n);
    put<V>(beta + i, sigmoid<V>(get<V>(beta + i, n)), n);
  });
}

// Per row, keys ascending: S *= decay; r = S' k; u = beta (v - r); S += k u'; y = S' q   (Yang et al., Gated
// Delta Networks, equation 10; decay first, read after the write).  The first half of a row is done in the
// walk over S that ends the row before, so a row is one walk.
template <class V, int W>
void delta_strip(const DeltaArgs& a) {
  using F = typename V::F;
  F r[W], u[W], y[W];
  auto decayed = [&](F x, F decay, F key, int w) __attribute__((always_inline)) {
    x = V::mul(x, decay);
    r[w] = V::fma(x, key, r[w]);
    return x;
  };
  const float *q = a.q, *k = a.k;
  float* s = a.state;
  F decay = V::set(a.decay[0]);
  for (int w = 0; w < W; ++w) r[w] = V::zero();
  for (int64_t i = 0; i < a.key_dim; ++i, s += W * kLanes) {
    F key = V::set(k[i]);
    for (int w = 0; w < W; ++w) V::store(s + w * kLanes, decayed(V::load(s + w * kLanes), decay, key, w));
  }
  for (int64_t t = 0; t < a.rows; ++t) {
    F beta = V::set(a.beta[t * a.gate_stride]);
    for (int w = 0; w < W; ++w) {
      u[w] = V::mul(beta, V::sub(V::load(a.v + t * a.v_stride + w * kLanes), r[w]));
      r[w] = y[w] = V::zero();
    }
    s = a.state;
    if (t + 1 < a.rows) {
      const float* next_k = k + a.qk_stride;
      decay = V::set(a.decay[(t + 1) * a.gate_stride]);
      for (int64_t i = 0; i < a.key_dim; ++i, s += W * kLanes) {
        if (i % kLanes == 0 && t + 2 < a.rows) {  // rows lie far apart
          __builtin_prefetch(q + 2 * a.qk_stride + i);
          __builtin_prefetch(next_k + 2 * a.qk_stride + i);
        }
        F key = V::set(k[i]), query = V::set(q[i]), next = V::set(next_k[i]);
        for (int w = 0; w < W; ++w) {
          F x = V::fma(key, u[w], V::load(s + w * kLanes));
          y[w] = V::fma(x, query, y[w]);
          V::store(s + w * kLanes, decayed(x, decay, next, w));
        }
      }
    } else {
      for (int64_t i = 0; i < a.key_dim; ++i, s += W * kLanes) {
        F key = V::set(k[i]), query = V::set(q[i]);
        for (int w = 0; w < W; ++w) {
          F x = V::fma(key, u[w], V::load(s + w * kLanes));
          y[w] = V::fma(x, query, y[w]);
          V::store(s + w * kLanes, x);
        }
      }
    }
    for (int w = 0; w < W; ++w) V::store(a.y + t * a.y_stride + w * kLanes, y[w]);
    q += a.qk_stride, k += a.qk_stride;
  }
}

template <class V>
void delta(const DeltaArgs& a) {
  switch (a.columns / kLanes) {
    case 1:
      return delta_strip<V, 1>(a);
    case 2:
      return delta_strip<V, 2>(a);
    case 3:
      return delta_strip<V, 3>(a);
    default:
      return delta_strip<V, 4>(a);
  }
}

}  // namespace invar::cpu
