// What operations take: views of memory, never owners.  Weights are owned by the device, activations by the
// step's scratch, state by state/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/format.h"

namespace invar {

using Token = int32_t;

// Activations, fp32, row-major: rows x cols.  Heads are ranges of columns, or rows of a view with a smaller
// stride.
struct Tensor {
  float* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // floats from one row to the next

  float* row(int64_t r) const { return data + r * stride; }
  // The columns [first, first + n) of every row.
  Tensor columns(int64_t first, int64_t n) const { return {data + first, rows, n, stride}; }
  // The same columns, n floats further on.
  Tensor shifted(int64_t n) const { return {data + n, rows, cols, stride}; }
  // Each row cut into `heads` rows of `width` columns, `step` floats apart; rows must be heads * step floats
  // apart.
  Tensor heads(int64_t heads, int64_t width, int64_t step) const { return {data, rows * heads, width, step}; }
};

// A packed weight: tiles of 16 output rows (formats/format.h), tile row after tile row, each over all
// columns. The last tile row is filled up with zeros.
struct Weight {
  std::byte* tiles = nullptr;
  Format format = {};
  int64_t rows = 0, cols = 0;  // outputs, inputs
  int64_t tile_row_bytes = 0;
};

struct Linear {
  Weight w;
  const float* bias = nullptr;  // rows values, or none
  float scale = 1;              // multiplies the finished sum once (NVFP4's factor per tensor)
};

// What becomes of what y holds when a product v is written to it.
enum class Held : uint8_t { Ignored, Added, Gate };  // y = v, y += v, y = silu(y) * v

// The same matrix for n experts: expert e has the tile rows from e * tile_rows on; `rows` outputs each.
struct Experts {
  Weight w;  // rows = n * padded rows
  int64_t n = 0, rows = 0;
  const float* scale = nullptr;  // n factors, or none
};

// For each row of a pass the k chosen experts in rank order, and their weights: rows x k.
struct Routing {
  int64_t rows = 0, k = 0;
  int32_t* expert = nullptr;
  float* weight = nullptr;
};

// Consecutive rows of one sequence in a pass.
struct Span {
  int64_t first_row = 0, rows = 0;
  int64_t position = 0;  // of its first row
};

// How keys and values are stored.
enum class KvFormat : uint8_t { F16, BF16, F32 };

constexpr int64_t kPagePositions = 64;
constexpr int64_t kMaxHeadDim = 512;  // of attention heads, also a limit on what a file may ask for

// Keys and values of one layer and sequence.  pages[p / 64] holds, for 64 positions:
//   keys    [kv head][position / 16][dim][position % 16]     position = lane
//   values  [kv head][position][dim]
struct PageView {
  std::span<std::byte* const> pages;
  int64_t offset = 0;  // of this layer in a page
  KvFormat format = KvFormat::F16;
};

constexpr int64_t kStateStrip = 64;  // columns of a recurrent state that lie, and are computed, together

// The fixed states of one recurrent layer and sequence, fp32.  A head's state (key dim, value dim) lies strip
// after strip, so that a strip fills the sets of a cache evenly: at the stride of a whole row it would not
// stay in the first level.
struct FixedView {
  float* recurrent =
      nullptr;            // [value head][value dim / strip][key dim][strip]; a narrower strip may come last
  float* conv = nullptr;  // [taps - 1][channels], oldest first
};

}  // namespace invar
