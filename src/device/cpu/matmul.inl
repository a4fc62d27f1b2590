// Products of packed weights with activation rows, and the packing of those rows (docs/numbers.md, N1, N2,
// N7). An output is one chain over the blocks in ascending order; how many rows share an unpacked block
// changes nothing. Included by kernels.inl only.
#pragma once

#include "device/cpu/math.inl"
#include "formats/product.h"

namespace invar::cpu {

constexpr int kFewRows = 8;  // up to so many unpack codes in registers

// So many tiles before they are read they are fetched, each of several tile rows.
template <class Tile, int kTiles>
constexpr int kAhead = kTiles > 2 ? (4096 + int(sizeof(Tile)) / 2) / int(sizeof(Tile))
                                  : 4096 / int(sizeof(Tile)) + 2;

// Out of line: it is rare, and long beside what calls it.
template <class V>
[[gnu::noinline]] static typename V::F gated(typename V::F gate, typename V::F y) {
  return V::mul(silu<V>(gate), y);
}

// Writes the finished sums of one tile row.
template <class V>
[[gnu::always_inline]] static inline void finish_sum(const MatmulArgs& a, int64_t tile, int64_t row,
                                                     typename V::F y) {
  const int64_t out = tile * kLanes;
  const int n = int(a.outs - out < kLanes ? a.outs - out : kLanes);
  if (a.scale != 1) y = V::mul(y, V::set(a.scale));
  if (a.bias) y = V::add(y, n < kLanes ? V::load_first(a.bias + out, n) : V::load(a.bias + out));
  float* to = a.y[row] + out;
  if (a.held != Held::Ignored) {
    const typename V::F held = n < kLanes ? V::load_first(to, n) : V::load(to);
    y = a.held == Held::Added ? V::add(held, y) : gated<V>(held, y);
  }
  if (n < kLanes) V::store_first(to, y, n);
  else V::store(to, y);
}

// Few rows: codes are unpacked in registers.
template <class V, class Fmt, int kTiles, int kRows>
void few_rows(const MatmulArgs& a, int64_t first_tile, int64_t first_row) {
  using Tile = typename Fmt::Tile;
  typename V::F acc[kTiles][kRows];
  const Tile* w[kTiles];
  for (int t = 0; t < kTiles; ++t) {
    w[t] = reinterpret_cast<const Tile*>(a.tiles + (first_tile + t) * a.tile_row_bytes);
    for (int m = 0; m < kRows; ++m) acc[t][m] = V::zero();
  }
  const auto* x = static_cast<const typename Fmt::Activation::Block*>(a.x) + first_row;
  // What is fetched goes on behind the end of a tile row where reading will: kTiles rows further.
  int64_t ahead = kAhead<Tile, kTiles>, left = a.blocks - ahead;
  for (; left <= 0; left += a.blocks) ahead += (kTiles - 1) * a.blocks;
  for (int64_t b = 0; b < a.blocks; ++b) {
    if (left-- == 0) ahead += (kTiles - 1) * a.blocks;
    if constexpr (Fmt::block_values == 1) {
      for (int t = 0; t < kTiles; ++t) V::fetch(w[t] + ahead, 0, 1);
      add_products<V, Fmt>(acc, w, x);
      x += a.m;
    } else {
      constexpr int kSubs = Fmt::block_values / 32;
      PackedTiles<V, Fmt, kTiles> tiles;
      for (int t = 0; t < kTiles; ++t) tiles.tile[t] = w[t];
      for (int s = 0; s < kSubs; ++s, x += a.m) {
        for (int t = 0; t < kTiles; ++t) V::fetch(w[t] + ahead, s, kSubs);
        add_products<V, Fmt>(acc, tiles, s, x);
      }
    }
    for (int t = 0; t < kTiles; ++t) ++w[t];
  }
  for (int t = 0; t < kTiles; ++t)
    for (int m = 0; m < kRows; ++m) finish_sum<V>(a, first_tile + t, first_row + m, acc[t][m]);
}

// Many rows: 256 columns of kTiles tile rows are unpacked into the first-level cache, and all rows of the
// panel pass over them; their sums wait in memory meanwhile.
template <class V, class Fmt, int kTiles>
class ManyRows {
 public:
  void run(const MatmulArgs& a, int64_t first_tile) {
    constexpr int kSubs = Fmt::block_values / 32, kBlocks = 8 / kSubs;  // a tile has kSubs blocks of 32
    for (int t = 0; t < kTiles; ++t)
      for (int64_t m = 0; m < a.m; ++m) V::store(sum_[t][m], V::zero());
    for (int64_t b = 0; b < a.blocks; b += kBlocks) {
      const int n = int(a.blocks - b < kBlocks ? a.blocks - b : kBlocks), subs = n * kSubs;
      for (int t = 0; t < kTiles; ++t) {
        const auto* tile =
            reinterpret_cast<const typename Fmt::Tile*>(a.tiles + (first_tile + t) * a.tile_row_bytes) + b;
        for (int i = 0; i < n; ++i)
          for (int s = 0; s < kSubs; ++s) {
            V::fetch(tile + i + kAhead<typename Fmt::Tile, kTiles>, s, kSubs);
            unpacked_[t].unpack(tile[i], s, i * kSubs + s);
          }
      }
      const auto* x = static_cast<const I8x32::Block*>(a.x) + b * kSubs * a.m;
      int64_t row = 0;
      for (; row + V::kRows <= a.m; row += V::kRows) add<V::kRows>(x, a.m, row, subs);
      if constexpr (V::kRows > 4)
        if (a.m - row >= 4) add<4>(x, a.m, row, subs), row += 4;
      for (; a.m - row >= 2; row += 2) add<2>(x, a.m, row, subs);
      if (a.m - row >= 1) add<1>(x, a.m, row, subs);
    }
    for (int t = 0; t < kTiles; ++t)
      for (int64_t m = 0; m < a.m; ++m) finish_sum<V>(a, first_tile + t, m, V::load(sum_[t][m]));
  }

