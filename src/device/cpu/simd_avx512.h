// The vector operations of simd_scalar.h for AVX-512 with VNNI.  Included by kernels_avx512.cpp and tests
// only.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace invar::cpu {

struct Avx512 {
  static constexpr const char* name = "avx512";
  static constexpr int kRows = 6, kTiles = 2;  // of activations, of weights, whose sums fit the registers
  static constexpr int kWideTiles = 4;         // the same for up to four rows
  using F = __m512;
  using I = __m512i;
  using B = __m512i;
  using Mask = __mmask16;

  static F set(float x) { return _mm512_set1_ps(x); }
  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_first(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first(n), a); }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_bf16(const uint16_t* p) {
    __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
  static F load_u8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F load_i8(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_f16(uint16_t* p, F a) {
    __m256i h = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
  }
  static void store_bf16(uint16_t* p, F a) {
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static F select(Mask m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
  static Mask first(int n) { return Mask((1u << n) - 1); }
  static float sum(F a) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(F a) { return _mm512_reduce_max_ps(a); }

  static I set_int(int32_t x) { return _mm512_set1_epi32(x); }
  static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int n>
  static I shift_left_int(I a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static I shift_right_int(I a) {
    return _mm512_srai_epi32(a, n);
  }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static I to_int(F a) { return _mm512_cvtps_epi32(a); }
  static F as_float(I a) { return _mm512_castsi512_ps(a); }
  static I as_int(F a) { return _mm512_castps_si512(a); }
  static void store_i8(int8_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }
  static int32_t sum_int(I a) { return _mm512_reduce_add_epi32(a); }

  static B load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static void store_bytes(void* p, B a) { _mm512_storeu_si512(p, a); }
  static B set_byte(uint8_t x) { return _mm512_set1_epi8(char(x)); }
  static B and_bytes(B a, B b) { return _mm512_and_si512(a, b); }
  static B or_bytes(B a, B b) { return _mm512_or_si512(a, b); }
  template <int n>
  static B shift_right(B a) {
    return _mm512_srli_epi16(a, n);
  }
  template <int n>
  static B shift_left(B a) {
    return _mm512_slli_epi16(a, n);
  }
  static B lookup(const uint8_t* table, B a) {
    __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a);
  }

  static __m512i four(const int8_t* p) {
    int32_t x;
    std::memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
  }
  static constexpr int kDotOffset = 0;
  static I dot(I acc, B w, __m512i codes) { return _mm512_dpbusd_epi32(acc, w, codes); }
  static I dot7(I acc, B w, __m512i codes) { return _mm512_dpbusd_epi32(acc, w, codes); }

  struct S {};  // products go into 32 bits at once
  static constexpr int groups_of_16_bits(int, int) { return 1; }

  template <class Tile>
  [[gnu::always_inline]] static void fetch(const Tile* tile, int s, int n) {
    constexpr int kLines = (int(sizeof(Tile)) + 63) / 64;
    const int lines = (kLines + n - 1) / n;  // the same for every part, so that the loop unrolls
    const char* p = reinterpret_cast<const char*>(tile) + 64 * lines * s;
    for (int i = 0; i < lines; ++i) _mm_prefetch(p + 64 * i, _MM_HINT_T0);
  }
};

}  // namespace invar::cpu
