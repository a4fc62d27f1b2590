// The kernels that take a step's time, for each tier and format.  Products of a weight and M activation rows:
// the weight is larger than the caches, so M = 1 shows how near reading comes to the speed of memory, and
// larger M what a row more costs.  Attention of M queries over 16,384 positions; the delta rule of one head
// over M rows.
#include <array>
#include <benchmark/benchmark.h>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/cpu/tiers.h"

namespace invar::cpu {
namespace {

constexpr int64_t kCols = 4096, kWeightBytes = int64_t(128) << 20;
constexpr int kRows[] = {1, 2, 4, 8, 32, 96};

std::vector<float> noise(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); i += 4) {
    const Philox4 bits = philox({uint32_t(i), 0, 0, 0}, {seed, 0});
    for (size_t j = 0; j < 4; ++j) values[i + j] = float(int32_t(bits[j])) * 0x1p-31f;
  }
  return values;
}

// Tile rows that repeat one random tile row: the kernels' time does not depend on the values.
template <class F>
std::vector<typename F::Tile> tiles_of(int64_t tile_rows) {
  const int64_t blocks = kCols / F::block_values;
  std::vector<typename F::Tile> tiles(size_t(tile_rows * blocks));
  const std::vector<float> values = noise(kCols * kLanes, 1);
  for (int64_t b = 0; b < blocks; ++b)
    for (int lane = 0; lane < kLanes; ++lane) {
      typename F::Block block;
      F::encode(&values[size_t(lane * kCols + b * F::block_values)], block);
      F::pack(block, tiles[size_t(b)], lane);
    }
  for (int64_t r = 1; r < tile_rows; ++r)
    std::memcpy(static_cast<void*>(&tiles[size_t(r * blocks)]), tiles.data(),
                size_t(blocks) * sizeof(tiles[0]));
  return tiles;
}

template <class F>
void matmul(benchmark::State& state, const KernelTable* tier) {
  const int64_t rows = state.range(0),
                row_bytes = kCols / F::block_values * int64_t(sizeof(typename F::Tile));
  const int64_t tile_rows = kWeightBytes / row_bytes, outs = tile_rows * kLanes;
  const std::vector<typename F::Tile> tiles = tiles_of<F>(tile_rows);
  const std::vector<float> x = noise(rows * kCols, 2);
  std::vector<I8x32::Block> packed(size_t(rows * kCols / 32));
  std::vector<float> y(size_t(rows * outs));
  std::vector<float*> out;
  for (int64_t r = 0; r < rows; ++r) {
    tier->pack_i8x32(&x[size_t(r * kCols)], &packed[size_t(r)], kCols, rows);
    out.push_back(&y[size_t(r * outs)]);
  }
  // The order of floats in a panel does not change the time.
  constexpr bool kFloats = std::is_same_v<typename F::Activation, F32>;
  const void* in = kFloats ? static_cast<const void*>(x.data()) : packed.data();
  const MatmulArgs args{reinterpret_cast<const std::byte*>(tiles.data()),
                        row_bytes,
                        outs,
                        kCols / F::block_values,
                        in,
                        out.data(),
                        rows,
                        nullptr,
                        1};
  for (auto _ : state) {
    tier->matmul[int(format_of<F>)](args);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * tile_rows * row_bytes);
  state.counters["macs"] = benchmark::Counter(double(state.iterations()) * double(rows * outs * kCols),
                                              benchmark::Counter::kIsRate);
}

// M queries that share a KV head of 256 features and see all positions.
void attend(benchmark::State& state, const KernelTable* tier, KvFormat format) {
  constexpr int64_t kDim = 256, kPositions = 16384;
  const int n = int(state.range(0));
  const int64_t value_bytes = format == KvFormat::F32 ? 4 : 2, page = 2 * kDim * kPagePositions * value_bytes;
  std::vector<std::byte> store(size_t(kPositions / kPagePositions * page));
  std::vector<std::byte*> pages;
  for (int64_t p = 0; p < kPositions; p += kPagePositions)
    pages.push_back(&store[size_t(p / kPagePositions * page)]);
  const std::vector<float> q = noise(n * kDim, 1), kv = noise(2 * kDim, 2);
  for (int64_t p = 0; p < kPositions; ++p)
    tier->store_kv[int(format)](kv.data(), &kv[kDim], pages[size_t(p / kPagePositions)], 1, kDim,
                                p % kPagePositions);
  std::vector<float> parts(size_t(n * (2 + kDim)));
  AttendArgs args{};
  args.pages = pages.data();
  args.kv_heads = 1;
  args.dim = kDim;
  args.scale = 0.0625f;
  args.n = n;
  args.end_segment = kPositions / 4096;
  for (int i = 0; i < n; ++i) {
    args.q[i] = &q[size_t(i * kDim)];
    args.position[i] = kPositions - 1;
    args.part[i] = &parts[size_t(i * (2 + kDim))];
  }
  for (auto _ : state) {
    tier->attend[int(format)](args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * int64_t(store.size()));
  state.counters["flops"] = benchmark::Counter(
      double(state.iterations()) * double(n) * double(kPositions * kDim) * 4, benchmark::Counter::kIsRate);
}

// M rows of one head, 128 features, column strip after column strip.
void delta(benchmark::State& state, const KernelTable* tier) {
  constexpr int64_t kDim = 128;
  const int64_t rows = state.range(0);
  const std::vector<float> x = noise(3 * rows * kDim, 1), gates(size_t(rows), 0.5f);
  std::vector<float> s(size_t(kDim * kDim)), y(size_t(rows * kDim));
  for (auto _ : state) {
    for (int64_t c = 0; c < kDim; c += kStateStrip)
      tier->delta({rows, kDim, kStateStrip, &x[0], &x[size_t(rows * kDim)], &x[size_t(2 * rows * kDim + c)],
                   gates.data(), gates.data(), kDim, kDim, 1, &s[size_t(c * kDim)], &y[size_t(c)], kDim});
    benchmark::ClobberMemory();
  }
  state.counters["flops"] = benchmark::Counter(double(state.iterations()) * double(rows * kDim * kDim) * 7,
                                               benchmark::Counter::kIsRate);
}

void register_all() {
  constexpr std::pair<const char*, KvFormat> kKv[] = {
      {"F16", KvFormat::F16}, {"BF16", KvFormat::BF16}, {"F32", KvFormat::F32}};
  for (const KernelTable* tier : available_tiers()) {
    for (auto [name, format] : kKv) {
      auto* b = benchmark::RegisterBenchmark((std::string("attend/") + tier->tier + "/" + name).c_str(),
                                             attend, tier, format);
      for (int n : {1, 4, 8, 32, kMaxQueries}) b->Arg(n);
      b->Unit(benchmark::kMillisecond);
    }
    auto* d = benchmark::RegisterBenchmark((std::string("delta/") + tier->tier).c_str(), delta, tier);
    for (int rows : kRows) d->Arg(rows);
    d->Unit(benchmark::kMicrosecond);
    AllFormats::each([&]<class F>() {
      if constexpr (F::gguf_id >= 0) {
        auto* b = benchmark::RegisterBenchmark((std::string("matmul/") + tier->tier + "/" + F::name).c_str(),
                                               matmul<F>, tier);
        for (int rows : kRows) b->Arg(rows);
        b->Unit(benchmark::kMillisecond);
      }
    });
  }
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  invar::cpu::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
