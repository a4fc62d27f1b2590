// The product of weight tiles and activation rows (docs/numbers.md, N1): integer inside a block of 32 (or of
// 16, where a format has a scale for each half), across blocks one fp32 fma chain per output, ascending.  How
// many tiles and rows go together, and whether codes come packed or were unpacked before, changes no bit: a
// code vector serves all rows, a broadcast of activations serves all tiles.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "formats/format.h"
#include "formats/i8x32.h"

namespace invar {

// call(k) for each constant k in [0, n).
template <int n, class Call>
[[gnu::always_inline]] static inline void unrolled(Call call) {
  [&]<int... k>(std::integer_sequence<int, k...>) __attribute__((always_inline)) {
    (call(std::integral_constant<int, k>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

// Tiles as they lie in memory.
template <class V, class Fmt, int kTiles>
struct PackedTiles {
  const typename Fmt::Tile* tile[kTiles];

  template <int kGroup>
  [[gnu::always_inline]] typename V::B codes(int t, int s) const {
    return Fmt::template codes<V, kGroup>(*tile[t], s);
  }
  template <int kPart>
  [[gnu::always_inline]] typename V::F scale(int t, int s) const {
    return Fmt::template scale<V, kPart>(*tile[t], s);
  }
  template <int kPart>
  [[gnu::always_inline]] typename V::F minimum(int t, int s) const {
    return Fmt::template minimum<V, kPart>(*tile[t], s);
  }
};

// The same, unpacked once for many rows: 256 columns of 16 outputs.
template <class V, class Fmt>
struct alignas(64) Unpacked {
  static constexpr int kSubs = 8;
  uint8_t code[kSubs][8][64];
  float scale_of[kSubs][Fmt::kParts][kLanes], minimum_of[kSubs][Fmt::kParts][kLanes];

  void unpack(const typename Fmt::Tile& tile, int s, int to) {
    const PackedTiles<V, Fmt, 1> packed{{&tile}};
    unrolled<8>([&](auto group) __attribute__((always_inline)) {
      V::store_bytes(code[to][group], packed.template codes<group>(0, s));
    });
    unrolled<Fmt::kParts>([&](auto part) __attribute__((always_inline)) {
      V::store(scale_of[to][part], packed.template scale<part>(0, s));
      if constexpr (Fmt::kMinimum != Minimum::None)
        V::store(minimum_of[to][part], packed.template minimum<part>(0, s));
    });
  }
};

template <class V, class Fmt, int kTiles>
struct UnpackedTiles {
  const Unpacked<V, Fmt>* tile;  // kTiles of them

  template <int kGroup>
  [[gnu::always_inline]] typename V::B codes(int t, int s) const {
    return V::load_bytes(tile[t].code[s][kGroup]);
  }
  template <int kPart>
  [[gnu::always_inline]] typename V::F scale(int t, int s) const {
    return V::load(tile[t].scale_of[s][kPart]);
  }
  template <int kPart>
  [[gnu::always_inline]] typename V::F minimum(int t, int s) const {
    return V::load(tile[t].minimum_of[s][kPart]);
  }
};

// 32 columns: block s of the tiles times the blocks x[0], .. x[kRows - 1] of the rows.
template <class V, class Fmt, class Tiles, int kTiles, int kRows>
[[gnu::always_inline]] static inline void add_products(typename V::F (&acc)[kTiles][kRows], const Tiles& w,
                                                       int s, const I8x32::Block* x) {
  constexpr int kParts = Fmt::kParts;
  unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
    typename V::I sum[kTiles][kRows];
    for (int m = 0; m < kRows; ++m) {
      const int codes = kParts == 1 ? x[m].code_sum : x[m].half_code_sum[part];
      constexpr int kOffset = Fmt::kOffset - (Fmt::kBits > 7 ? V::kDotOffset : 0);
      const typename V::I offset = V::set_int(-kOffset * codes);
      for (int t = 0; t < kTiles; ++t) sum[t][m] = offset;
    }
    // Where a tier multiplies into 16 bits, several groups are added there before they are widened.
    constexpr int kGroups = 8 / kParts, kTogether = V::groups_of_16_bits(Fmt::kBits, kGroups);
    unrolled<kGroups / kTogether>([&](auto run) __attribute__((always_inline)) {
      typename V::S products[kTiles][kRows];
      unrolled<kTogether>([&](auto i) __attribute__((always_inline)) {
        constexpr int kGroup =
            decltype(part)::value * kGroups + decltype(run)::value * kTogether + decltype(i)::value;
        typename V::B code[kTiles];
        for (int t = 0; t < kTiles; ++t) code[t] = w.template codes<kGroup>(t, s);
        for (int m = 0; m < kRows; ++m) {
          const auto four = V::four(x[m].code + 4 * kGroup);
          for (int t = 0; t < kTiles; ++t) {
            if constexpr (kTogether == 1)
              sum[t][m] =
                  Fmt::kBits > 7 ? V::dot(sum[t][m], code[t], four) : V::dot7(sum[t][m], code[t], four);
            else V::template multiply_16<i == 0>(products[t][m], code[t], four);
          }
        }
      });
      if constexpr (kTogether > 1)
        for (int t = 0; t < kTiles; ++t)
          for (int m = 0; m < kRows; ++m) sum[t][m] = V::add_16(sum[t][m], products[t][m]);
    });
    typename V::F scale[kTiles], minimum[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      scale[t] = w.template scale<part>(t, s);
      if constexpr (Fmt::kMinimum != Minimum::None) minimum[t] = w.template minimum<part>(t, s);
    }
    for (int m = 0; m < kRows; ++m) {
      const typename V::F step = V::set(x[m].scale);
      const typename V::F total = V::set(kParts == 1 ? x[m].sum : x[m].half_sum[part]);
      for (int t = 0; t < kTiles; ++t) {
        acc[t][m] = V::fma(V::to_float(sum[t][m]), V::mul(scale[t], step), acc[t][m]);
        if constexpr (Fmt::kMinimum == Minimum::Subtracted) acc[t][m] = V::fnma(minimum[t], total, acc[t][m]);
        if constexpr (Fmt::kMinimum == Minimum::Added) acc[t][m] = V::fma(minimum[t], total, acc[t][m]);
      }
    }
  });
}

// One column: the tiles' floats times the rows' values x[0], .. x[kRows - 1].
template <class V, class Fmt, int kTiles, int kRows>
[[gnu::always_inline]] static inline void add_products(typename V::F (&acc)[kTiles][kRows],
                                                       const typename Fmt::Tile* const (&tile)[kTiles],
                                                       const float* x) {
  typename V::F weight[kTiles];
  for (int t = 0; t < kTiles; ++t) weight[t] = Fmt::template weights<V>(*tile[t]);
  for (int m = 0; m < kRows; ++m) {
    const typename V::F value = V::set(x[m]);
    for (int t = 0; t < kTiles; ++t) acc[t][m] = V::fma(weight[t], value, acc[t][m]);
  }
}

}  // namespace invar
