// Tier against tier, bit by bit, for every kernel, format and odd shape.
#include "device/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "device/cpu/tiers.h"

namespace invar::cpu {
namespace {

std::vector<float> gaussian(size_t n, uint32_t seed, float width = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(0, width);
  std::vector<float> v(n);
  for (float& x : v) x = draw(rng);
  return v;
}

// Outputs of `rows` activation rows by a random weight of format F; what y holds before is gaussian(n, 10).
template <class F>
std::vector<float> product(const KernelTable& t, int64_t outs, int64_t cols, int64_t rows, bool bias,
                           float scale, Held held) {
  const int64_t blocks = cols / F::block_values, tile_rows = (outs + kLanes - 1) / kLanes;
  std::vector<typename F::Tile> tiles(size_t(tile_rows * blocks));
  std::memset(static_cast<void*>(tiles.data()), 0, tiles.size() * sizeof(tiles[0]));
  auto values = gaussian(size_t(outs * cols), 7);
  for (int64_t r = 0; r < outs; ++r)
    for (int64_t b = 0; b < blocks; ++b) {
      typename F::Block block;
      F::encode(&values[size_t(r * cols + b * F::block_values)], block);
      F::pack(block, tiles[size_t(r / kLanes * blocks + b)], int(r % kLanes));
    }
  auto x = gaussian(size_t(rows * cols), 8);
  std::vector<I8x32::Block> packed(size_t(rows * cols / 32));
  std::vector<float> panel(x.size());
  std::vector<float*> out;
  std::vector<float> y(size_t(rows * outs), NAN), add = gaussian(size_t(outs), 9);
  if (held != Held::Ignored) y = gaussian(y.size(), 10);
  for (int64_t r = 0; r < rows; ++r) {
    t.pack_i8x32(&x[size_t(r * cols)], &packed[size_t(r)], cols, rows);
    for (int64_t k = 0; k < cols; ++k) panel[size_t(k * rows + r)] = x[size_t(r * cols + k)];
    out.push_back(&y[size_t(r * outs)]);
  }
  constexpr bool kFloats = std::is_same_v<typename F::Activation, F32>;
  const void* in = kFloats ? static_cast<const void*>(panel.data()) : packed.data();
  t.matmul[int(format_of<F>)]({reinterpret_cast<const std::byte*>(tiles.data()),
                               blocks * int64_t(sizeof(typename F::Tile)), outs, blocks, in, out.data(), rows,
                               bias ? add.data() : nullptr, scale, held});
  return y;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST(Kernels, MatmulTiersAndRowsGiveTheSameBits) {
  AllFormats::each([]<class F>() {
    if constexpr (F::gguf_id >= 0) {
      const int64_t cols = F::block_values == 256 ? 768 : 704;  // not always a multiple of 256
      for (int64_t outs : {1, 16, 37, 64, 100})
        for (Held held : {Held::Ignored, Held::Added, Held::Gate}) {
          const bool bias = held != Held::Ignored;
          auto all = product<F>(scalar_kernels(), outs, cols, kPanelRows, bias, bias ? 0.37f : 1, held);
          for (const KernelTable* t : available_tiers())
            for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 13, 23, 96}) {
              auto some = product<F>(*t, outs, cols, rows, bias, bias ? 0.37f : 1, held);
              EXPECT_TRUE(std::memcmp(some.data(), all.data(), some.size() * 4) == 0)
                  << F::name << " " << t->tier << " outs " << outs << " rows " << rows;
            }
        }
    }
  });
}

TEST(Kernels, AProductIsAddedToWhatYHoldsOrGatedByIt) {
  for (const KernelTable* t : available_tiers()) {
    auto of = [&](Held held) { return product<Q4_K>(*t, 37, 256, 3, true, 0.5f, held); };
    const auto value = of(Held::Ignored), sum = of(Held::Added), gated = of(Held::Gate);
    const auto before = gaussian(value.size(), 10);
    for (size_t i = 0; i < value.size(); ++i) {
      EXPECT_EQ(sum[i], before[i] + value[i]);
      const double silu = before[i] / (1 + std::exp(-double(before[i])));
      EXPECT_NEAR(gated[i], silu * value[i], 1e-6 * std::fabs(silu * value[i])) << t->tier;
    }
  }
}

TEST(Kernels, ActivationPackingIsWithinHalfAStepAndSumsAreRight) {
  auto x = gaussian(512, 3);
  x[40] = 100;
  for (int i = 64; i < 96; ++i) x[size_t(i)] = 1e-33f;  // below 2^-100: zeros
  std::vector<I8x32::Block> blocks(16);
  scalar_kernels().pack_i8x32(x.data(), blocks.data(), 512, 1);
  for (int b = 0; b < 16; ++b) {
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
      float value = x[size_t(32 * b + i)];
      EXPECT_LE(std::fabs(blocks[size_t(b)].scale * blocks[size_t(b)].code[i] - value),
                blocks[size_t(b)].scale * 0.501f + 1e-30f);
      sum += blocks[size_t(b)].code[i];
    }
    EXPECT_EQ(sum, blocks[size_t(b)].code_sum);
    EXPECT_EQ(blocks[size_t(b)].code_sum,
              blocks[size_t(b)].half_code_sum[0] + blocks[size_t(b)].half_code_sum[1]);
  }
  EXPECT_EQ(blocks[2].scale, 0);
  EXPECT_EQ(blocks[2].code[5], 0);
}

