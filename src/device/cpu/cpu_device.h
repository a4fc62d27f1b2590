// The CPU as a device: cuts each operation into pieces for the threads and calls the tier's kernels.  How it
// is cut changes speed only (docs/numbers.md, N2).  A new device is in planning: it counts weights and
// scratch, and computes nothing, until `settle`.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/arena.h"
#include "base/thread_pool.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

namespace invar::cpu {

class CpuDevice final : public Device {
 public:
  CpuDevice(const KernelTable& kernels, int threads) : kernels_(kernels), pool_(threads) {}

  // Ends planning: weights are allocated from now on, and steps have this much scratch.  False: no memory.
  bool settle(int64_t scratch_bytes);
  int64_t scratch_bytes() const { return arena_.most(); }  // the most that a step has needed so far
  void forget_scratch() { arena_.forget_most(); }
  ThreadPool& pool() { return pool_; }

  Weight allocate(Format format, int64_t rows, int64_t cols) override;
  Result<std::optional<BadValue>> pack(const Weight& w, int64_t first_row, int64_t rows,
                                       const ReadAt& blocks) override;
  std::span<const std::byte> packed(const Weight& w) const override;
  void adopt(Weight& w, std::span<const std::byte> packed) override;
  float* allocate_floats(int64_t n) override;
  int64_t weight_bytes() const override { return weights_.used() + vectors_.used(); }

  void begin_step() override { arena_.reset(); }
  Tensor scratch(int64_t rows, int64_t cols) override;
  Routing routing(int64_t rows, int64_t k) override;
  int64_t mark() const override { return arena_.used(); }
  void release(int64_t mark) override { arena_.rewind(mark); }

  void embed(const Weight& table, float scale, std::span<const Token> tokens, Tensor y) override;
  void rms_norm(Tensor x, const float* gain, float eps, Tensor y) override;
  void matmul(Tensor x, std::span<const Product> products) override;
  void add(Tensor x, Tensor y) override;
  void gather(Tensor x, std::span<const int> rows, Tensor y) override;
  void sigmoid_gate(Tensor gate, Tensor y) override;
  void angles(std::span<const int64_t> positions, std::span<const double> frequencies, Tensor y) override;
  void rope(Tensor x, int64_t heads, int64_t step, Tensor cos_sin, bool halves) override;
  void store_kv(Tensor k, Tensor v, int64_t kv_heads, std::span<const Span> spans,
                std::span<const PageView> pages) override;
  void attend(Tensor q, int64_t heads, int64_t step, int64_t kv_heads, int64_t dim, float scale,
              std::span<const Span> spans, std::span<const PageView> pages, Tensor y) override;
  void conv(Tensor x, const float* weight, int64_t taps, std::span<const Span> spans,
            std::span<const FixedView> states, Tensor y) override;
  void l2_norm(Tensor x, int64_t heads, float eps, float scale) override;
  void delta_gates(Tensor alpha, Tensor beta, const float* a, const float* dt) override;
  void delta(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, int64_t key_heads,
             std::span<const Span> spans, std::span<const FixedView> states, Tensor y) override;
  void gated_rms_norm(Tensor x, Tensor z, const float* gain, float eps, Tensor y) override;
  void route(Tensor scores, Routing routing) override;
  void matmul_experts(Tensor x, const Routing& routing, std::span<const ExpertProduct> products) override;
  void combine(Tensor x, const Routing& routing, Tensor shared, Tensor gate, Tensor y) override;

 private:
  // row(r) for each row; rows of `cols` values are grouped so that a piece is worth a hand-over.
  template <class Row>
  void for_rows(int64_t rows, int64_t cols, Row row);
  template <class Piece>
  void run(int64_t n, Piece piece);
  // Activation rows as a product wants them: panels of at most `height` rows, each m * row_bytes long, one
  // after the other; within a panel the first block of each row, then the second of each, and so on.
  struct Panels {
    std::byte* data = nullptr;
    int64_t rows = 0, height = 0, row_bytes = 0;

    int64_t count() const { return (rows + height - 1) / height; }
    int64_t first(int64_t panel) const { return panel * height; }
    int64_t rows_of(int64_t panel) const { return std::min(height, rows - first(panel)); }
    std::byte* at(int64_t panel) const { return data + first(panel) * row_bytes; }
    Panels part(int64_t begin, int64_t end) const {  // panels of its own over some of the rows
      return {data + begin * row_bytes, end - begin, height, row_bytes};
    }
  };
  struct Place {
    int64_t from;   // row of x
    Panels panels;  // those it goes to
    int64_t to;     // its row in them
  };
  int64_t panel_height(int64_t rows, int64_t cols) const;
  // place(panels, i) says where the i-th of `rows` rows comes from and goes to.
  template <class PlaceOf>
  Panels pack_panels(Tensor x, int64_t rows, int64_t height, Format activation, PlaceOf place);
  void multiply_tiles(const Product& product, const Panels& x, int64_t first_tile, int64_t end_tile) const;
  struct AttendTasks {          // of a span
    int64_t first, pieces;      // the first one; of each item
    int64_t split, first_part;  // the first item of those that are split, its first part
  };

  const KernelTable& kernels_;
  ThreadPool pool_;
  Arena weights_, vectors_;  // apart: weights that are adopted must not be touched by what lies between
  Arena arena_;
  std::vector<AttendTasks> attend_tasks_;  // of this call; kept for the next
  bool planning_ = true;
};

}  // namespace invar::cpu
