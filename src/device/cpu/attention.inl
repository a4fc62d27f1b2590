// Attention of a few queries that share one KV head (docs/numbers.md, N3, N4).  Keys are visited in blocks of
// 256 absolute positions; 16 blocks are a segment that starts from nothing; segments are merged in ascending
// order. A page's layout: device/operands.h.  Included by kernels.inl only.
#pragma once

namespace invar::cpu {

constexpr int64_t kBlock = 256, kSegment = 4096;

struct F16Kv {
  using Stored = uint16_t;
  template <class V>
  static typename V::F load(const Stored* p) {
    return V::load_f16(p);
  }
  static Stored of(float x) {
    float top = 65504;
    return f16_of_float(x > top ? top : x < -top ? -top : x);
  }
};

struct Bf16Kv {
  using Stored = uint16_t;
  template <class V>
  static typename V::F load(const Stored* p) {
    return V::load_bf16(p);
  }
  static Stored of(float x) { return bf16_of_float(x); }
};

struct F32Kv {
  using Stored = float;
  template <class V>
  static typename V::F load(const Stored* p) {
    return V::load(p);
  }
  static Stored of(float x) { return x; }
};

// k and v: kv_heads * dim values of the position at `place` of the page.
template <class V, class Kv>
void store_kv(const float* k, const float* v, std::byte* layer, int64_t kv_heads, int64_t dim,
              int64_t place) {
  auto* keys = reinterpret_cast<typename Kv::Stored*>(layer);
  auto* values = keys + kv_heads * kPagePositions * dim;
  for (int64_t h = 0; h < kv_heads; ++h) {
    auto* group = keys + (h * kPagePositions + place / kLanes * kLanes) * dim + place % kLanes;
    for (int64_t d = 0; d < dim; ++d) group[d * kLanes] = Kv::of(k[h * dim + d]);
    auto* row = values + (h * kPagePositions + place) * dim;
    for (int64_t d = 0; d < dim; ++d) row[d] = Kv::of(v[h * dim + d]);
  }
}

template <class V>
void merge(float* a, const float* b, int64_t dim) {
  float m = a[0] > b[0] ? a[0] : b[0], parts[kLanes] = {};
  parts[0] = a[0] - m;
  parts[1] = b[0] - m;
  V::store(parts, exp<V>(V::load(parts)));
  float fa = parts[0], fb = parts[1];
  a[0] = m;
  a[1] = std::fma(a[1], fa, b[1] * fb);
  sixteens(dim, [&](int64_t i, int n) {
    typename V::F other = V::mul(get<V>(b + 2 + i, n), V::set(fb));
    put<V>(a + 2 + i, V::fma(get<V>(a + 2 + i, n), V::set(fa), other), n);
  });
}

template <class V>
void finish(const float* part, float* y, int64_t dim) {
  typename V::F l = V::set(part[1]);
  sixteens(dim, [&](int64_t i, int n) { put<V>(y + i, V::div(get<V>(part + 2 + i, n), l), n); });
}

template <class V, class Kv>
struct Attend {
  using F = typename V::F;
  using Stored = typename Kv::Stored;

  static constexpr int kSums = V::kTiles > 1 ? 16 : 4;  // that the registers hold

  const AttendArgs& a;
  float score[kMaxQueries][kBlock];

  const Stored* keys(int64_t position) const {
    const auto* p = reinterpret_cast<const Stored*>(a.pages[position / kPagePositions] + a.offset);
    return p + (a.kv_head * kPagePositions + position % kPagePositions / kLanes * kLanes) * a.dim;
  }
  const Stored* values(int64_t position) const {
    const auto* p = reinterpret_cast<const Stored*>(a.pages[position / kPagePositions] + a.offset);
    return p + ((a.kv_heads + a.kv_head) * kPagePositions + position % kPagePositions) * a.dim;
  }

  // Scores of G times 16 keys of one page from `position` on, for queries [first, first + N).  kFetch: these
  // are the first that ask for the block, so the values of these keys and the next keys are fetched
  // meanwhile.
  template <int N, int G, bool kFetch>
  void score_keys(int first, int64_t position, int64_t block, int64_t last) {
    const Stored *k = keys(position), *value = values(position);
    const Stored* next = position + G * kLanes <= last ? keys(position + G * kLanes) : k;
    F s[N][G];
    for (int i = 0; i < N; ++i)
      for (int g = 0; g < G; ++g) s[i][g] = V::zero();
    for (int64_t d = 0; d < a.dim; ++d, k += kLanes) {
      if constexpr (kFetch) {
        for (int g = 0; g < G; ++g) __builtin_prefetch(next + (g * a.dim + d) * kLanes);
        __builtin_prefetch(value + d * G * kLanes, 0, 2);
      }
      F key[G];
      for (int g = 0; g < G; ++g) key[g] = Kv::template load<V>(k + g * kLanes * a.dim);
      for (int i = 0; i < N; ++i) {
        const F query = V::set(a.q[first + i][d]);
        for (int g = 0; g < G; ++g) s[i][g] = V::fma(query, key[g], s[i][g]);
      }
    }
    for (int i = 0; i < N; ++i)
      for (int g = 0; g < G; ++g)
        V::store(score[first + i] + (position - block) + g * kLanes, V::mul(s[i][g], V::set(a.scale)));
  }

