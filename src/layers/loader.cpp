#include "layers/loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/all.h"

namespace invar {
namespace {

constexpr uint64_t kStepBytes = 64 << 20;  // packed between two words of progress

std::string text_of(const std::vector<int64_t>& shape) {
  std::string s = "[";
  for (int64_t n : shape) s += (s.size() > 1 ? ", " : "") + std::to_string(n);
  return s + "]";
}

int64_t padded(int64_t rows) { return (rows + kLanes - 1) / kLanes * kLanes; }

}  // namespace

const TensorEntry* Loader::take(const std::string& name, std::optional<Format>& format) {
  taken_.insert(name);
  const TensorEntry* t = file_.find(name);
  if (!t) {
    fault(Code::BadFile, name, "expected this tensor, found none of that name");
    return nullptr;
  }
  format = format_by_gguf_id(t->type);
  if (!format) {
    fault(Code::Unsupported, name, std::string("format ") + t->format + " is not supported");
    return nullptr;
  }
  return t;
}

bool Loader::fits(const TensorEntry& t, std::vector<int64_t> shape) {
  // A leading 1 says nothing: vectors may be stored as matrices of one row.
  auto bare = [](std::vector<int64_t> s) {
    while (s.size() > 1 && s.front() == 1) s.erase(s.begin());
    return s;
  };
  if (bare(t.shape) == bare(shape)) return true;
  fault(Code::BadFile, t.name, "expected shape " + text_of(shape) + ", found " + text_of(t.shape));
  return false;
}

void Loader::advance(uint64_t bytes) {
  uint64_t total = 0;
  loaded_bytes_ += bytes;
  if (!progress_) return;
  for (const TensorEntry& e : file_.tensors()) total += e.bytes;
  progress_(double(loaded_bytes_) / double(std::max<uint64_t>(total, 1)));
}

void Loader::pack(const TensorEntry& t, const Weight& w, int64_t from, int64_t rows, int64_t to) {
  const int64_t step =
      std::max<int64_t>(kLanes, int64_t(kStepBytes / std::max<uint64_t>(t.row_bytes, 1)) / kLanes * kLanes);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    auto bad = device_.pack(w, to + r, n, [&](int64_t first, std::span<std::byte> bytes) {
      return file_.read(t, uint64_t(from + r) * t.row_bytes + uint64_t(first), bytes);
    });
    if (!bad) return faults_.push_back(std::move(bad.error()));
    if (*bad) {
      const int64_t row = (*bad)->row - to + from;
      return fault(Code::BadFile, t.name,
                   "expected finite values, found a NaN or an infinity in row " + std::to_string(row) +
                       ", block " + std::to_string((*bad)->block));
    }
    advance(uint64_t(n) * t.row_bytes);
  }
}

void Loader::load(const TensorEntry& t, Weight& w, int64_t parts, int64_t rows) {
  if (planning_) return;
  const std::span<const std::byte> packed = device_.packed(w);
  if (packs_)
    if (auto kept = packs_->find(t.name, w.format, w.rows, w.cols); kept.size() == packed.size()) {
      device_.adopt(w, kept);
      return advance(t.bytes);
    }
  for (int64_t i = 0; i < parts && faults_.empty(); ++i) pack(t, w, i * rows, rows, i * padded(rows));
  if (packs_ && faults_.empty()) packs_->keep(t.name, w.format, w.rows, w.cols, packed);
}

Weight Loader::weight(const std::string& name, int64_t rows, int64_t cols) {
  std::optional<Format> format;
  const TensorEntry* t = take(name, format);
  if (!t || !fits(*t, {rows, cols})) return {};
  Weight w = device_.allocate(*format, rows, cols);
  load(*t, w, 1, rows);
  return w;
}

Linear Loader::table(const std::string& name, int64_t rows, int64_t cols) {
  Linear linear{weight(name + ".weight", rows, cols)};
  skip(name + ".input_scale");
  if (has(name + ".scale"))
    if (auto scale = floats(name + ".scale", {1}); !scale.empty()) linear.scale = scale[0];
  return linear;
}

Linear Loader::linear(const std::string& name, int64_t outputs, int64_t inputs) {
  Linear linear = table(name, outputs, inputs);
  count_read(linear.w);
  if (has(name + ".bias")) linear.bias = vector(name + ".bias", outputs);
  return linear;
}

Experts Loader::experts(const std::string& name, int64_t n, int64_t outputs, int64_t inputs, int64_t used) {
  Experts experts{{}, n, outputs, nullptr};
  std::optional<Format> format;
  const TensorEntry* t = take(name + ".weight", format);
  skip(name + ".input_scale");
  if (!t || !fits(*t, {n, outputs, inputs})) return experts;
  experts.w = device_.allocate(*format, n * padded(outputs), inputs);
  read_bytes_ += padded(outputs) / kLanes * experts.w.tile_row_bytes * used;
  load(*t, experts.w, n, outputs);
  if (has(name + ".scale")) experts.scale = vector(name + ".scale", n);
  return experts;
}

std::vector<float> Loader::floats(const std::string& name, std::vector<int64_t> shape, bool always) {
  std::optional<Format> format;
  const TensorEntry* t = take(name, format);
  if (!t || !fits(*t, shape)) return {};
  const int64_t n = t->rows * t->cols;
  if (info(*format).block_values != 1) {
    fault(Code::Unsupported, name, std::string("expected F32, F16 or BF16 values, found ") + t->format);
    return {};
  }
  std::vector<float> values(size_t(n), 0);
  if (planning_ && !always) return values;
  std::vector<std::byte> bytes(t->bytes);
  if (Status s = file_.read(*t, 0, bytes); !s) {
    faults_.push_back(std::move(s.error()));
    return {};
  }
  if (!planning_) advance(t->bytes);
  with_format(*format, [&]<class F>() {
    if constexpr (F::block_values == 1)
      for (int64_t i = 0; i < n; ++i) {
        typename F::Block block;
        std::memcpy(&block, bytes.data() + size_t(i) * sizeof block, sizeof block);
        F::decode(block, &values[size_t(i)]);
      }
  });
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(values[size_t(i)])) {
      fault(Code::BadFile, name,
            "expected finite values, found a NaN or an infinity at " + std::to_string(i));
      return {};
    }
  return values;
}

const float* Loader::vector(const std::string& name, int64_t n) {
  std::vector<float> values = floats(name, {n});
  float* to = device_.allocate_floats(n);
  read_bytes_ += n * int64_t(sizeof(float));
  if (!planning_) std::copy(values.begin(), values.end(), to);
  return to;
}

const float* Loader::transposed(const std::string& name, int64_t rows, int64_t cols) {
  std::vector<float> values = floats(name, {rows, cols});
  float* to = device_.allocate_floats(rows * cols);
  read_bytes_ += rows * cols * int64_t(sizeof(float));
  if (!planning_ && !values.empty())
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = values[size_t(r * cols + c)];
  return to;
}

Status Loader::finish() {
  for (const TensorEntry& t : file_.tensors())
    if (!taken_.count(t.name))
      fault(Code::Unsupported, t.name, "this architecture has no tensor of that name");
  if (faults_.empty()) return Ok{};
  // A damaged file outweighs what is merely unsupported.
  std::stable_sort(faults_.begin(), faults_.end(), [](const Error& a, const Error& b) {
    return (a.code == Code::Unsupported) < (b.code == Code::Unsupported);
  });
  Error first = std::move(faults_.front());
  first.more.assign(std::make_move_iterator(faults_.begin() + 1), std::make_move_iterator(faults_.end()));
  return first;
}

}  // namespace invar