 private:
  // `subs` blocks of 32 columns; x: those of all m rows, block after block.
  template <int kRows>
  void add(const I8x32::Block* x, int64_t m, int64_t row, int subs) {
    typename V::F acc[kTiles][kRows];
    for (int t = 0; t < kTiles; ++t)
      for (int r = 0; r < kRows; ++r) acc[t][r] = V::load(sum_[t][row + r]);
    const UnpackedTiles<V, Fmt, kTiles> tiles{unpacked_};
    x += row;
    for (int s = 0; s < subs; ++s, x += m) add_products<V, Fmt>(acc, tiles, s, x);
    for (int t = 0; t < kTiles; ++t)
      for (int r = 0; r < kRows; ++r) V::store(sum_[t][row + r], acc[t][r]);
  }

  Unpacked<V, Fmt> unpacked_[kTiles];
  alignas(64) float sum_[kTiles][kPanelRows][kLanes];
};

template <class V, class Fmt, int kTiles>
void matmul_tiles(const MatmulArgs& a, int64_t tile) {
  constexpr bool kFloats = Fmt::block_values == 1;
  if constexpr (!kFloats)
    if (a.m > kFewRows) {
      ManyRows<V, Fmt, kTiles> many;
      return many.run(a, tile);
    }
  int64_t row = 0;
  if constexpr (kFloats)
    for (; a.m - row >= V::kRows; row += V::kRows) few_rows<V, Fmt, kTiles, V::kRows>(a, tile, row);
  if constexpr (!kFloats && V::kRows > 4)
    for (; a.m - row >= 8; row += 8) few_rows<V, Fmt, kTiles, 8>(a, tile, row);
  if constexpr (V::kRows > 4)
    if (a.m - row >= 4) few_rows<V, Fmt, kTiles, 4>(a, tile, row), row += 4;
  for (; a.m - row >= 2; row += 2) few_rows<V, Fmt, kTiles, 2>(a, tile, row);
  if (a.m - row >= 1) few_rows<V, Fmt, kTiles, 1>(a, tile, row);
}

template <class V, class Fmt>
void matmul(const MatmulArgs& a) {
  const int64_t tiles = (a.outs + kLanes - 1) / kLanes;
  int64_t t = 0;
  // A core reads four places at once faster than two.  More rows than four are bound by arithmetic.
  if constexpr (V::kWideTiles > V::kTiles) {
    auto wide = [&]<int kRows>() {
      for (; t + V::kWideTiles <= tiles; t += V::kWideTiles) few_rows<V, Fmt, V::kWideTiles, kRows>(a, t, 0);
    };
    if (a.m == 1) wide.template operator()<1>();
    if (a.m == 2) wide.template operator()<2>();
    if constexpr (V::kRows > 4)
      if (a.m == 4) wide.template operator()<4>();
  }
  for (; t + V::kTiles <= tiles; t += V::kTiles) matmul_tiles<V, Fmt, V::kTiles>(a, t);
  if constexpr (V::kTiles > 1)
    for (; t < tiles; ++t) matmul_tiles<V, Fmt, 1>(a, t);
}

// scale = amax / 127, code = x * (127 / amax) rounded to even; below 2^-100 scale and codes are 0.
template <class V>
void pack_i8x32(const float* x, I8x32::Block* y, int64_t cols, int64_t step) {
  for (int64_t b = 0; b < cols / 32; ++b, x += 32, y += step) {
    typename V::F low = V::load(x), high = V::load(x + 16);
    float amax = V::largest(V::max(V::abs(low), V::abs(high)));
    bool tiny = amax < 0x1p-100f;
    float scale = tiny ? 0 : amax / 127, inverse = tiny ? 0 : 127 / amax;
    typename V::I code[2] = {V::to_int(round<V>(V::mul(low, V::set(inverse)))),
                             V::to_int(round<V>(V::mul(high, V::set(inverse))))};
    for (int h = 0; h < 2; ++h) {
      V::store_i8(y->code + 16 * h, code[h]);
      y->half_code_sum[h] = V::sum_int(code[h]);
      y->half_sum[h] = scale * float(y->half_code_sum[h]);
    }
    y->scale = scale;
    y->code_sum = y->half_code_sum[0] + y->half_code_sum[1];
    y->sum = scale * float(y->code_sum);
    y->unused = 0;
  }
}

}  // namespace invar::cpu
