// The operations that models are made of, one virtual call for a whole operation, never for a row.  Shapes
// are (rows, columns); `rows` are the rows of a pass unless said otherwise.  A device owns packed weights and
// the scratch of a step.  What a row gives never depends on the other rows of the call (docs/numbers.md).
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "base/result.h"
#include "device/operands.h"

namespace invar {

struct Product {
  const Linear* w;
  Tensor y;  // (rows, w->w.rows)
  Held held = Held::Ignored;
};

struct ExpertProduct {
  const Experts* w;
  Tensor y;  // (rows * k, w->rows): row r * k + i is the i-th choice of row r
  Held held = Held::Ignored;
};

struct BadValue {  // a NaN or an infinity found while packing
  int64_t row, block;
};

// Fills `to` with what starts at `first`; several threads call it at once.
using ReadAt = std::function<Status(int64_t first, std::span<std::byte> to)>;

class Device {
 public:
  virtual ~Device() = default;

  // --- weights, once, at load ---
  virtual Weight allocate(Format format, int64_t rows, int64_t cols) = 0;
  // Packs rows [first_row, first_row + rows); first_row is a multiple of 16.  `blocks` reads them as they
  // stand in a file, from the byte `first` behind the beginning of first_row on.
  virtual Result<std::optional<BadValue>> pack(const Weight& w, int64_t first_row, int64_t rows,
                                               const ReadAt& blocks) = 0;
  // The packed bytes, to be kept; and the other way: bytes that were kept, which outlive the device.
  virtual std::span<const std::byte> packed(const Weight& w) const = 0;
  virtual void adopt(Weight& w, std::span<const std::byte> packed) = 0;
  virtual float* allocate_floats(int64_t n) = 0;
  virtual int64_t weight_bytes() const = 0;  // allocated so far

  // --- one step ---
  virtual void begin_step() = 0;                           // frees the scratch of the step before
  virtual Tensor scratch(int64_t rows, int64_t cols) = 0;  // lives until its Scope, or the step, ends
  virtual Routing routing(int64_t rows, int64_t k) = 0;    // likewise
  virtual int64_t mark() const = 0;                        // what Scope needs
  virtual void release(int64_t mark) = 0;

  virtual void embed(const Weight& table, float scale, std::span<const Token> tokens, Tensor y) = 0;
  virtual void rms_norm(Tensor x, const float* gain, float eps, Tensor y) = 0;  // y may be x
  // Each product's v = x w' + bias goes to its y as `held` says.  Products with one y follow each other.
  virtual void matmul(Tensor x, std::span<const Product> products) = 0;
  virtual void add(Tensor x, Tensor y) = 0;  // y += x
  virtual void gather(Tensor x, std::span<const int> rows, Tensor y) = 0;
  virtual void sigmoid_gate(Tensor gate, Tensor y) = 0;  // y *= sigmoid(gate)

  // y (rows, 2 * pairs): cosines, then sines, of position * frequency[i], in fp64 and rounded once.
  virtual void angles(std::span<const int64_t> positions, std::span<const double> frequencies, Tensor y) = 0;
  // x: (rows, heads * step); the first 2 * pairs of each head turn by the angles of cos_sin (rows, 2 *
  // pairs): cosines, then sines.  halves: pairs are (i, i + pairs), else (2i, 2i + 1).
  virtual void rope(Tensor x, int64_t heads, int64_t step, Tensor cos_sin, bool halves) = 0;

  // k, v: (rows, kv_heads * dim), of consecutive positions of span.rows rows, into the pages.
  virtual void store_kv(Tensor k, Tensor v, int64_t kv_heads, std::span<const Span> spans,
                        std::span<const PageView> pages) = 0;
  // q: (rows, heads * step), head h at column h * step; y: (rows, heads * dim).  Query head h reads KV head
  // h / (heads / kv_heads).  Keys of this pass are stored already.
  virtual void attend(Tensor q, int64_t heads, int64_t step, int64_t kv_heads, int64_t dim, float scale,
                      std::span<const Span> spans, std::span<const PageView> pages, Tensor y) = 0;

  // x, y: (rows, channels); weight [taps][channels]; y = silu(convolution).
  virtual void conv(Tensor x, const float* weight, int64_t taps, std::span<const Span> spans,
                    std::span<const FixedView> states, Tensor y) = 0;
  // Each head of x (rows, heads * dim) to length scale.
  virtual void l2_norm(Tensor x, int64_t heads, float eps, float scale) = 0;
  // alpha -> exp(a softplus(alpha + dt)), beta -> sigmoid(beta): (rows, heads).
  virtual void delta_gates(Tensor alpha, Tensor beta, const float* a, const float* dt) = 0;
  // The gated delta rule: q, k (rows, key_heads * key_dim), v, y (rows, heads * value_dim), decay, beta
  // (rows, heads); value head h reads key head h mod key_heads.
  virtual void delta(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, int64_t key_heads,
                     std::span<const Span> spans, std::span<const FixedView> states, Tensor y) = 0;
  // y = rms_norm(x, gain) * silu(z)
  virtual void gated_rms_norm(Tensor x, Tensor z, const float* gain, float eps, Tensor y) = 0;

  // The k largest softmax probabilities of each row, equal ones by lower expert id, renormalized to sum 1.
  virtual void route(Tensor scores, Routing routing) = 0;
  // x: (rows, cols), or (rows * k, cols) when x.rows is that.
  virtual void matmul_experts(Tensor x, const Routing& routing, std::span<const ExpertProduct> products) = 0;
  // y = sum of weight_i * x[r * k + i] in rank order from 0, then + sigmoid(gate) * shared where given.
  virtual void combine(Tensor x, const Routing& routing, Tensor shared, Tensor gate, Tensor y) = 0;
};

// Frees the scratch taken during its life: each layer has one.
class Scope {
 public:
  explicit Scope(Device& device) : device_(device), mark_(device.mark()) {}
  ~Scope() { device_.release(mark_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Device& device_;
  int64_t mark_;
};

}  // namespace invar
