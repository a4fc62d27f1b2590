#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"

namespace invar::cpu {
namespace {

constexpr int64_t kPieceValues = 8192;  // elementwise work worth handing to another thread
constexpr int64_t kPiecesPerThread = 8, kProductPieces = 16;

constexpr int64_t kPieceBytes = 256 << 10;  // of a file, read and packed together
constexpr int64_t kFetchedAhead = 8192;     // bytes that kernels fetch behind the last weight

int64_t up(int64_t n, int64_t d) { return (n + d - 1) / d; }

// The span of a row: they are ascending, without gaps.
size_t span_of(std::span<const Span> spans, int64_t row) {
  auto after = std::upper_bound(spans.begin(), spans.end(), row,
                                [](int64_t r, const Span& span) { return r < span.first_row; });
  return size_t(after - spans.begin()) - 1;
}

// products[first] and those after it that write to the same y end here: a piece of y is computed by one
// thread.
template <class AnyProduct>
size_t end_of_y(std::span<const AnyProduct> products, size_t first) {
  size_t end = first + 1;
  while (end < products.size() && products[end].y.data == products[first].y.data) ++end;
  return end;
}

}  // namespace

bool CpuDevice::settle(int64_t scratch_bytes) {
  planning_ = false;
  const bool all = weights_.reserve(weights_.used() + kFetchedAhead) &&
                   vectors_.reserve(std::max<int64_t>(vectors_.used(), 4096)) &&
                   arena_.reserve(std::max<int64_t>(scratch_bytes, 4096));
  if (all) arena_.touch();
  return all;
}

Weight CpuDevice::allocate(Format format, int64_t rows, int64_t cols) {
  const FormatInfo& f = info(format);
  Weight w{nullptr, format, rows, cols, cols / f.block_values * f.tile_bytes};
  w.tiles = weights_.take<std::byte>(up(rows, kLanes) * w.tile_row_bytes);
  return w;
}

float* CpuDevice::allocate_floats(int64_t n) { return vectors_.take<float>(n); }

// Each thread reads and packs tile rows of its own, so reading and packing go on side by side.
Result<std::optional<BadValue>> CpuDevice::pack(const Weight& w, int64_t first_row, int64_t rows,
                                                const ReadAt& blocks) {
  CHECK(first_row % kLanes == 0 && first_row + rows <= up(w.rows, kLanes) * kLanes && !planning_);
  const FormatInfo& f = info(w.format);
  const int64_t n = w.cols / f.block_values, row_bytes = n * f.block_bytes;
  const int64_t group = up(kPieceBytes, kLanes * row_bytes) * kLanes, pieces = up(rows, group);
  std::vector<std::optional<BadValue>> bad(static_cast<size_t>(pieces));
  std::vector<Status> read(static_cast<size_t>(pieces), Ok{});
  pool_.run(pieces, [&](int64_t i) {
    const int64_t first = i * group, end = std::min(rows, first + group);
    std::vector<std::byte> bytes(size_t((end - first) * row_bytes));
    if (!(read[size_t(i)] = blocks(first * row_bytes, bytes))) return;
    with_format(w.format, [&]<class F>() {
      if constexpr (F::gguf_id >= 0)
        for (int64_t r = first; r < end; ++r) {
          auto* tiles =
              reinterpret_cast<typename F::Tile*>(w.tiles + (first_row + r) / kLanes * w.tile_row_bytes);
          for (int64_t b = 0; b < n; ++b) {
            typename F::Block block;
            std::memcpy(&block, &bytes[size_t((r - first) * n + b) * sizeof block], sizeof block);
            if (!F::finite(block) && !bad[size_t(i)]) bad[size_t(i)] = {first_row + r, b};
            F::pack(block, tiles[b], int(r % kLanes));
          }
        }
    });
  });
  for (Status& s : read) TRY(std::move(s));
  for (const auto& at : bad)
    if (at) return at;
  return std::optional<BadValue>();
}

std::span<const std::byte> CpuDevice::packed(const Weight& w) const {
  return {w.tiles, size_t(up(w.rows, kLanes) * w.tile_row_bytes)};
}

// What was allocated is never touched, so it takes no memory.
void CpuDevice::adopt(Weight& w, std::span<const std::byte> packed) {
  CHECK(packed.size() == this->packed(w).size());
  w.tiles = const_cast<std::byte*>(packed.data());  // tiles are only read from now on
}

Tensor CpuDevice::scratch(int64_t rows, int64_t cols) {
  int64_t stride = up(cols, kLanes) * kLanes;
  return {arena_.take<float>(rows * stride), rows, cols, stride};
}

Routing CpuDevice::routing(int64_t rows, int64_t k) {
  return {rows, k, arena_.take<int32_t>(rows * k), arena_.take<float>(rows * k)};
}

template <class Piece>
void CpuDevice::run(int64_t n, Piece piece) {
  if (!planning_) pool_.run(n, piece);
}

template <class Row>
void CpuDevice::for_rows(int64_t rows, int64_t cols, Row row) {
  int64_t pieces = std::clamp<int64_t>(rows * cols / kPieceValues, 1, pool_.threads() * kPiecesPerThread);
  int64_t group = up(rows, pieces);
  run(up(rows, group), [&](int64_t i) {
    for (int64_t r = i * group; r < std::min(rows, (i + 1) * group); ++r) row(r);
  });
}

void CpuDevice::embed(const Weight& table, float scale, std::span<const Token> tokens, Tensor y) {
  with_format(table.format, [&]<class F>() {
    if constexpr (F::gguf_id >= 0)
      for_rows(int64_t(tokens.size()), y.cols, [&](int64_t r) {
        int64_t token = tokens[size_t(r)];
        auto* tiles =
            reinterpret_cast<const typename F::Tile*>(table.tiles + token / kLanes * table.tile_row_bytes);
        float* out = y.row(r);
        for (int64_t b = 0; b < table.cols / F::block_values; ++b, out += F::block_values) {
          typename F::Block block;
          F::unpack(tiles[b], int(token % kLanes), block);
          F::decode(block, out);
        }
        if (scale != 1)
          for (int64_t i = 0; i < y.cols; ++i) y.row(r)[i] *= scale;
      });
  });
}

void CpuDevice::rms_norm(Tensor x, const float* gain, float eps, Tensor y) {
  for_rows(x.rows, x.cols, [&](int64_t r) { kernels_.rms_norm(x.row(r), gain, eps, y.row(r), x.cols); });
}

void CpuDevice::gated_rms_norm(Tensor x, Tensor z, const float* gain, float eps, Tensor y) {
  for_rows(x.rows, x.cols * 4,
           [&](int64_t r) { kernels_.gated_rms_norm(x.row(r), z.row(r), gain, eps, y.row(r), x.cols); });
}

void CpuDevice::l2_norm(Tensor x, int64_t heads, float eps, float scale) {
  const int64_t dim = x.cols / heads;
  for_rows(x.rows, x.cols, [&](int64_t r) {
    for (int64_t h = 0; h < heads; ++h) kernels_.l2_norm(x.row(r) + h * dim, eps, scale, dim);
  });
}

void CpuDevice::add(Tensor x, Tensor y) {
  for_rows(x.rows, x.cols, [&](int64_t r) { kernels_.add(x.row(r), y.row(r), x.cols); });
}

void CpuDevice::sigmoid_gate(Tensor gate, Tensor y) {
  for_rows(y.rows, y.cols * 4, [&](int64_t r) { kernels_.sigmoid_gate(gate.row(r), y.row(r), y.cols); });
}

void CpuDevice::gather(Tensor x, std::span<const int> rows, Tensor y) {
  for_rows(int64_t(rows.size()), x.cols,
           [&](int64_t r) { std::memcpy(y.row(r), x.row(rows[size_t(r)]), size_t(x.cols) * sizeof(float)); });
}

template <class PlaceOf>
CpuDevice::Panels CpuDevice::pack_panels(Tensor x, int64_t rows, int64_t height, Format activation,
                                         PlaceOf place) {
  const bool floats = activation == format_of<F32>;
  const int64_t blocks = floats ? x.cols : x.cols / 32;
  const int64_t block_bytes = floats ? int64_t(sizeof(float)) : int64_t(sizeof(I8x32::Block));
  const Panels all{arena_.take<std::byte>(rows * blocks * block_bytes), rows, height, blocks * block_bytes};
  for_rows(rows, x.cols, [&](int64_t i) {
    const auto [from, panels, row] = place(all, i);
    const int64_t panel = row / height, step = panels.rows_of(panel);
    std::byte* to = panels.at(panel) + row % height * block_bytes;
    if (!floats) return kernels_.pack_i8x32(x.row(from), reinterpret_cast<I8x32::Block*>(to), x.cols, step);
    auto* values = reinterpret_cast<float*>(to);
    for (int64_t k = 0; k < x.cols; ++k) values[k * step] = x.row(from)[k];
  });
  return all;
}

// Rows of a panel: so many that they stay in the second-level cache while the weights of a piece pass, in
// panels of about one size.
int64_t CpuDevice::panel_height(int64_t rows, int64_t cols) const {
  constexpr int64_t kCacheBytes = 1 << 20, kStep = 12;
  const int64_t fit = std::clamp(kCacheBytes / (cols * 2) / kStep * kStep, 2 * kStep, kPanelRows);
  return rows <= fit ? rows : up(up(rows, up(rows, fit)), kStep) * kStep;
}

void CpuDevice::matmul(Tensor x, std::span<const Product> products) {
  Scope scope(*this);
  Panels packed[AllFormats::size] = {};
  const int64_t height = panel_height(x.rows, x.cols);
  for (const Product& p : products) {
    CHECK(p.w->w.cols == x.cols && p.y.cols == p.w->w.rows && p.y.rows == x.rows);
    Format activation = info(p.w->w.format).activation;
    if (!packed[int(activation)].data)
      packed[int(activation)] = pack_panels(x, x.rows, height, activation, [](const Panels& all, int64_t i) {
        return Place{i, all, i};
      });
  }
  int64_t tile_rows = 0, bytes = 0;
  for (const Product& p : products) bytes += up(p.w->w.rows, kLanes) * p.w->w.tile_row_bytes;
  for (size_t i = 0; i < products.size(); i = end_of_y(products, i))
    tile_rows += up(products[i].y.cols, kLanes);
  // The tile rows of all y in turn, in pieces whose bytes shrink: a piece begins with a wait for memory, and
  // the last one is waited for.
  const int64_t pieces = pool_.threads() * kProductPieces;
  auto begin = [&](int64_t piece) {
    const int64_t rest = pieces - piece;
    int64_t before = bytes - bytes * rest * rest / (pieces * pieces), row = 0;
    for (size_t i = 0, end; i < products.size(); i = end) {
      end = end_of_y(products, i);
      const int64_t n = up(products[i].y.cols, kLanes);
      int64_t each = 0;
      for (size_t j = i; j < end; ++j) each += products[j].w->w.tile_row_bytes;
      row += std::min(n, before / each);
      before -= std::min(before, n * each);
    }
    return row / 2 * 2;
  };
  run(pieces, [&](int64_t piece) {
    int64_t from = begin(piece), to = piece + 1 < pieces ? begin(piece + 1) : tile_rows;
    for (size_t i = 0, end; i < products.size() && to > 0; i = end) {
      end = end_of_y(products, i);
      const int64_t n = up(products[i].y.cols, kLanes);
      for (size_t j = i; j < end && from < std::min(to, n); ++j)
        multiply_tiles(products[j], packed[int(info(products[j].w->w.format).activation)], from,
                       std::min(to, n));
      from = std::max<int64_t>(from - n, 0), to -= n;
    }
  });
}

void CpuDevice::multiply_tiles(const Product& p, const Panels& panels, int64_t from, int64_t to) const {
  const Weight& w = p.w->w;
  const int64_t first = from * kLanes;
  for (int64_t i = 0; i < panels.count(); ++i) {
    float* out[kPanelRows];
    for (int64_t r = 0; r < panels.rows_of(i); ++r) out[r] = p.y.row(panels.first(i) + r) + first;
    kernels_.matmul[int(w.format)](
        {w.tiles + from * w.tile_row_bytes, w.tile_row_bytes, std::min(to * kLanes, w.rows) - first,
         w.cols / info(w.format).block_values, panels.at(i), out, panels.rows_of(i),
         p.w->bias ? p.w->bias + first : nullptr, p.w->scale, p.held});
  }
}

void CpuDevice::angles(std::span<const int64_t> positions, std::span<const double> frequencies, Tensor y) {
  const int64_t pairs = int64_t(frequencies.size());
  for_rows(y.rows, pairs * 64, [&](int64_t r) {
    for (int64_t i = 0; i < pairs; ++i) {
      auto [sin, cos] = math::sincos(double(positions[size_t(r)]) * frequencies[size_t(i)]);
      y.row(r)[i] = float(cos);
      y.row(r)[pairs + i] = float(sin);
    }
  });
}

void CpuDevice::rope(Tensor x, int64_t heads, int64_t step, Tensor cos_sin, bool halves) {
  int64_t pairs = cos_sin.cols / 2;
  for_rows(x.rows, heads * pairs * 4, [&](int64_t r) {
    for (int64_t h = 0; h < heads; ++h)
      kernels_.rope(x.row(r) + h * step, cos_sin.row(r), cos_sin.row(r) + pairs, pairs, halves);
  });
}

void CpuDevice::store_kv(Tensor k, Tensor v, int64_t kv_heads, std::span<const Span> spans,
                         std::span<const PageView> pages) {
  const int64_t dim = k.cols / kv_heads;
  for_rows(k.rows, k.cols * 2, [&](int64_t row) {
    const size_t s = span_of(spans, row);
    const int64_t position = spans[s].position + row - spans[s].first_row;
    std::byte* layer = pages[s].pages[size_t(position / kPagePositions)] + pages[s].offset;
    kernels_.store_kv[int(pages[s].format)](k.row(row), v.row(row), layer, kv_heads, dim,
                                            position % kPagePositions);
  });
}

// Queries that share a KV head go together, an item: `wide` heads of `tall` rows, at most kMaxQueries.  The
// items of all spans are one list for the threads.  Of spans with few items, whose keys reach over several
// segments, each segment of an item is a task of its own.
void CpuDevice::attend(Tensor q, int64_t heads, int64_t step, int64_t kv_heads, int64_t dim, float scale,
                       std::span<const Span> spans, std::span<const PageView> pages, Tensor y) {
  constexpr int64_t kSegment = 4096;
  const int64_t shared = heads / kv_heads, wide = std::min<int64_t>(shared, kMaxQueries);
  const int64_t tall = kMaxQueries / wide, groups = up(shared, wide), part = dim + 2;
  const int64_t most_split = 4 * pool_.threads();  // items: bounds the memory of their parts

  std::vector<AttendTasks>& of = attend_tasks_;
  of.resize(spans.size());
  int64_t tasks = 0, split = 0, n_parts = 0, longest = 1;
  for (size_t s = 0; s < spans.size(); ++s) {
    const int64_t items = up(spans[s].rows, tall) * kv_heads * groups;
    const int64_t segments = (spans[s].position + spans[s].rows - 1) / kSegment + 1;
    longest = std::max(longest, segments);
    of[s] = {tasks, segments > 1 && split + items < most_split ? segments : 1, split, n_parts};
    tasks += items * of[s].pieces;
    if (of[s].pieces == 1) continue;
    split += items;
    n_parts += items * segments;
  }
  Scope scope(*this);
  if (planning_) n_parts = most_split * longest;
  float* parts = arena_.take<float>(n_parts * kMaxQueries * part);

  auto place = [&](size_t s, int64_t item, int64_t segment, int j) {
    return parts + ((of[s].first_part + item * of[s].pieces + segment) * kMaxQueries + j) * part;
  };
  auto first_head = [&](int64_t item) { return item / groups % kv_heads * shared + item % groups * wide; };
  auto heads_of = [&](int64_t item) { return std::min(wide, shared - item % groups * wide); };
  auto queries = [&](size_t s, int64_t item) {  // without segments and their parts
    const Span& span = spans[s];
    AttendArgs a{pages[s].pages.data(),
                 pages[s].offset,
                 item / groups % kv_heads,
                 kv_heads,
                 dim,
                 scale,
                 0,
                 {},
                 {},
                 0,
                 0,
                 {}};
    const int64_t row = item / groups / kv_heads * tall, first = first_head(item), n = heads_of(item);
    for (int64_t r = row; r < std::min(row + tall, span.rows); ++r)
      for (int64_t h = first; h < first + n; ++h) {
        a.q[a.n] = q.row(span.first_row + r) + h * step;
        a.position[a.n++] = span.position + r;
      }
    return a;
  };
  auto finish = [&](size_t s, int64_t item, const AttendArgs& a) {
    const int64_t row = spans[s].first_row + item / groups / kv_heads * tall, n = heads_of(item);
    for (int j = 0; j < a.n; ++j)
      kernels_.finish(a.part[j], y.row(row + j / n) + (first_head(item) + j % n) * dim, dim);
  };
  run(tasks, [&](int64_t task) {
    auto after = std::upper_bound(of.begin(), of.end(), task,
                                  [](int64_t t, const AttendTasks& each) { return t < each.first; });
    const auto s = size_t(after - of.begin()) - 1;
    const int64_t pieces = of[s].pieces, item = (task - of[s].first) / pieces;
    AttendArgs a = queries(s, item);
    float own[kMaxQueries][2 + kMaxHeadDim];
    a.first_segment = (task - of[s].first) % pieces;
    a.end_segment = pieces > 1 ? a.first_segment + 1 : a.position[a.n - 1] / kSegment + 1;
    for (int j = 0; j < a.n; ++j) a.part[j] = pieces > 1 ? place(s, item, a.first_segment, j) : own[j];
    kernels_.attend[int(pages[s].format)](a);
    if (pieces == 1) finish(s, item, a);
  });
  run(split, [&](int64_t number) {
    size_t s = spans.size() - 1;
    while (of[s].pieces == 1 || of[s].split > number) --s;
    const int64_t item = number - of[s].split;
    AttendArgs a = queries(s, item);
    for (int j = 0; j < a.n; ++j) {
      a.part[j] = place(s, item, 0, j);
      for (int64_t g = 1; g <= a.position[j] / kSegment; ++g)
        kernels_.merge(a.part[j], place(s, item, g, j), dim);
    }
    finish(s, item, a);
  });
}

void CpuDevice::conv(Tensor x, const float* weight, int64_t taps, std::span<const Span> spans,
                     std::span<const FixedView> states, Tensor y) {
  constexpr int64_t kChannels = 512;
  int64_t pieces = up(x.cols, kChannels);
  run(pieces * int64_t(spans.size()), [&](int64_t i) {
    const Span& s = spans[size_t(i / pieces)];
    int64_t first = i % pieces * kChannels;
    kernels_.conv({s.rows, taps, x.cols, first, std::min(kChannels, x.cols - first), x.row(s.first_row),
                   x.stride, weight, states[size_t(i / pieces)].conv, y.row(s.first_row), y.stride});
  });
}

void CpuDevice::delta_gates(Tensor alpha, Tensor beta, const float* a, const float* dt) {
  for_rows(alpha.rows, alpha.cols * 8,
           [&](int64_t r) { kernels_.delta_gates(alpha.row(r), beta.row(r), a, dt, alpha.cols); });
}

void CpuDevice::delta(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, int64_t key_heads,
                      std::span<const Span> spans, std::span<const FixedView> states, Tensor y) {
  const int64_t heads = decay.cols, key_dim = q.cols / key_heads, value_dim = v.cols / heads;
  const int64_t strips = up(value_dim, kStateStrip), per_span = heads * strips;
  run(per_span * int64_t(spans.size()), [&](int64_t i) {
    const Span& s = spans[size_t(i / per_span)];
    int64_t head = i % per_span / strips, column = i % strips * kStateStrip, r = s.first_row;
    int64_t key = head % key_heads * key_dim, value = head * value_dim + column;
    float* state = states[size_t(i / per_span)].recurrent + (head * value_dim + column) * key_dim;
    kernels_.delta({s.rows, key_dim, std::min(kStateStrip, value_dim - column), q.row(r) + key,
                    k.row(r) + key, v.row(r) + value, decay.row(r) + head, beta.row(r) + head, q.stride,
                    v.stride, decay.stride, state, y.row(r) + value, y.stride});
  });
}

void CpuDevice::route(Tensor scores, Routing routing) {
  Scope scope(*this);
  Tensor p = scratch(scores.rows, scores.cols);
  for_rows(scores.rows, scores.cols * 8, [&](int64_t r) {
    float* row = p.row(r);
    kernels_.softmax(scores.row(r), row, p.cols);
    float sum = 0;
    for (int64_t i = 0; i < routing.k; ++i) {  // a row has few choices: pick them one by one
      int64_t best = 0;
      for (int64_t e = 1; e < p.cols; ++e)
        if (row[e] > row[best]) best = e;
      routing.expert[r * routing.k + i] = int32_t(best);
      routing.weight[r * routing.k + i] = row[best];
      sum += row[best];
      row[best] = -1;
    }
    for (int64_t i = 0; i < routing.k; ++i) routing.weight[r * routing.k + i] /= sum;
  });
}

// Rows are grouped by expert, so that each chosen expert's weights are read once; a row's result does not
// depend on it.
void CpuDevice::matmul_experts(Tensor x, const Routing& routing, std::span<const ExpertProduct> products) {
  Scope scope(*this);
  const int64_t n = products[0].w->n, pairs = routing.rows * routing.k;
  const int64_t repeat = x.rows == pairs ? 1 : routing.k;
  CHECK(x.rows * repeat == pairs);
  int64_t *start = arena_.take<int64_t>(n + 1), *order = arena_.take<int64_t>(pairs),
          *used = arena_.take<int64_t>(n);
  int64_t distinct = 0;
  if (!planning_) {
    std::fill(start, start + n + 1, 0);
    for (int64_t i = 0; i < pairs; ++i) ++start[routing.expert[i] + 1];
    for (int64_t e = 0; e < n; ++e) {
      if (start[e + 1] > 0) used[distinct++] = e;
      start[e + 1] += start[e];
    }
    for (int64_t i = 0; i < pairs; ++i) order[start[routing.expert[i]]++] = i;
    for (int64_t e = n; e > 0; --e) start[e] = start[e - 1];
    start[0] = 0;
  }
  // All pairs in the order of their experts: each expert's rows are panels of their own.
  Panels packed[AllFormats::size] = {};
  for (const ExpertProduct& p : products) {
    const Format activation = info(p.w->w.format).activation;
    if (packed[int(activation)].data) continue;
    packed[int(activation)] =
        pack_panels(x, pairs, kPanelRows, activation, [&](const Panels& all, int64_t i) {
          const int32_t e = routing.expert[order[i]];
          return Place{order[i] / repeat, all.part(start[e], start[e + 1]), i - start[e]};
        });
  }
  constexpr int64_t kTiles = 4;
  auto pieces_of = [&](const ExpertProduct& p) { return up(up(p.w->rows, kLanes), kTiles); };
  auto multiply = [&](const ExpertProduct& p, int64_t e, int64_t tile) {
    const Weight& w = p.w->w;
    const int64_t first = tile * kLanes, tiles_of_expert = up(p.w->rows, kLanes);
    const Panels panels = packed[int(info(w.format).activation)].part(start[e], start[e + 1]);
    for (int64_t j = 0; j < panels.count(); ++j) {
      float* out[kPanelRows];
      for (int64_t r = 0; r < panels.rows_of(j); ++r)
        out[r] = p.y.row(order[start[e] + panels.first(j) + r]) + first;
      kernels_.matmul[int(w.format)]({w.tiles + (e * tiles_of_expert + tile) * w.tile_row_bytes,
                                      w.tile_row_bytes, std::min(kTiles * kLanes, p.w->rows - first),
                                      w.cols / info(w.format).block_values, panels.at(j), out,
                                      panels.rows_of(j), nullptr, p.w->scale ? p.w->scale[e] : 1, p.held});
    }
  };
  int64_t per_expert = 0;
  for (size_t i = 0; i < products.size(); i = end_of_y(products, i)) per_expert += pieces_of(products[i]);
  run(distinct * per_expert, [&](int64_t i) {
    int64_t piece = i % per_expert;
    size_t p = 0;
    for (int64_t n; piece >= (n = pieces_of(products[p])); p = end_of_y(products, p)) piece -= n;
    for (size_t j = p; j < end_of_y(products, p); ++j)
      multiply(products[j], used[i / per_expert], piece * kTiles);
  });
}

void CpuDevice::combine(Tensor x, const Routing& routing, Tensor shared, Tensor gate, Tensor y) {
  for_rows(y.rows, y.cols * routing.k, [&](int64_t r) {
    float* out = y.row(r);
    std::fill(out, out + y.cols, 0.0f);
    for (int64_t i = r * routing.k; i < (r + 1) * routing.k; ++i)
      kernels_.multiply_add(routing.weight[i], x.row(i), out, y.cols);
    if (!shared.data) return;
    kernels_.sigmoid(gate.row(r), 1);
    kernels_.multiply_add(gate.row(r)[0], shared.row(r), out, y.cols);
  });
}

}  // namespace invar::cpu