TEST(Kernels, RowTiersGiveTheSameBits) {
  for (int64_t n : {1, 5, 16, 33, 256, 1000}) {
    auto x = gaussian(size_t(n), 1, 3), z = gaussian(size_t(n), 2, 8), gain = gaussian(size_t(n), 3);
    auto run = [&](const KernelTable& t) {
      std::vector<float> all;
      auto keep = [&](const std::vector<float>& v) { all.insert(all.end(), v.begin(), v.end()); };
      std::vector<float> y(size_t(n), 0);
      t.rms_norm(x.data(), gain.data(), 1e-6f, y.data(), n), keep(y);
      t.gated_rms_norm(x.data(), z.data(), gain.data(), 1e-6f, y.data(), n), keep(y);
      t.l2_norm(y.data(), 1e-6f, 0.125f, n), keep(y);
      t.add(x.data(), y.data(), n), keep(y);
      t.sigmoid_gate(z.data(), y.data(), n), keep(y);
      t.multiply_add(0.3f, x.data(), y.data(), n), keep(y);
      t.softmax(z.data(), y.data(), n), keep(y);
      y = z, t.sigmoid(y.data(), n), keep(y);
      auto alpha = x, beta = z;
      t.delta_gates(alpha.data(), beta.data(), gain.data(), z.data(), n), keep(alpha), keep(beta);
      if (n % 2 == 0)
        for (bool halves : {false, true})
          y = x, t.rope(y.data(), z.data(), gain.data(), n / 2, halves), keep(y);
      return all;
    };
    auto want = run(scalar_kernels());
    for (const KernelTable* t : available_tiers())
      EXPECT_TRUE(same_bits(run(*t), want)) << t->tier << " " << n;
  }
}

TEST(Kernels, SoftmaxSumsToOneAndOrders) {
  std::vector<float> x = {1, 3, 2, -50, 3}, y(5);
  scalar_kernels().softmax(x.data(), y.data(), 5);
  EXPECT_NEAR(y[0] + y[1] + y[2] + y[3] + y[4], 1, 1e-6);
  EXPECT_EQ(y[1], y[4]);
  EXPECT_NEAR(y[1] / y[2], std::exp(1.0), 1e-5);
}

TEST(Kernels, RecurrentTiersAndPiecesGiveTheSameBits) {
  const int64_t rows = 9, dim = 32, wide = 96, heads = 1, taps = 4, channels = 37;
  auto q = gaussian(rows * dim, 1), k = gaussian(rows * dim, 2, 0.2f), v = gaussian(rows * wide, 3);
  std::vector<float> decay(rows, 0.9f), beta(rows, 0.5f);
  auto x = gaussian(rows * channels, 5), weight = gaussian(taps * channels, 6);
  auto run = [&](const KernelTable& t, std::vector<int64_t> pieces) {
    std::vector<float> s(dim * wide, 0), y(rows * wide), c((taps - 1) * channels, 0), z(rows * channels);
    int64_t at = 0;
    for (int64_t n : pieces) {
      for (int64_t first : {0, 64}) {  // a strip of 64 columns and one of 32
        int64_t vat = at * wide + first;
        t.delta({n, dim, first ? 32 : 64, &q[size_t(at * dim)], &k[size_t(at * dim)], &v[size_t(vat)],
                 &decay[size_t(at)], &beta[size_t(at)], dim, wide, heads, &s[size_t(first * dim)],
                 &y[size_t(vat)], wide});
      }
      t.conv({n, taps, channels, 0, channels, &x[size_t(at * channels)], channels, weight.data(), c.data(),
              &z[size_t(at * channels)], channels});
      at += n;
    }
    for (auto* more : {&y, &c, &z}) s.insert(s.end(), more->begin(), more->end());
    return s;
  };
  auto want = run(scalar_kernels(), {9});
  for (const KernelTable* t : available_tiers())
    for (auto pieces : {std::vector<int64_t>{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 1, 6}, {5, 4}})
      EXPECT_TRUE(same_bits(run(*t, pieces), want)) << t->tier << " in " << pieces.size() << " pieces";
}

struct Keys {
  int64_t kv_heads = 2, dim = 48, positions;
  std::vector<std::vector<std::byte>> store;
  std::vector<std::byte*> pages;
};

