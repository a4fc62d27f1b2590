// Products of packed weights with activation rows, and the packing of those rows (docs/numbers.md, N1, N2,
// N7). An output is one chain over the blocks in ascending order; how many rows share an unpacked block
// changes nothing. Included by kernels.inl only.
#pragma once

namespace invar::cpu {

// kTiles tile rows times kRows activation rows.
template <class V, class Fmt, int kRows, int kTiles>
void matmul_block(const MatmulArgs& a, int64_t first_tile, int64_t first_row) {
  using Tile = typename Fmt::Tile;
  using Act = typename Fmt::Activation::Block;
  constexpr int kActs = Fmt::block_values / Fmt::Activation::block_values;
  typename V::F acc[kTiles][kRows];
  const Tile* w[kTiles];
  const Act* x[kRows];
  for (int t = 0; t < kTiles; ++t) {
    w[t] = reinterpret_cast<const Tile*>(a.tiles + (first_tile + t) * a.tile_row_bytes);
    for (int m = 0; m < kRows; ++m) acc[t][m] = V::zero();
  }
  for (int m = 0; m < kRows; ++m) x[m] = static_cast<const Act*>(a.x[first_row + m]);
  for (int64_t b = 0; b < a.blocks; ++b) {
    for (int t = 0; t < kTiles; ++t) Fmt::template dot<V, kRows>(acc[t], w[t][b], x);
    for (int m = 0; m < kRows; ++m) x[m] += kActs;
  }
  for (int t = 0; t < kTiles; ++t) {
    int64_t out = (first_tile + t) * kLanes;
    int n = int(a.outs - out < kLanes ? a.outs - out : kLanes);
    for (int m = 0; m < kRows; ++m) {
      typename V::F y = acc[t][m];
      if (a.scale != 1) y = V::mul(y, V::set(a.scale));
      if (a.bias) y = V::add(y, n < kLanes ? V::load_first(a.bias + out, n) : V::load(a.bias + out));
      float* to = a.y[first_row + m] + out;
      if (n < kLanes) V::store_first(to, y, n);
      else V::store(to, y);
    }
  }
}

template <class V, class Fmt, int kRows>
void matmul_tiles(const MatmulArgs& a, int64_t tile, int64_t tiles, int64_t row) {
  constexpr int kPair = kRows >= 8 ? 1 : 2;
  int64_t t = tile;
  for (; t + kPair <= tile + tiles; t += kPair) matmul_block<V, Fmt, kRows, kPair>(a, t, row);
  for (; t < tile + tiles; ++t) matmul_block<V, Fmt, kRows, 1>(a, t, row);
}

// Rows go in groups that stay in the second-level cache while a few tile rows pass.
template <class V, class Fmt>
void matmul(const MatmulArgs& a) {
  constexpr int64_t kRowGroup = 64, kTileGroup = 2;
  int64_t tiles = (a.outs + kLanes - 1) / kLanes;
  for (int64_t first = 0; first < a.m; first += kRowGroup) {
    int64_t end = first + kRowGroup < a.m ? first + kRowGroup : a.m;
    for (int64_t t = 0; t < tiles; t += kTileGroup) {
      int64_t n = t + kTileGroup < tiles ? kTileGroup : tiles - t, row = first;
      for (; row + 8 <= end; row += 8) matmul_tiles<V, Fmt, 8>(a, t, n, row);
      if (end - row >= 4) matmul_tiles<V, Fmt, 4>(a, t, n, row), row += 4;
      if (end - row >= 2) matmul_tiles<V, Fmt, 2>(a, t, n, row), row += 2;
      if (end - row >= 1) matmul_tiles<V, Fmt, 1>(a, t, n, row);
    }
  }
}

// scale = amax / 127, code = x * (127 / amax) rounded to even; below 2^-100 scale and codes are 0.
template <class V>
void pack_i8x32(const float* x, I8x32::Block* y, int64_t cols) {
  for (int64_t b = 0; b < cols / 32; ++b, x += 32, ++y) {
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
