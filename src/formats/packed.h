// Codes of 2..6 bits in a tile, and their integer dot products.  32 weights of 16 rows take as many loads of
// 64 bytes as a code has bits.  A group is four neighbouring k: byte [row][k % 4] of some loads.  The table
// says which bits of which loads make up the code of each of the eight groups; whole codes come first and the
// left-over top bits of the bytes hold the last ones, so that most groups cost one mask.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "formats/format.h"

namespace invar {

struct CodeBits {
  int load, from, to, width;  // bits from.. of the byte are bits to.. of the code
};
using CodeLayout = std::array<std::array<CodeBits, 3>, 8>;  // [group]; width 0: unused

template <int kBits>
inline constexpr CodeLayout kCodeLayout = {};
template <>
inline constexpr CodeLayout kCodeLayout<2> = {{{{{0, 0, 0, 2}}},
                                               {{{0, 2, 0, 2}}},
                                               {{{0, 4, 0, 2}}},
                                               {{{0, 6, 0, 2}}},
                                               {{{1, 0, 0, 2}}},
                                               {{{1, 2, 0, 2}}},
                                               {{{1, 4, 0, 2}}},
                                               {{{1, 6, 0, 2}}}}};
template <>
inline constexpr CodeLayout kCodeLayout<3> = {{{{{0, 0, 0, 3}}},
                                               {{{0, 3, 0, 3}}},
                                               {{{1, 0, 0, 3}}},
                                               {{{1, 3, 0, 3}}},
                                               {{{2, 0, 0, 3}}},
                                               {{{2, 3, 0, 3}}},
                                               {{{0, 6, 0, 2}, {1, 6, 2, 1}}},
                                               {{{2, 6, 0, 2}, {1, 7, 2, 1}}}}};
template <>
inline constexpr CodeLayout kCodeLayout<4> = {{{{{0, 0, 0, 4}}},
                                               {{{0, 4, 0, 4}}},
                                               {{{1, 0, 0, 4}}},
                                               {{{1, 4, 0, 4}}},
                                               {{{2, 0, 0, 4}}},
                                               {{{2, 4, 0, 4}}},
                                               {{{3, 0, 0, 4}}},
                                               {{{3, 4, 0, 4}}}}};
template <>
inline constexpr CodeLayout kCodeLayout<5> = {{{{{0, 0, 0, 5}}},
                                               {{{1, 0, 0, 5}}},
                                               {{{2, 0, 0, 5}}},
                                               {{{3, 0, 0, 5}}},
                                               {{{4, 0, 0, 5}}},
                                               {{{0, 5, 0, 3}, {1, 6, 3, 2}}},
                                               {{{2, 5, 0, 3}, {3, 6, 3, 2}}},
                                               {{{4, 5, 0, 3}, {1, 5, 3, 1}, {3, 5, 4, 1}}}}};
template <>
inline constexpr CodeLayout kCodeLayout<6> = {{{{{0, 0, 0, 6}}},
                                               {{{1, 0, 0, 6}}},
                                               {{{2, 0, 0, 6}}},
                                               {{{3, 0, 0, 6}}},
                                               {{{4, 0, 0, 6}}},
                                               {{{5, 0, 0, 6}}},
                                               {{{0, 6, 0, 2}, {1, 6, 2, 2}, {2, 6, 4, 2}}},
                                               {{{3, 6, 0, 2}, {4, 6, 2, 2}, {5, 6, 4, 2}}}}};

// 32 codes of 16 rows.
template <int kBits>
struct Packed {
  uint8_t byte[kBits][kLanes][4];  // [load][row][k % 4]

  void put(int lane, const uint8_t* codes) {
    uint32_t word[kBits] = {};  // four bytes at a time
    for (int g = 0; g < 8; ++g) {
      uint32_t four;
      std::memcpy(&four, codes + 4 * g, 4);
      for (const CodeBits& c : kCodeLayout<kBits>[size_t(g)])
        if (c.width > 0) word[c.load] |= (four >> c.to & mask(c)) << c.from;
    }
    for (int l = 0; l < kBits; ++l) std::memcpy(byte[l][lane], &word[l], 4);
  }

  void get(int lane, uint8_t* codes) const {
    for (int g = 0; g < 8; ++g) {
      uint32_t four = 0;
      for (const CodeBits& c : kCodeLayout<kBits>[size_t(g)]) {
        uint32_t word;
        std::memcpy(&word, byte[c.load][lane], 4);
        if (c.width > 0) four |= (word >> c.from & mask(c)) << c.to;
      }
      std::memcpy(codes + 4 * g, &four, 4);
    }
  }

 private:
  static constexpr uint32_t mask(const CodeBits& c) { return ((1u << c.width) - 1) * 0x01010101; }
};

template <class V, CodeBits c, int kBits>
[[gnu::always_inline]] static inline typename V::B code_bits(const Packed<kBits>& w) {
  typename V::B b = V::load_bytes(w.byte[c.load]);
  if constexpr (c.from > c.to) b = V::template shift_right<c.from - c.to>(b);
  if constexpr (c.from < c.to) b = V::template shift_left<c.to - c.from>(b);
  return V::and_bytes(b, V::set_byte(uint8_t(((1 << c.width) - 1) << c.to)));
}

// The codes of a group, a byte each.
template <class V, int kGroup, int kBits>
[[gnu::always_inline]] static inline typename V::B codes_of(const Packed<kBits>& w) {
  constexpr auto bits = kCodeLayout<kBits>[kGroup];
  typename V::B code = code_bits<V, bits[0]>(w);
  if constexpr (bits[1].width > 0) code = V::or_bytes(code, code_bits<V, bits[1]>(w));
  if constexpr (bits[2].width > 0) code = V::or_bytes(code, code_bits<V, bits[2]>(w));
  return code;
}

// With V::dot7 these pick one byte of each row.
constexpr int8_t kUnit[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};

}  // namespace invar
