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

  static constexpr int kSums = V::kTiles > 1 ? 16 : 4;     // that the registers hold
  static constexpr int kTogether = V::kTiles > 1 ? 8 : 4;  // queries of a group
  static constexpr int64_t kStep = V::kTiles * kLanes;     // keys whose scores are made together
  static constexpr int64_t kLine = 64;                     // bytes
  static constexpr int64_t kNear = 8;                      // rows ahead for the first-level cache

  const AttendArgs& a;
  int64_t last, groups;  // the last position that any query sees; groups of queries
  alignas(64) float score[kTogether][kBlock];
  float query[kMaxQueries * kMaxHeadDim];  // [dim][N] of each group, one after another

  explicit Attend(const AttendArgs& args) : a(args), last(0), groups(0) {
    for (int i = 0; i < a.n; ++i) last = a.position[i] > last ? a.position[i] : last;
    each_group([&]<int N>(int first, int64_t) {
      float* to = query + first * a.dim;
      for (int64_t d = 0; d < a.dim; ++d)
        for (int i = 0; i < N; ++i) *to++ = a.q[first + i][d];
      ++groups;
    });
  }

  // f.template operator()<N>(first query, number) for groups of N queries, in the order of the queries.
  template <class Function>
  void each_group(Function f) {
    int i = 0;
    int64_t group = 0;
    if constexpr (kTogether == 8)
      for (; i + 8 <= a.n; i += 8) f.template operator()<8>(i, group++);
    for (; i + 4 <= a.n; i += 4) f.template operator()<4>(i, group++);
    for (; i + 2 <= a.n; i += 2) f.template operator()<2>(i, group++);
    for (; i < a.n; ++i) f.template operator()<1>(i, group++);
  }

  const Stored* keys(int64_t position) const {
    const auto* p = reinterpret_cast<const Stored*>(a.pages[position / kPagePositions] + a.offset);
    return p + (a.kv_head * kPagePositions + position % kPagePositions / kLanes * kLanes) * a.dim;
  }
  const Stored* values(int64_t position) const {
    const auto* p = reinterpret_cast<const Stored*>(a.pages[position / kPagePositions] + a.offset);
    return p + ((a.kv_heads + a.kv_head) * kPagePositions + position % kPagePositions) * a.dim;
  }

  // What the next block reads is fetched while this one is computed.  Of several groups each fetches its
  // share of the keys and values while it makes scores; a single one, which waits for memory most of the
  // time, keys with the scores and values with the sums.
  struct Ahead {
    const std::byte *keys, *values;
    int64_t lines;  // of each
  };
  Ahead ahead(int64_t position, int64_t group) const {
    if (position > last) return {nullptr, nullptr, 0};
    const int64_t lines = kStep * a.dim * int64_t(sizeof(Stored)) / kLine, first = lines * group / groups;
    const auto* k = reinterpret_cast<const std::byte*>(keys(position)) + first * kLine;
    const auto* v = reinterpret_cast<const std::byte*>(values(position)) + first * kLine;
    return {k, groups > 1 ? v : k, lines * (group + 1) / groups - first};
  }

  // Scores of G times 16 keys of one page from `position` on, for N queries from `first` on.
  template <int N, int G>
  void score_keys(int first, int64_t position, int64_t block, Ahead fetch) {
    const Stored* k = keys(position);
    const float* q = query + first * a.dim;
    F s[N][G];
    for (int i = 0; i < N; ++i)
      for (int g = 0; g < G; ++g) s[i][g] = V::zero();
    int64_t due = 0;
    for (int64_t d = 0; d < a.dim; ++d, k += kLanes, q += N) {
      for (due += fetch.lines; due >= a.dim; due -= a.dim, fetch.keys += kLine, fetch.values += kLine) {
        __builtin_prefetch(fetch.keys, 0, 2);
        __builtin_prefetch(fetch.values, 0, 2);
      }
      F key[G];
      for (int g = 0; g < G; ++g) key[g] = Kv::template load<V>(k + g * kLanes * a.dim);
      for (int i = 0; i < N; ++i) {
        const F each = V::set(q[i]);
        for (int g = 0; g < G; ++g) s[i][g] = V::fma(each, key[g], s[i][g]);
      }
    }
    for (int i = 0; i < N; ++i)
      for (int g = 0; g < G; ++g)
        V::store(score[i] + (position - block) + g * kLanes, V::mul(s[i][g], V::set(a.scale)));
  }

  // sums[d] = fma(p_j, v_jd, sums[d]) for j ascending in [begin, end), N queries from `first` on whose scores
  // begin at p, 16 W features.
  template <int N, int W, bool kFetch>
  void add_values(const float (*p)[kBlock], int first, int64_t block, int64_t begin, int64_t end, int64_t d) {
    constexpr int64_t kBytes = W * kLanes * int64_t(sizeof(Stored));
    F acc[N][W];
    for (int i = 0; i < N; ++i)
      for (int w = 0; w < W; ++w) acc[i][w] = V::load(a.part[first + i] + 2 + d + w * kLanes);
    for (int64_t j = begin; j < end;) {
      const int64_t run =
          (block + j) / kPagePositions * kPagePositions - block;  // the page's first, in the block
      const int64_t stop = run + kPagePositions < end ? run + kPagePositions : end;
      const Stored* v = values(block + j) + d;
      const std::byte* next = nullptr;
      if constexpr (kFetch) {  // this strip's share of the next block, one row after another
        const int64_t position = block + kBlock + d * kBlock / a.dim + run * W * kLanes / a.dim;
        next = reinterpret_cast<const std::byte*>(values(position <= last ? position : block + j));
      }
      for (; j < stop; ++j, v += a.dim) {
        __builtin_prefetch(v + kNear * a.dim);
        if constexpr (kFetch)
          for (int64_t end = 0; end < kBytes; end += kLine, next += kLine) __builtin_prefetch(next, 0, 2);
        for (int w = 0; w < W; ++w) {
          F value = Kv::template load<V>(v + w * kLanes);
          for (int i = 0; i < N; ++i) acc[i][w] = V::fma(V::set(p[i][j]), value, acc[i][w]);
        }
      }
    }
    for (int i = 0; i < N; ++i)
      for (int w = 0; w < W; ++w) V::store(a.part[first + i] + 2 + d + w * kLanes, acc[i][w]);
  }

  template <int N, bool kFetch>
  void add_values(const float (*p)[kBlock], int first, int64_t block, int64_t begin, int64_t end) {
    constexpr int W = kSums / N < 1 ? 1 : kSums / N > 4 ? 4 : kSums / N;
    int64_t d = 0;
    for (; d + W * kLanes <= a.dim; d += W * kLanes) add_values<N, W, kFetch>(p, first, block, begin, end, d);
    for (; d < a.dim; d += kLanes) add_values<N, 1, kFetch>(p, first, block, begin, end, d);
  }

  // Exponentials of one query's n scores s of a block; m, l and the sums are rescaled.
  void weigh(float* s, float* part, int64_t n) {
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

  template <int N>
  void block_of(int first, int64_t block, int64_t group) {
    int64_t newest = a.position[first], oldest = a.position[first], n[N];
    for (int i = 1; i < N; ++i) {
      int64_t p = a.position[first + i];
      newest = p > newest ? p : newest;
      oldest = p < oldest ? p : oldest;
    }
    const int64_t end = newest + 1 < block + kBlock ? newest + 1 : block + kBlock;
    int64_t at = block;
    for (; at + kStep <= end; at += kStep)
      score_keys<N, V::kTiles>(first, at, block, ahead(at + kBlock, group));
    for (; at < end; at += kLanes) score_keys<N, 1>(first, at, block, {nullptr, nullptr, 0});
    for (int i = 0; i < N; ++i) {
      int64_t seen = a.position[first + i] + 1 - block;
      n[i] = seen < 0 ? 0 : seen < kBlock ? seen : kBlock;
      if (n[i] > 0) weigh(score[i], a.part[first + i], n[i]);
    }
    int64_t common = oldest + 1 - block;
    common = common < 0 ? 0 : common < kBlock ? common : kBlock;
    if (common > 0 && groups > 1) add_values<N, false>(score, first, block, 0, common);
    if (common > 0 && groups == 1) add_values<N, true>(score, first, block, 0, common);
    for (int i = 0; i < N; ++i)
      if (n[i] > common) add_values<1, false>(score + i, first + i, block, common, n[i]);
  }

  void segment(int64_t begin) {
    for (int i = 0; i < a.n; ++i) {
      a.part[i][0] = -INFINITY;
      for (int64_t d = 0; d <= a.dim; ++d) a.part[i][1 + d] = 0;
    }
    for (int64_t b = begin; b < begin + kSegment && b <= last; b += kBlock)
      each_group([&]<int N>(int first, int64_t group) { block_of<N>(first, b, group); });
  }
};

template <class V, class Kv>
void attend(const AttendArgs& args) {
  AttendArgs a = args;
  Attend<V, Kv> queries(a);
  float rest[kMaxQueries][2 + kMaxHeadDim];  // the second and later segments
  for (int64_t s = args.first_segment; s < args.end_segment; ++s) {
    for (int i = 0; i < a.n; ++i) a.part[i] = s == args.first_segment ? args.part[i] : rest[i];
    queries.segment(s * kSegment);
    for (int i = 0; i < a.n && s > args.first_segment; ++i)
      if (a.position[i] >= s * kSegment) merge<V>(args.part[i], rest[i], a.dim);
  }
}

}  // namespace invar::cpu
