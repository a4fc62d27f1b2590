// A device around another one, that keeps the time and the bytes of each operation.  Bytes are those that the
// operation must read and write of weights and state; activations stay in the caches and are not counted.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace invar {

struct OperationCost {
  int64_t calls = 0, rows = 0, bytes = 0;
  double seconds = 0;
  double waited = 0;  // seconds from when the first thread had nothing left to do
};

class TimedDevice final : public Device {
 public:
  // `threads`: the inner device's, if it has some.
  explicit TimedDevice(Device& inner, const ThreadPool* threads = nullptr)
      : inner_(inner), threads_(threads) {}

  // By name; products are named by format and shape.
  const std::map<std::string, OperationCost>& costs() const { return costs_; }
  void clear() { costs_.clear(); }

  Weight allocate(Format format, int64_t rows, int64_t cols) override {
    return inner_.allocate(format, rows, cols);
  }
  Result<std::optional<BadValue>> pack(const Weight& w, int64_t first_row, int64_t rows,
                                       const ReadAt& blocks) override {
    return inner_.pack(w, first_row, rows, blocks);
  }
  std::span<const std::byte> packed(const Weight& w) const override { return inner_.packed(w); }
  void adopt(Weight& w, std::span<const std::byte> packed) override { inner_.adopt(w, packed); }
  float* allocate_floats(int64_t n) override { return inner_.allocate_floats(n); }
  int64_t weight_bytes() const override { return inner_.weight_bytes(); }
  void begin_step() override { inner_.begin_step(); }
  Tensor scratch(int64_t rows, int64_t cols) override { return inner_.scratch(rows, cols); }
  Routing routing(int64_t rows, int64_t k) override { return inner_.routing(rows, k); }
  int64_t mark() const override { return inner_.mark(); }
  void release(int64_t mark) override { inner_.release(mark); }

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
  template <class Call>
  void time(const std::string& name, int64_t rows, int64_t bytes, Call call) {
    const double waited = waited_seconds(), start = steady_seconds();
    call();
    const double took = steady_seconds() - start;
    OperationCost& cost = costs_[name];
    ++cost.calls;
    cost.rows += rows;
    cost.bytes += bytes;
    cost.seconds += took;
    cost.waited += waited_seconds() - waited;
  }
  double waited_seconds() const { return threads_ ? threads_->waited_seconds() : 0; }

  Device& inner_;
  const ThreadPool* threads_;
  std::map<std::string, OperationCost> costs_;
};

}  // namespace invar