  // sums[d] = fma(p_j, v_jd, sums[d]) for j ascending in [0, n), queries [first, first + N), 16 W features.
  template <int N, int W>
  void add_values(int first, int64_t block, int64_t begin, int64_t end, int64_t d) {
    F acc[N][W];
    for (int i = 0; i < N; ++i)
      for (int w = 0; w < W; ++w) acc[i][w] = V::load(a.part[first + i] + 2 + d + w * kLanes);
    for (int64_t j = begin; j < end;) {
      int64_t stop = (block + j) / kPagePositions * kPagePositions + kPagePositions - block;
      if (stop > end) stop = end;
      const Stored* v = values(block + j) + d;
      for (; j < stop; ++j, v += a.dim)
        for (int w = 0; w < W; ++w) {
          F value = Kv::template load<V>(v + w * kLanes);
          for (int i = 0; i < N; ++i) acc[i][w] = V::fma(V::set(score[first + i][j]), value, acc[i][w]);
        }
    }
    for (int i = 0; i < N; ++i)
      for (int w = 0; w < W; ++w) V::store(a.part[first + i] + 2 + d + w * kLanes, acc[i][w]);
  }

  template <int N>
  void add_values(int first, int64_t block, int64_t begin, int64_t end) {
    constexpr int W = kSums / N < 1 ? 1 : kSums / N > 4 ? 4 : kSums / N;
    int64_t d = 0;
    for (; d + W * kLanes <= a.dim; d += W * kLanes) add_values<N, W>(first, block, begin, end, d);
    for (; d < a.dim; d += kLanes) add_values<N, 1>(first, block, begin, end, d);
  }

  // Exponentials of one query's n scores of a block; m, l and the sums are rescaled.
  void weigh(int query, int64_t n) {
    float *s = score[query], *part = a.part[query];
    int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
    for (int64_t j = n; j < padded; ++j) s[j] = -INFINITY;
    F top = V::set(part[0]);
    for (int64_t j = 0; j < padded; j += kLanes) top = V::max(V::load(s + j), top);
    float m = V::largest(top), lane[kLanes];
    V::store(lane, exp<V>(V::set(part[0] - m)));
    float alpha = lane[0];
    F total = V::zero(), shift = V::set(m);
    for (int64_t j = 0; j < padded; j += kLanes) {
      F p = exp<V>(V::sub(V::load(s + j), shift));
      V::store(s + j, p);
      total = V::add(total, p);
    }
    part[0] = m;
    part[1] = std::fma(part[1], alpha, V::sum(total));
    F factor = V::set(alpha);
    for (int64_t d = 0; d < a.dim; d += kLanes) V::store(part + 2 + d, V::mul(V::load(part + 2 + d), factor));
  }

  template <int N, bool kFetch>
  void score_block(int first, int64_t block, int64_t end, int64_t last) {
    constexpr int G = V::kTiles;
    int64_t p = block;
    for (; p + G * kLanes <= end; p += G * kLanes) score_keys<N, G, kFetch>(first, p, block, last);
    for (; p < end; p += kLanes) score_keys<N, 1, kFetch>(first, p, block, last);
  }

  template <int N>
  void block_of(int first, int64_t block) {
    int64_t last = a.position[first], least = a.position[first], n[N];
    for (int i = 1; i < N; ++i) {
      int64_t p = a.position[first + i];
      last = p > last ? p : last;
      least = p < least ? p : least;
    }
    int64_t end = last + 1 < block + kBlock ? last + 1 : block + kBlock;
    if (first == 0) score_block<N, true>(first, block, end, last);
    else score_block<N, false>(first, block, end, last);
    for (int i = 0; i < N; ++i) {
      int64_t seen = a.position[first + i] + 1 - block;
      n[i] = seen < 0 ? 0 : seen < kBlock ? seen : kBlock;
      if (n[i] > 0) weigh(first + i, n[i]);
    }
    int64_t common = least + 1 - block;
    common = common < 0 ? 0 : common < kBlock ? common : kBlock;
    if (common > 0) add_values<N>(first, block, 0, common);
    for (int i = 0; i < N; ++i)
      if (n[i] > common) add_values<1>(first + i, block, common, n[i]);
  }

  void segment(int64_t begin) {
    for (int i = 0; i < a.n; ++i) {
      a.part[i][0] = -INFINITY;
      for (int64_t d = 0; d <= a.dim; ++d) a.part[i][1 + d] = 0;
    }
    int64_t last = 0;
    for (int i = 0; i < a.n; ++i) last = a.position[i] > last ? a.position[i] : last;
    for (int64_t b = begin; b < begin + kSegment && b <= last; b += kBlock) {
      int i = 0;
      if constexpr (kSums > 8)
        for (; i + 8 <= a.n; i += 8) block_of<8>(i, b);
      for (; i + 4 <= a.n; i += 4) block_of<4>(i, b);
      for (; i + 2 <= a.n; i += 2) block_of<2>(i, b);
      for (; i < a.n; ++i) block_of<1>(i, b);
    }
  }
};

template <class V, class Kv>
void attend(const AttendArgs& args) {
  AttendArgs a = args;
  float rest[kMaxQueries][2 + kMaxHeadDim];  // the second and later segments
  for (int64_t s = args.first_segment; s < args.end_segment; ++s) {
    for (int i = 0; i < a.n; ++i) a.part[i] = s == args.first_segment ? args.part[i] : rest[i];
    Attend<V, Kv>{a, {}}.segment(s * kSegment);
    for (int i = 0; i < a.n && s > args.first_segment; ++i)
      if (a.position[i] >= s * kSegment) merge<V>(args.part[i], rest[i], a.dim);
  }
}

}  // namespace invar::cpu
