// The table of kernels that one tier fills.  Each entry works on plain rows and pointers, on one thread;
// cpu_device.cpp cuts operations into calls.  Every entry keeps docs/numbers.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/operands.h"
#include "formats/all.h"

namespace invar::cpu {

// Activation rows that go through a product together, at most kPanelRows, as a panel: the first block (of 32
// values, or one float) of each row, then the second of each, and so on.
constexpr int64_t kPanelRows = 96;

struct MatmulArgs {
  const std::byte* tiles;  // the first tile row of the piece
  int64_t tile_row_bytes;
  int64_t outs;     // outputs of the piece: its tile rows are (outs + 15) / 16
  int64_t blocks;   // tiles in a tile row
  const void* x;    // a panel of m rows, packed as the format wants them
  float* const* y;  // m output rows, at the piece's first output
  int64_t m;
  const float* bias;  // outs values, or null
  float scale;
  Held held = Held::Ignored;
};

constexpr int kMaxQueries = 64;

struct AttendArgs {
  const std::byte* const* pages;
  int64_t offset;  // of the layer in a page
  int64_t kv_head, kv_heads, dim;
  float scale;
  int n;                               // queries that share the KV head, at most kMaxQueries
  const float* q[kMaxQueries];         // dim values each
  int64_t position[kMaxQueries];       // keys 0..position are seen
  int64_t first_segment, end_segment;  // of 4096 positions; several are merged, ascending
  float* part[kMaxQueries];            // m, l, then dim sums: of one segment or of all merged
};

struct DeltaArgs {
  int64_t rows, key_dim;
  int64_t columns;                           // of the strip: a multiple of 16, at most kStateStrip
  const float *q, *k, *v, *decay, *beta;     // of the first row, at the head; v at the strip
  int64_t qk_stride, v_stride, gate_stride;  // floats from row to row
  float* state;                              // [key_dim][columns]
  float* y;                                  // of the first row, at the strip
  int64_t y_stride;
};

struct ConvArgs {
  int64_t rows, taps, channels;  // of the whole layer
  int64_t first, count;          // the channels of this call
  const float* x;                // (rows, channels)
  int64_t x_stride;
  const float* weight;  // [taps][channels], the last tap is the current row's
  float* state;         // [taps - 1][channels], oldest first
  float* y;
  int64_t y_stride;
};

constexpr int64_t kPeakSteps = 960;

struct KernelTable {
  const char* tier;
  void (*matmul[AllFormats::size])(const MatmulArgs&);
  void (*pack_i8x32)(const float* x, I8x32::Block* y, int64_t cols, int64_t step);  // blocks `step` apart
  void (*rms_norm)(const float* x, const float* gain, float eps, float* y, int64_t cols);
  void (*gated_rms_norm)(const float* x, const float* z, const float* gain, float eps, float* y,
                         int64_t cols);
  void (*l2_norm)(float* x, float eps, float scale, int64_t cols);
  void (*add)(const float* x, float* y, int64_t cols);                         // y += x
  void (*sigmoid_gate)(const float* gate, float* y, int64_t cols);             // y *= sigmoid(gate)
  void (*multiply_add)(float weight, const float* x, float* y, int64_t cols);  // y = fma(weight, x, y)
  // cos and sin: `pairs` values each; halves: pairs are (i, i + pairs), else (2i, 2i + 1).
  void (*rope)(float* x, const float* cos, const float* sin, int64_t pairs, bool halves);
  void (*store_kv[3])(const float* k, const float* v, std::byte* page, int64_t kv_heads, int64_t dim,
                      int64_t place);
  void (*attend[3])(const AttendArgs&);  // by KvFormat
  // Adds segment b to a: m, l, sums.
  void (*merge)(float* a, const float* b, int64_t dim);
  void (*finish)(const float* part, float* y, int64_t dim);  // sums / l
  void (*conv)(const ConvArgs&);
  void (*delta_gates)(float* alpha, float* beta, const float* a, const float* dt, int64_t heads);
  void (*delta)(const DeltaArgs&);
  void (*softmax)(const float* x, float* y, int64_t cols);
  void (*sigmoid)(float* x, int64_t cols);
  // What the arithmetic units give at best (device/cpu/peak.inl); 64 bytes, 32 values;
  // steps, of 64 multiply-adds of bytes or 16 of floats: a multiple of kPeakSteps.
  int32_t (*dot_peak)(const uint8_t* bytes, int64_t steps);
  float (*fma_peak)(const float* values, int64_t steps);
};

const KernelTable& scalar_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();

}  // namespace invar::cpu
