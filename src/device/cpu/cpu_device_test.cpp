// Attention over many sequences in one call: each row gets what it gets alone, with any number of threads.
#include "device/cpu/cpu_device.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

namespace invar::cpu {
namespace {

constexpr int64_t kHeads = 6, kKvHeads = 2, kDim = 32;

float value(int64_t seed, int64_t row, int64_t i) {
  return std::sin(float(seed * 7 + row) * 0.1f + float(i));
}

struct Sequence {
  std::vector<std::vector<std::byte>> store;
  std::vector<std::byte*> pages;

  explicit Sequence(int64_t positions) {
    for (int64_t p = 0; p < positions; p += kPagePositions) {
      store.emplace_back(size_t(4 * kKvHeads * kDim * kPagePositions), std::byte{0xff});
      pages.push_back(store.back().data());
    }
  }
  PageView view() const { return {pages, 0, KvFormat::F16}; }
};

// The rows of each span; what a sequence stores and asks depends on its number and the position alone.
std::vector<std::vector<float>> answers(CpuDevice& device, std::vector<Sequence>& sequences,
                                        const std::vector<size_t>& which,
                                        const std::vector<std::pair<int64_t, int64_t>>& places,
                                        bool only_store = false) {
  std::vector<Span> spans;
  std::vector<PageView> pages;
  int64_t rows = 0;
  for (size_t s : which) {
    const auto [position, n] = places[s];
    spans.push_back({rows, n, position});
    pages.push_back(sequences[s].view());
    rows += n;
  }
  device.begin_step();
  Tensor q = device.scratch(rows, kHeads * kDim), k = device.scratch(rows, kKvHeads * kDim),
         v = device.scratch(rows, kKvHeads * kDim), y = device.scratch(rows, kHeads * kDim);
  for (size_t i = 0; i < which.size(); ++i)
    for (int64_t r = 0; r < spans[i].rows; ++r) {
      const auto seed = int64_t(which[i]), at = spans[i].position + r;
      for (int64_t c = 0; c < q.cols; ++c) q.row(spans[i].first_row + r)[c] = value(seed, at, c);
      for (int64_t c = 0; c < k.cols; ++c) {
        k.row(spans[i].first_row + r)[c] = value(seed + 50, at, c);
        v.row(spans[i].first_row + r)[c] = value(seed + 90, at, c);
      }
    }
  device.store_kv(k, v, kKvHeads, spans, pages);
  if (only_store) return {};
  device.attend(q, kHeads, kDim, kKvHeads, kDim, 0.2f, spans, pages, y);
  std::vector<std::vector<float>> all;
  for (const Span& span : spans) {
    all.emplace_back();
    for (int64_t r = 0; r < span.rows; ++r)
      all.back().insert(all.back().end(), y.row(span.first_row + r), y.row(span.first_row + r) + y.cols);
  }
  return all;
}

TEST(CpuDevice, AttentionOfManySequencesIsThatOfEach) {
  const std::vector<std::pair<int64_t, int64_t>> places = {
      // position and rows
      {0, 1}, {300, 1}, {4095, 1}, {4096, 1}, {9000, 1}, {4090, 12}, {100, 70}, {8191, 1}, {5000, 1}};
  std::vector<std::vector<float>> want;
  for (int threads : {1, 2, 5}) {
    CpuDevice device(scalar_kernels(), threads);
    ASSERT_TRUE(device.settle(64 << 20));
    std::vector<Sequence> sequences;
    for (size_t s = 0; s < places.size(); ++s) {
      sequences.emplace_back(places[s].first + places[s].second);
      std::vector<std::pair<int64_t, int64_t>> before(places.size(), {0, places[s].first});
      if (places[s].first > 0) answers(device, sequences, {s}, before, true);
    }
    std::vector<size_t> all;
    for (size_t s = 0; s < places.size(); ++s) {
      all.push_back(s);
      auto alone = answers(device, sequences, {s}, places)[0];
      if (want.size() == s) want.push_back(alone);
      EXPECT_EQ(alone, want[s]) << s << " alone, threads " << threads;
    }
    const std::vector<std::vector<size_t>> mixes = {all, {8, 7, 4, 1, 0}, {4, 6}, {6, 4, 5}, {3, 2}};
    for (const auto& mix : mixes) {
      const auto got = answers(device, sequences, mix, places);
      for (size_t i = 0; i < mix.size(); ++i)
        EXPECT_EQ(got[i], want[mix[i]]) << mix[i] << " among " << mix.size() << ", threads " << threads;
    }
  }
}

}  // namespace
}  // namespace invar::cpu
