#include "files/recipe.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "base/math.h"

namespace invar {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // read at a time, if rows are smaller

float to_f32(FloatType type, const std::byte* p) {
  if (type == FloatType::F32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return type == FloatType::F16 ? float_of_f16(half) : float_of_bf16(half);
}

float changed(Change change, float x) {
  switch (change) {
    case Change::None:
      return x;
    case Change::AddOne:
      return x + 1.0f;
    case Change::NegExp:
      return -float(math::exp(double(x)));
  }
  return x;
}

// `row`, in the file's order and type, to a row of the result.  `columns`: where each comes from; empty: in
// place.
void make_row(const Recipe& recipe, std::span<const int64_t> columns, const std::byte* row, std::byte* out) {
  const auto from = size_t(width_of(recipe.from)), n = size_t(recipe.cols);
  const bool same_values = recipe.from == recipe.to && recipe.change == Change::None;
  if (same_values && columns.empty()) {
    std::memcpy(out, row, n * from);
    return;
  }
  for (size_t c = 0; c < n; ++c) {
    const std::byte* x = row + (columns.empty() ? c : size_t(columns[c])) * from;
    if (same_values) {
      std::memcpy(out + c * from, x, from);
    } else {
      CHECK(recipe.to == FloatType::F32);
      const float value = changed(recipe.change, to_f32(recipe.from, x));
      std::memcpy(out + c * sizeof value, &value, sizeof value);
    }
  }
}

std::vector<int64_t> columns_of(const Recipe& recipe) {
  std::vector<int64_t> columns;
  if (recipe.col_order.kind == Order::Same) return columns;
  for (int64_t c = 0; c < recipe.cols; ++c) columns.push_back(recipe.col_order.source(c));
  return columns;
}

// Rows [first, first + n) of the file that follow one another in the result as well.
struct Run {
  Recipe::Source source;  // offset of the first row
  int64_t rows;
};

Run run_at(const Recipe& recipe, int64_t row, int64_t most) {
  const int64_t share = recipe.rows / int64_t(recipe.sources.size());
  const int64_t row_bytes = recipe.cols * width_of(recipe.from);
  const int64_t inside = row % share, first = recipe.row_order.source(inside);
  most = std::min(most, share - inside);
  int64_t n = 1;
  while (n < most && recipe.row_order.source(inside + n) == first + n) ++n;
  Recipe::Source source = recipe.sources[size_t(row / share)];
  source.offset += uint64_t(first * row_bytes);
  return {source, n};
}

}  // namespace

int width_of(FloatType type) { return type == FloatType::F32 ? 4 : 2; }

int64_t Order::source(int64_t i) const {
  switch (kind) {
    case Same:
      return i;
    case ValueHeads: {  // from tiled (j * key_heads + k) to grouped (k * ratio + j)
      if (i < first) return i;
      const int64_t tiled = (i - first) / head, place = (i - first) % head;
      return first + (tiled % key_heads * ratio + tiled / key_heads) * head + place;
    }
    case RopePairs: {  // from neighbours (2 i, 2 i + 1) to halves (i, i + head / 2)
      const int64_t place = i % head;
      return i - place + place % 2 * (head / 2) + place / 2;
    }
    case Halves:
      return (i / head * 2 + half) * head + i % head;
  }
  return i;
}

Status read_recipe(std::span<const File> files, const Recipe& recipe, uint64_t offset,
                   std::span<std::byte> out) {
  if (!recipe.made.empty()) {
    std::memcpy(out.data(), recipe.made.data() + offset, out.size());
    return Ok{};
  }
  if (recipe.as_stored) return files[recipe.sources[0].file].read_at(recipe.sources[0].offset + offset, out);

  const int64_t from_bytes = recipe.cols * width_of(recipe.from),
                to_bytes = recipe.cols * width_of(recipe.to);
  const int64_t rows_at_once = std::max<int64_t>(1, kPieceBytes / from_bytes);
  const std::vector<int64_t> columns = columns_of(recipe);
  std::vector<std::byte> stored, made(static_cast<size_t>(to_bytes));
  auto row = int64_t(offset) / to_bytes;
  auto skip = size_t(int64_t(offset) % to_bytes);  // of the first row
  while (!out.empty()) {
    const int64_t wanted = (int64_t(skip + out.size()) + to_bytes - 1) / to_bytes;
    const Run run = run_at(recipe, row, std::min(wanted, rows_at_once));
    stored.resize(size_t(run.rows * from_bytes));
    TRY(files[run.source.file].read_at(run.source.offset, stored));
    for (int64_t r = 0; r < run.rows; ++r) {
      make_row(recipe, columns, &stored[size_t(r * from_bytes)], made.data());
      const size_t n = std::min(out.size(), made.size() - skip);
      std::memcpy(out.data(), &made[skip], n);
      out = out.subspan(n);
      skip = 0;
    }
    row += run.rows;
  }
  return Ok{};
}

}  // namespace invar