Keys fill(const KernelTable& t, KvFormat format, int64_t positions) {
  Keys k;
  k.positions = positions;
  int64_t bytes = 2 * k.kv_heads * k.dim * kPagePositions * (format == KvFormat::F32 ? 4 : 2);
  for (int64_t p = 0; p < positions; p += kPagePositions) {
    k.store.emplace_back(size_t(bytes), std::byte{0xff});  // NaN wherever nothing was stored
    k.pages.push_back(k.store.back().data());
  }
  auto rows = gaussian(size_t(k.kv_heads * k.dim * 2), 11);
  for (int64_t p = 0; p < positions; ++p) {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(float(p) * 0.1f + float(i));
    t.store_kv[int(format)](rows.data(), rows.data() + k.kv_heads * k.dim,
                            k.pages[size_t(p / kPagePositions)], k.kv_heads, k.dim, p % kPagePositions);
  }
  return k;
}

std::vector<float> attend(const KernelTable& t, KvFormat format, const Keys& k,
                          std::vector<int64_t> positions, bool whole) {
  auto q = gaussian(positions.size() * size_t(k.dim), 12);
  std::vector<float> out(positions.size() * size_t(k.dim));
  int64_t last = *std::max_element(positions.begin(), positions.end());
  std::vector<std::vector<float>> parts;
  int64_t segments = last / 4096 + 1;
  for (int64_t s = 0; s < (whole ? 1 : segments); ++s) {
    parts.emplace_back(positions.size() * size_t(k.dim + 2));
    AttendArgs a{k.pages.data(),           0, 1, k.kv_heads, k.dim, 0.2f, int(positions.size()), {}, {}, s,
                 whole ? segments : s + 1, {}};
    for (size_t i = 0; i < positions.size(); ++i) {
      a.q[i] = &q[i * size_t(k.dim)];
      a.position[i] = positions[i];
      a.part[i] = &parts.back()[i * size_t(k.dim + 2)];
    }
    t.attend[int(format)](a);
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    float* first = &parts[0][i * size_t(k.dim + 2)];
    for (size_t s = 1; s < parts.size(); ++s)
      if (positions[i] >= int64_t(s) * 4096) t.merge(first, &parts[s][i * size_t(k.dim + 2)], k.dim);
    t.finish(first, &out[i * size_t(k.dim)], k.dim);
  }
  return out;
}

TEST(Kernels, AttentionDoesNotDependOnCompanySegmentsOrTier) {
  for (KvFormat format : {KvFormat::F16, KvFormat::BF16, KvFormat::F32}) {
    Keys k = fill(scalar_kernels(), format, 4400);
    for (const KernelTable* t : available_tiers()) {
      for (int64_t p : {0, 15, 63, 64, 255, 256, 300, 4095, 4096, 4350}) {
        auto alone = attend(scalar_kernels(), format, k, {p}, true);
        for (int64_t companion : {int64_t(0), p + 7, int64_t(4399)})
          for (bool whole : {true, false}) {
            auto both = attend(*t, format, k, {p, companion, companion, p + 1, 3}, whole);
            EXPECT_TRUE(std::memcmp(both.data(), alone.data(), alone.size() * 4) == 0)
                << t->tier << " at " << p << " beside " << companion << (whole ? " whole" : " by segment");
          }
        std::vector<int64_t> crowd(kMaxQueries);  // groups of queries, some of which see less or more
        for (size_t i = 0; i < crowd.size(); ++i) crowd[i] = (p + int64_t(i) * 5) % 4400;
        crowd[0] = p;
        auto all = attend(*t, format, k, crowd, true);
        EXPECT_TRUE(std::memcmp(all.data(), alone.data(), alone.size() * 4) == 0) << t->tier << " at " << p;
        EXPECT_TRUE(same_bits(all, attend(scalar_kernels(), format, k, crowd, false)))
            << t->tier << " at " << p;
      }
    }
  }
}

TEST(Kernels, AttentionIsSoftmaxOfScores) {
  Keys k = fill(scalar_kernels(), KvFormat::F32, 600);
  auto got = attend(scalar_kernels(), KvFormat::F32, k, {599}, true);
  auto q = gaussian(size_t(k.dim), 12);
  std::vector<double> score(600), sum(size_t(k.dim), 0);
  double total = 0;
  auto key = [&](int64_t p, int64_t d) { return double(std::sin(float(p) * 0.1f + float(k.dim + d))); };
  auto value = [&](int64_t p, int64_t d) { return double(std::sin(float(p) * 0.1f + float(3 * k.dim + d))); };
  for (int64_t p = 0; p < 600; ++p) {
    double s = 0;
    for (int64_t d = 0; d < k.dim; ++d) s += double(q[size_t(d)]) * key(p, d);
    score[size_t(p)] = std::exp(s * 0.2);
    total += score[size_t(p)];
    for (int64_t d = 0; d < k.dim; ++d) sum[size_t(d)] += score[size_t(p)] * value(p, d);
  }
  for (int64_t d = 0; d < k.dim; ++d) EXPECT_NEAR(got[size_t(d)], sum[size_t(d)] / total, 2e-6);
}

}  // namespace
}  // namespace invar::cpu
