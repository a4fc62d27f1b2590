// Every weight format of the list: decode against golden values, encode, pack, `finite`, and the scalar dot
// against its definition.  A new format needs an entry in the tables below.

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "device/cpu/simd_scalar.h"
#include "formats/all.h"
#include "formats/product.h"

namespace invar {
namespace {

using cpu::Scalar;

template <class Fn>
void each_weight_format(Fn fn) {
  AllFormats::each([&]<class F>() {
    if constexpr (F::gguf_id >= 0) {
      SCOPED_TRACE(F::name);
      fn.template operator()<F>();
    }
  });
}

template <class T>
T random_bytes(std::mt19937& rng) {
  unsigned char bytes[sizeof(T)];
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(rng());
  return std::bit_cast<T>(bytes);
}

template <class F>
typename F::Block random_valid_block(std::mt19937& rng) {
  for (;;) {
    auto b = random_bytes<typename F::Block>(rng);
    if (F::finite(b)) return b;
  }
}

TEST(Formats, ListIsFoundByIdAndName) {
  each_weight_format([]<class F>() {
    EXPECT_EQ(format_by_gguf_id(F::gguf_id), format_of<F>);
    EXPECT_EQ(format_by_name(F::name), format_of<F>);
    EXPECT_EQ(F::block_values % F::Activation::block_values, 0);
    EXPECT_LE(sizeof(typename F::Tile), 1.04 * kLanes * sizeof(typename F::Block));
  });
}

TEST(Formats, DecodeEqualsGoldenBits) {
  std::ifstream in(INVAR_TEST_DATA "/formats/golden.txt");
  ASSERT_TRUE(in);
  auto bytes_of = [](const std::string& hex) {
    std::vector<unsigned char> bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
      bytes.push_back(static_cast<unsigned char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
  };
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> lines;
  for (std::string name, block, values; in >> name >> block >> values;)
    lines[name].emplace_back(block, values);
  each_weight_format([&]<class F>() {
    if (F::block_values == 1) return;
    EXPECT_FALSE(lines[F::name].empty());
    for (const auto& [block, values] : lines[F::name]) {
      auto stored = bytes_of(block), expected = bytes_of(values);
      ASSERT_EQ(stored.size(), sizeof(typename F::Block));
      ASSERT_EQ(expected.size(), 4u * F::block_values);
      typename F::Block b;
      std::memcpy(&b, stored.data(), sizeof b);
      float got[F::block_values], want[F::block_values];
      F::decode(b, got);
      std::memcpy(want, expected.data(), sizeof want);
      for (int i = 0; i < F::block_values; ++i) {
        uint32_t g = std::bit_cast<uint32_t>(got[i]), w = std::bit_cast<uint32_t>(want[i]);
        EXPECT_TRUE(g == w || (got[i] == 0 && want[i] == 0)) << "weight " << i << ": " << got[i];  // -0 is 0
      }
    }
  });
}

// Relative RMS error on normal values; the limits are a few percent above what the encoders reach.
const std::map<std::string, double> kErrorLimit = {
    {"F32", 0},       {"F16", 0.0003},  {"BF16", 0.002},  {"Q4_0", 0.084},  {"Q4_1", 0.0775},
    {"Q5_0", 0.0425}, {"Q5_1", 0.0385}, {"Q8_0", 0.0055}, {"Q2_K", 0.289},  {"Q3_K", 0.149},
    {"Q4_K", 0.078},  {"Q5_K", 0.039},  {"Q6_K", 0.0185}, {"MXFP4", 0.114}, {"NVFP4", 0.09},
};

TEST(Formats, EncodeIsCloseOnNormalValues) {
  each_weight_format([]<class F>() {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    double error = 0, square = 0;
    for (int n = 0; n < 25600; n += F::block_values) {
      float values[F::block_values], back[F::block_values];
      for (float& v : values) v = normal(rng);
      typename F::Block b;
      F::encode(values, b);
      F::decode(b, back);
      for (int i = 0; i < F::block_values; ++i) {
        error += std::pow(double(back[i]) - double(values[i]), 2);
        square += std::pow(double(values[i]), 2);
      }
    }
    auto limit = kErrorLimit.find(F::name);
    ASSERT_NE(limit, kErrorLimit.end());
    EXPECT_LE(std::sqrt(error / square), limit->second);
  });
}

TEST(Formats, EncodeKeepsExtremesFinite) {
  each_weight_format([]<class F>() {
    std::mt19937 rng(4);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float size : {0.0f, FLT_TRUE_MIN, 1e-40f, FLT_MIN, 1e-20f, 1e-7f, 1e5f, 1e30f, FLT_MAX})
      for (int shape = 0; shape < 4; ++shape) {
        float values[F::block_values], back[F::block_values];
        for (float& v : values) v = size * (shape == 0 ? 1.0f : shape == 1 ? -1.0f : uniform(rng));
        if (shape == 3) values[0] = size;
        auto b = random_bytes<typename F::Block>(rng);
        F::encode(values, b);
        EXPECT_TRUE(F::finite(b)) << size;
        F::decode(b, back);
        for (float v : back) {
          EXPECT_TRUE(std::isfinite(v)) << size;
          EXPECT_LE(std::fabs(v), std::max(1.2 * double(size), 1e-6)) << size;
        }
      }
  });
}

TEST(Formats, UnpackGivesTheBytesBack) {
  each_weight_format([]<class F>() {
    std::mt19937 rng(5);
    for (int round = 0; round < 8; ++round) {
      auto tile = random_bytes<typename F::Tile>(rng);
      std::vector<typename F::Block> blocks;
      for (int lane = 0; lane < kLanes; ++lane) {
        blocks.push_back(random_bytes<typename F::Block>(rng));
        F::pack(blocks.back(), tile, lane);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        auto back = random_bytes<typename F::Block>(rng);
        F::unpack(tile, lane, back);
        EXPECT_EQ(std::memcmp(&back, &blocks[size_t(lane)], sizeof back), 0) << "lane " << lane;
      }
    }
  });
}

// Where the blocks hold f16 numbers.
const std::map<std::string, std::vector<size_t>> kHalves = {
    {"F32", {}},      {"F16", {0}},     {"BF16", {}},    {"Q4_0", {0}},      {"Q4_1", {0, 2}},
    {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},   {"Q2_K", {80, 82}}, {"Q3_K", {108}},
    {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}}, {"MXFP4", {}},      {"NVFP4", {}},
};

TEST(Formats, FiniteRefusesEveryHalfThatIsNot) {
  each_weight_format([]<class F>() {
    auto halves = kHalves.find(F::name);
    ASSERT_NE(halves, kHalves.end());
    for (size_t at : halves->second) {
      auto finite_with = [&](uint16_t half) {
        typename F::Block b{};
        std::memcpy(reinterpret_cast<char*>(&b) + at, &half, 2);
        return F::finite(b);
      };
      for (uint16_t half : {0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff}) EXPECT_FALSE(finite_with(half)) << half;
      for (uint16_t half : {0x0000, 0x8001, 0x7bff, 0xfbff}) EXPECT_TRUE(finite_with(half)) << half;
    }
  });
}

TEST(Formats, FiniteRefusesOtherScales) {
  for (float v : {INFINITY, -INFINITY, NAN}) {
    EXPECT_FALSE(F32::finite(v));
    EXPECT_FALSE(BF16::finite(bf16_of_float(v)));
  }
  EXPECT_TRUE(F32::finite(FLT_MAX));
  EXPECT_TRUE(BF16::finite(0x7f7f));

  MXFP4::Block mx{};
  mx.exponent = 254;
  EXPECT_TRUE(MXFP4::finite(mx));  // all values 0
  mx.code.low[3] = 0x70;
  EXPECT_FALSE(MXFP4::finite(mx));  // 12 * 2^126
  mx.exponent = 252;
  EXPECT_TRUE(MXFP4::finite(mx));
  mx = {};
  mx.exponent = 255;
  EXPECT_FALSE(MXFP4::finite(mx));

  for (int s = 0; s < 4; ++s)
    for (int byte = 0; byte < 256; ++byte) {
      NVFP4::Block nv{};
      nv.scale[s] = uint8_t(byte);
      EXPECT_EQ(NVFP4::finite(nv), byte < 0x7f);
    }
}

// The scale and the minimum of the part of a block that weight i belongs to, as the definition of the format
// has them.
struct Part {
  float scale, minimum;
  int width;
};

template <class F>
Part part_of(const typename F::Block& b, int i) {
  if constexpr (std::is_same_v<F, Q8_0>) {
    return {float_of_f16(b.scale), 0, 32};
  } else if constexpr (std::is_same_v<F, Q4_0> || std::is_same_v<F, Q5_0>) {
    return {float_of_f16(b.d), 0, 32};
  } else if constexpr (std::is_same_v<F, Q4_1> || std::is_same_v<F, Q5_1>) {
    return {float_of_f16(b.d), -float_of_f16(b.m), 32};
  } else if constexpr (std::is_same_v<F, Q2_K>) {
    return {float_of_f16(b.d) * float(b.scales[i / 16] & 15),
            float_of_f16(b.dmin) * float(b.scales[i / 16] >> 4), 16};
  } else if constexpr (std::is_same_v<F, Q4_K> || std::is_same_v<F, Q5_K>) {
    auto [scale, minimum] = k_scale_min(b.scales, i / 32);
    return {float_of_f16(b.d) * float(scale), float_of_f16(b.dmin) * float(minimum), 32};
  } else if constexpr (std::is_same_v<F, Q3_K>) {
    int s = i / 16, low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
    return {float_of_f16(b.d) * float((low | (b.scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32), 0, 16};
  } else if constexpr (std::is_same_v<F, Q6_K>) {
    return {float_of_f16(b.d) * float(b.scales[i / 16]), 0, 16};
  } else if constexpr (std::is_same_v<F, MXFP4>) {
    return {std::ldexp(1.0f, b.exponent - 128), 0, 32};
  } else {
    static_assert(std::is_same_v<F, NVFP4>);
    int byte = b.scale[i / 16], e = byte >> 3, m = byte & 7;
    return {e == 0 ? std::ldexp(float(m), -10) : std::ldexp(float(8 + m), e - 11), 0, 16};
  }
}

constexpr bool has_minimum(const char* name) {
  std::string_view n = name;
  return n == "Q4_1" || n == "Q5_1" || n == "Q2_K" || n == "Q4_K" || n == "Q5_K";
}

I8x32::Block random_activation(std::mt19937& rng) {
  I8x32::Block x{};
  for (int i = 0; i < 32; ++i) {
    x.code[i] = int8_t(int(rng() % 255) - 127);
    x.half_code_sum[i / 16] += x.code[i];
  }
  x.scale = std::uniform_real_distribution<float>(0.001f, 0.1f)(rng);
  x.code_sum = x.half_code_sum[0] + x.half_code_sum[1];
  x.sum = x.scale * float(x.code_sum);
  for (int h = 0; h < 2; ++h) x.half_sum[h] = x.scale * float(x.half_code_sum[h]);
  return x;
}

// One row times one activation row, part after part: docs/numbers.md, N1.
template <class F>
void add_by_definition(float& acc, const typename F::Block& b, const I8x32::Block* x) {
  float values[F::block_values];
  F::decode(b, values);
  for (int first = 0, width; first < F::block_values; first += width) {
    Part part = part_of<F>(b, first);
    width = part.width;
    const I8x32::Block& a = x[first / 32];
    int32_t sum = 0;
    for (int i = first; i < first + width; ++i) {
      double weight = part.scale == 0 ? 0 : (double(values[i]) + double(part.minimum)) / double(part.scale);
      sum += int32_t(std::lround(weight)) * a.code[i % 32];
    }
    acc = std::fma(float(sum), part.scale * a.scale, acc);
    if (has_minimum(F::name))
      acc = std::fma(-part.minimum, width == 32 ? a.sum : a.half_sum[first % 32 / 16], acc);
  }
}

template <class F>
requires std::is_same_v<typename F::Activation, F32>
void add_by_definition(float& acc, const typename F::Block& b, const float* x) {
  float value;
  F::decode(b, &value);
  acc = std::fma(value, *x, acc);
}

// A block whose f16 numbers have similar sizes, so that the codes can be read off the decoded values.
template <class F>
typename F::Block random_block_for_dot(std::mt19937& rng) {
  auto b = random_valid_block<F>(rng);
  for (size_t at : kHalves.at(F::name)) {
    uint16_t half = uint16_t(0x2000 | (rng() & 0x87ff));  // +-2^-7..2^-6
    std::memcpy(reinterpret_cast<char*>(&b) + at, &half, 2);
  }
  if constexpr (std::is_same_v<F, F32>) b = std::uniform_real_distribution<float>(-1, 1)(rng);
  if constexpr (std::is_same_v<F, BF16>) b = uint16_t(0x3e80 | (rng() & 0x80ff));
  return b;
}

template <class F, int M>
void expect_dot_by_definition(int blocks) {
  using A = typename F::Activation;
  constexpr int kPerBlock = F::block_values / A::block_values;
  std::mt19937 rng(6);
  std::vector<typename F::Tile> tiles;
  std::vector<typename F::Block> weights;  // [block][lane]
  for (int k = 0; k < blocks; ++k) {
    auto tile = random_bytes<typename F::Tile>(rng);
    for (int lane = 0; lane < kLanes; ++lane) {
      weights.push_back(random_block_for_dot<F>(rng));
      F::pack(weights.back(), tile, lane);
    }
    tiles.push_back(tile);
  }
  std::vector<typename A::Block> activations[M];
  for (auto& row : activations)
    for (int i = 0; i < blocks * kPerBlock; ++i) {
      if constexpr (std::is_same_v<A, I8x32>) row.push_back(random_activation(rng));
      if constexpr (std::is_same_v<A, F32>) row.push_back(std::uniform_real_distribution<float>(-1, 1)(rng));
    }

  Scalar::F acc[1][M], unpacked_acc[1][M];
  for (int m = 0; m < M; ++m) acc[0][m] = unpacked_acc[0][m] = Scalar::zero();
  for (int k = 0; k < blocks; ++k) {
    const typename F::Tile* tile[1] = {&tiles[size_t(k)]};
    for (int s = 0; s < kPerBlock; ++s) {
      typename A::Block x[M];
      for (int m = 0; m < M; ++m) x[m] = activations[m][size_t(k * kPerBlock + s)];
      if constexpr (std::is_same_v<A, I8x32>) {
        add_products<Scalar, F>(acc, PackedTiles<Scalar, F, 1>{{tile[0]}}, s, x);
        Unpacked<Scalar, F> unpacked;
        unpacked.unpack(*tile[0], s, 5);
        add_products<Scalar, F>(unpacked_acc, UnpackedTiles<Scalar, F, 1>{&unpacked}, 5, x);
      } else {
        add_products<Scalar, F, 1, M>(acc, tile, x);
        add_products<Scalar, F, 1, M>(unpacked_acc, tile, x);
      }
    }
  }
  EXPECT_EQ(std::memcmp(acc, unpacked_acc, sizeof acc), 0);
  for (int m = 0; m < M; ++m)
    for (int lane = 0; lane < kLanes; ++lane) {
      float want = 0;
      for (int k = 0; k < blocks; ++k)
        add_by_definition<F>(want, weights[size_t(k * kLanes + lane)], activations[m].data() + k * kPerBlock);
      EXPECT_EQ(std::bit_cast<uint32_t>(acc[0][m].v[lane]), std::bit_cast<uint32_t>(want))
          << "row " << lane << ", activation row " << m << " of " << M << ": " << acc[0][m].v[lane] << " for "
          << want;
    }
}

TEST(Formats, DotFollowsItsDefinitionForEveryM) {
  each_weight_format([]<class F>() {
    int blocks = F::block_values == 1 ? 100 : 3;
    expect_dot_by_definition<F, 1>(blocks);
    expect_dot_by_definition<F, 2>(blocks);
    expect_dot_by_definition<F, 3>(blocks);
    expect_dot_by_definition<F, 4>(blocks);
    expect_dot_by_definition<F, 8>(blocks);
  });
}

}  // namespace
}  // namespace invar
