#include "device/timed_device.h"

#include <algorithm>
#include <unordered_set>

#include "formats/all.h"

namespace invar {
namespace {

int64_t bytes_of(const Weight& w) { return (w.rows + kLanes - 1) / kLanes * w.tile_row_bytes; }

int64_t stored_bytes(KvFormat format) { return format == KvFormat::F32 ? 4 : 2; }

std::string shape_of(const Weight& w, int64_t rows) {
  return std::string(info(w.format).name) + " " + std::to_string(rows) + " x " + std::to_string(w.cols);
}

int64_t rows_of(std::span<const Span> spans) {
  int64_t rows = 0;
  for (const Span& s : spans) rows += s.rows;
  return rows;
}

}  // namespace

void TimedDevice::embed(const Weight& table, float scale, std::span<const Token> tokens, Tensor y) {
  const int64_t rows = int64_t(tokens.size());
  time("embed", rows, rows * table.tile_row_bytes / kLanes, [&] { inner_.embed(table, scale, tokens, y); });
}

void TimedDevice::rms_norm(Tensor x, const float* gain, float eps, Tensor y) {
  time("rms_norm", x.rows, 0, [&] { inner_.rms_norm(x, gain, eps, y); });
}

// The products of one input are one operation: its name lists them.
void TimedDevice::matmul(Tensor x, std::span<const Product> products) {
  std::string name = "matmul";
  int64_t bytes = 0;
  for (const Product& p : products) {
    name += (bytes > 0 ? " + " : " ") + shape_of(p.w->w, p.w->w.rows);
    bytes += bytes_of(p.w->w);
  }
  time(name, x.rows, bytes, [&] { inner_.matmul(x, products); });
}

void TimedDevice::add(Tensor x, Tensor y) {
  time("add", x.rows, 0, [&] { inner_.add(x, y); });
}

void TimedDevice::gather(Tensor x, std::span<const int> rows, Tensor y) {
  time("gather", int64_t(rows.size()), 0, [&] { inner_.gather(x, rows, y); });
}

void TimedDevice::sigmoid_gate(Tensor gate, Tensor y) {
  time("sigmoid_gate", y.rows, 0, [&] { inner_.sigmoid_gate(gate, y); });
}

void TimedDevice::angles(std::span<const int64_t> positions, std::span<const double> frequencies, Tensor y) {
  time("angles", y.rows, 0, [&] { inner_.angles(positions, frequencies, y); });
}

void TimedDevice::rope(Tensor x, int64_t heads, int64_t step, Tensor cos_sin, bool halves) {
  time("rope", x.rows, 0, [&] { inner_.rope(x, heads, step, cos_sin, halves); });
}

void TimedDevice::store_kv(Tensor k, Tensor v, int64_t kv_heads, std::span<const Span> spans,
                           std::span<const PageView> pages) {
  const int64_t bytes = k.rows * 2 * k.cols * (pages.empty() ? 0 : stored_bytes(pages[0].format));
  time("store_kv", k.rows, bytes, [&] { inner_.store_kv(k, v, kv_heads, spans, pages); });
}

// Keys and values up to the last row of each span, read once.
void TimedDevice::attend(Tensor q, int64_t heads, int64_t step, int64_t kv_heads, int64_t dim, float scale,
                         std::span<const Span> spans, std::span<const PageView> pages, Tensor y) {
  int64_t bytes = 0;
  for (size_t i = 0; i < spans.size(); ++i)
    bytes += (spans[i].position + spans[i].rows) * 2 * kv_heads * dim * stored_bytes(pages[i].format);
  time("attend", q.rows, bytes,
       [&] { inner_.attend(q, heads, step, kv_heads, dim, scale, spans, pages, y); });
}

void TimedDevice::conv(Tensor x, const float* weight, int64_t taps, std::span<const Span> spans,
                       std::span<const FixedView> states, Tensor y) {
  const int64_t state = 2 * (taps - 1) * x.cols * int64_t(spans.size());
  time("conv", rows_of(spans), (state + taps * x.cols) * int64_t(sizeof(float)),
       [&] { inner_.conv(x, weight, taps, spans, states, y); });
}

void TimedDevice::l2_norm(Tensor x, int64_t heads, float eps, float scale) {
  time("l2_norm", x.rows, 0, [&] { inner_.l2_norm(x, heads, eps, scale); });
}

void TimedDevice::delta_gates(Tensor alpha, Tensor beta, const float* a, const float* dt) {
  time("delta_gates", alpha.rows, 0, [&] { inner_.delta_gates(alpha, beta, a, dt); });
}

// The states, read and written once.
void TimedDevice::delta(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, int64_t key_heads,
                        std::span<const Span> spans, std::span<const FixedView> states, Tensor y) {
  const int64_t values = q.cols / key_heads * v.cols * int64_t(spans.size());
  time("delta", rows_of(spans), 2 * values * int64_t(sizeof(float)),
       [&] { inner_.delta(q, k, v, decay, beta, key_heads, spans, states, y); });
}

void TimedDevice::gated_rms_norm(Tensor x, Tensor z, const float* gain, float eps, Tensor y) {
  time("gated_rms_norm", x.rows, 0, [&] { inner_.gated_rms_norm(x, z, gain, eps, y); });
}

void TimedDevice::route(Tensor scores, Routing routing) {
  time("route", scores.rows, 0, [&] { inner_.route(scores, routing); });
}

// The weights of each chosen expert, read once.
void TimedDevice::matmul_experts(Tensor x, const Routing& routing, std::span<const ExpertProduct> products) {
  const int64_t chosen = routing.rows * routing.k;
  const int64_t distinct =
      int64_t(std::unordered_set<int32_t>(routing.expert, routing.expert + chosen).size());
  std::string name = "matmul_experts";
  int64_t bytes = 0;
  for (const ExpertProduct& p : products) {
    name += (bytes > 0 ? " + " : " ") + shape_of(p.w->w, p.w->rows);
    bytes += bytes_of(p.w->w) / p.w->n * distinct;
  }
  time(name, routing.rows, bytes, [&] { inner_.matmul_experts(x, routing, products); });
}

void TimedDevice::combine(Tensor x, const Routing& routing, Tensor shared, Tensor gate, Tensor y) {
  time("combine", y.rows, 0, [&] { inner_.combine(x, routing, shared, gate, y); });
}

}  // namespace invar
