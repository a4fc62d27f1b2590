// Products of a weight and M activation rows, for each tier and format: the weight is larger than the caches,
// so M = 1 shows how near reading comes to the speed of memory, and larger M what a row more costs.
#include <array>
#include <benchmark/benchmark.h>
#include <cstring>
#include <string>
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

void register_all() {
  for (const KernelTable* tier : available_tiers())
    AllFormats::each([&]<class F>() {
      if constexpr (F::gguf_id >= 0) {
        auto* b = benchmark::RegisterBenchmark((std::string("matmul/") + tier->tier + "/" + F::name).c_str(),
                                               matmul<F>, tier);
        for (int rows : kRows) b->Arg(rows);
        b->Unit(benchmark::kMillisecond);
      }
    });
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  invar::cpu::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
