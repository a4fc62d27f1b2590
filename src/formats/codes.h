// Codes of 4 and 5 bits as the blocks of files have them: one byte a code out of 32 or 256, and back.
#pragma once

#include <cstdint>
#include <cstring>

namespace invar {

template <int kBits>
struct CodesOf32;

template <>
struct CodesOf32<4> {
  uint8_t low[16];  // low nibbles weights 0..15, high nibbles 16..31

  void get(uint8_t* codes) const {
    for (int i = 0; i < 16; ++i) {
      codes[i] = low[i] & 15;
      codes[i + 16] = low[i] >> 4;
    }
  }
  void put(const uint8_t* codes) {
    for (int i = 0; i < 16; ++i) low[i] = uint8_t(codes[i] | codes[i + 16] << 4);
  }
};

template <>
struct CodesOf32<5> {
  uint8_t high[4];  // bit i: fifth bit of weight i
  uint8_t low[16];

  void get(uint8_t* codes) const {
    uint32_t bits;
    std::memcpy(&bits, high, 4);
    for (int i = 0; i < 16; ++i) {
      codes[i] = uint8_t((low[i] & 15) | (bits >> i & 1) << 4);
      codes[i + 16] = uint8_t(low[i] >> 4 | (bits >> (i + 16) & 1) << 4);
    }
  }
  void put(const uint8_t* codes) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= uint32_t(codes[i] >> 4) << i;
    std::memcpy(high, &bits, 4);
    for (int i = 0; i < 16; ++i) low[i] = uint8_t((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
};

template <int kBits>
struct CodesOf256;

template <>
struct CodesOf256<4> {
  uint8_t low[128];  // byte 32c + l: low nibble weight 64c + l, high nibble weight 64c + 32 + l

  void get(uint8_t* codes) const {
    for (int c = 0; c < 4; ++c)
      for (int l = 0; l < 32; ++l) {
        codes[64 * c + l] = low[32 * c + l] & 15;
        codes[64 * c + 32 + l] = low[32 * c + l] >> 4;
      }
  }
  void put(const uint8_t* codes) {
    for (int c = 0; c < 4; ++c)
      for (int l = 0; l < 32; ++l)
        low[32 * c + l] = uint8_t((codes[64 * c + l] & 15) | (codes[64 * c + 32 + l] & 15) << 4);
  }
};

template <>
struct CodesOf256<5> {
  uint8_t high[32];  // bit s of byte l: fifth bit of weight 32s + l
  CodesOf256<4> low;

  void get(uint8_t* codes) const {
    low.get(codes);
    for (int s = 0; s < 8; ++s)
      for (int l = 0; l < 32; ++l) codes[32 * s + l] |= uint8_t((high[l] >> s & 1) << 4);
  }
  void put(const uint8_t* codes) {
    low.put(codes);
    for (int l = 0; l < 32; ++l) {
      int bits = 0;
      for (int s = 0; s < 8; ++s) bits |= codes[32 * s + l] >> 4 << s;
      high[l] = uint8_t(bits);
    }
  }
};

}  // namespace invar
