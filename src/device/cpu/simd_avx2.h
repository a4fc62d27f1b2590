// The vector operations of simd_scalar.h for AVX2 with FMA and F16C: a vector is two registers, lanes 0-7 and
// 8-15. Included by kernels_avx2.cpp and tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace invar::cpu {

struct Avx2 {
  static constexpr const char* name = "avx2";
  static constexpr int kRows = 3, kTiles = 1;  // of activations, of weights, whose sums fit the registers
  static constexpr int kWideTiles = 2;         // the same for up to two rows
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  using B = I;
  using Mask = F;  // all bits of a lane set or clear

  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  static F load_first(const float* p, int n) {
    float full[16] = {};
    std::memcpy(full, p, size_t(n) * 4);
    return load(full);
  }
  static void store_first(float* p, F x, int n) {
    float full[16];
    store(full, x);
    std::memcpy(p, full, size_t(n) * 4);
  }
  static __m128i half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static F load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(half(p)), _mm256_cvtph_ps(half(p + 8))}; }
  static __m256 bf16(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half(p)), 16));
  }
  static F load_bf16(const uint16_t* p) { return {bf16(p), bf16(p + 8)}; }
  static F load_u8(const uint8_t* p) {
    __m128i x = half(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
  }
  static F load_i8(const int8_t* p) {
    __m128i x = half(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
  }
  static void store_f16(uint16_t* p, F x) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kMode));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, kMode));
  }
  static __m256i rounded_bf16(__m256 x) {  // in the low half of each lane
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_srli_epi32(u, 16);
  }
  static void store_bf16(uint16_t* p, F x) {
    __m256i packed = _mm256_packus_epi32(rounded_bf16(x.a), rounded_bf16(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }

  static F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  static F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  static F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  static F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static F sqrt(F x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
  static F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
  static F fnma(F x, F y, F z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
  static F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static F abs(F x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  static Mask less(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
  }
  static F select(Mask m, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
  }
  static Mask first(int n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)),
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane))};
  }
  static float sum(F x) {
    __m256 h = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(F x) {
    float v[16], m;
    store(v, x);
    m = v[0];
    for (int i = 1; i < 16; ++i) m = v[i] > m ? v[i] : m;
    return m;
  }

  static I set_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I add_int(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  static I sub_int(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
  template <int n>
  static I shift_left_int(I x) {
    return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
  }
  template <int n>
  static I shift_right_int(I x) {
    return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  static F as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
  static I as_int(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
  static void store_i8(int8_t* p, I x) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  static int32_t sum_int(I x) {
    int32_t v[8], s = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(v), _mm256_add_epi32(x.a, x.b));
    for (int32_t y : v) s += y;
    return s;
  }

  static B load_bytes(const void* p) {
    const __m256i* q = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  static void store_bytes(void* p, B x) {
    __m256i* q = static_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.a);
    _mm256_storeu_si256(q + 1, x.b);
  }
  static B set_byte(uint8_t x) { return {_mm256_set1_epi8(char(x)), _mm256_set1_epi8(char(x))}; }
  static B and_bytes(B x, B y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
  static B or_bytes(B x, B y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
  template <int n>
  static B shift_right(B x) {
    return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
  }
  template <int n>
  static B shift_left(B x) {
    return {_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
  }
  static B lookup(const uint8_t* table, B x) {
    __m256i t = _mm256_broadcastsi128_si256(half(table));
    return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
  }

  static __m256i four(const int8_t* p) {
    int32_t x;
    std::memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
  }
  // Products of bytes above 127 do not fit 16 bits; of w - 128 they do (2 * 128 * 127), |w - 128| being the
  // unsigned factor and its sign moved to the other.
  static constexpr int kDotOffset = 128;
  static __m256i dot8(__m256i acc, __m256i w, __m256i codes) {
    w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(codes, w));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
  static I dot(I acc, B w, __m256i codes) { return {dot8(acc.a, w.a, codes), dot8(acc.b, w.b, codes)}; }
  // 2 * 127 * 127 fits 16 bits.
  static I dot7(I acc, B w, __m256i codes) {
    __m256i one = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(_mm256_maddubs_epi16(w.a, codes), one)),
            _mm256_add_epi32(acc.b, _mm256_madd_epi16(_mm256_maddubs_epi16(w.b, codes), one))};
  }

  // 16-bit sums of products with codes below 2^bits; so many groups of four fit, a power of two.
  using S = I;
  static constexpr int groups_of_16_bits(int bits, int most) {
    int n = 1;
    while (2 * n <= most && 2 * n * 2 * ((1 << bits) - 1) * 127 <= 32767) n *= 2;
    return n;
  }
  template <bool first>
  static void multiply_16(S& sum, B w, __m256i codes) {
    const S products = {_mm256_maddubs_epi16(w.a, codes), _mm256_maddubs_epi16(w.b, codes)};
    if constexpr (first) sum = products;
    else sum = {_mm256_add_epi16(sum.a, products.a), _mm256_add_epi16(sum.b, products.b)};
  }
  static I add_16(I acc, S sum) {
    __m256i one = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(sum.a, one)),
            _mm256_add_epi32(acc.b, _mm256_madd_epi16(sum.b, one))};
  }

  template <class Tile>
  [[gnu::always_inline]] static void fetch(const Tile* tile, int s, int n) {
    constexpr int kLines = (int(sizeof(Tile)) + 63) / 64;
    const int lines = (kLines + n - 1) / n;  // the same for every part, so that the loop unrolls
    const char* p = reinterpret_cast<const char*>(tile) + 64 * lines * s;
    for (int i = 0; i < lines; ++i) _mm_prefetch(p + 64 * i, _MM_HINT_T0);
  }
};

}  // namespace invar::cpu
