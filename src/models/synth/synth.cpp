#include "models/synth/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "base/rng.h"
#include "files/model_file.h"
#include "formats/all.h"
#include "models/synth/vocabulary.h"

namespace invar {
namespace {

constexpr const char* kQ4KM = "Q4_K_M";

bool always_f32(Part part) {
  switch (part) {
    case Part::Norm:
    case Part::Bias:
    case Part::Conv:
    case Part::Router:
    case Part::Decay:
    case Part::TimeStep:
      return true;
    default:
      return false;
  }
}

// Of the classes that Q4_K_M keeps finer in places: the first and the last eighth, and every third between.
bool finer(int64_t block, int64_t blocks) {
  const int64_t eighth = blocks / 8;
  return block < eighth || block >= 7 * blocks / 8 || (block - eighth) % 3 == 2;
}

const char* q4_k_m(const Shape& shape, const ShapeTensor& t) {
  bool six = false;
  switch (t.part) {
    case Part::Gate:
      return "F32";
    case Part::Output:
      six = true;
      break;
    case Part::Embedding:
      six = shape.tied;
      break;
    case Part::Value:
    case Part::Down:
      six = finer(layer_of(t.name), shape.blocks());
      break;
    default:
      break;
  }
  if (t.shape.back() % 256 != 0) return six ? "Q8_0" : "Q5_0";
  return six ? "Q6_K" : "Q4_K";
}

// Values are k * step + middle with k = -510..510, the sum of four random bytes less its mean: only exact
// sums, one product and one more sum, so every machine gets the same.
struct Spread {
  float step, middle;
};

constexpr double kDeviation = 147.80054127099806;  // of k: sqrt(4 * (256^2 - 1) / 12)

// Matrices keep the size of what goes through them; what is added to the residual stream is smaller, so that
// deep stacks stay finite and rounding does not grow.
Spread spread_of(const Shape& shape, const ShapeTensor& t) {
  auto gain = [&](double g) {
    return Spread{float(g / (kDeviation * std::sqrt(double(t.shape.back())))), 0};
  };
  switch (t.part) {
    case Part::Norm:
      return {1.0f / 2048, 1};
    case Part::Bias:
      return {1.0f / 1024, 0};
    case Part::Conv:
      return {1.0f / 256, 0};
    case Part::Decay:
      return {1.0f / 640, -1};  // -1.8 .. -0.2
    case Part::TimeStep:
      return {1.0f / 1024, -2};  // with ssm_a: decays of about 0.6 .. 0.99
    case Part::Gate:
      return gain(0.5);
    case Part::Residual:
    case Part::Down:
      return gain(0.5);
    case Part::Output:
      return gain(2);
    // A table that is also the head must be small, or every token would predict itself.
    case Part::Embedding:
      return shape.tied ? gain(2) : Spread{1.0f / 128, 0};
    default:
      return gain(1);
  }
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001B3;
  return hash;
}

// Random numbers of one tensor by (purpose, index).
class Draw {
 public:
  Draw(uint64_t seed, const std::string& name)
      : key_{uint32_t(seed), uint32_t(seed >> 32)}, name_(hash_of(name)) {}

  Philox4 at(uint64_t index) const {
    return philox({uint32_t(index), uint32_t(index >> 32), uint32_t(name_), uint32_t(name_ >> 32)}, key_);
  }
  // Four values.
  void values(uint64_t index, Spread spread, float* out) const {
    const Philox4 bits = at(index);
    for (int i = 0; i < 4; ++i) {
      const uint32_t b = bits[size_t(i)];
      const int k = int((b & 255) + (b >> 8 & 255) + (b >> 16 & 255) + (b >> 24)) - 510;
      out[i] = float(k) * spread.step + spread.middle;
    }
  }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t name_;
};

constexpr int64_t kStockValues = 1 << 19;           // values of a tensor that are drawn and encoded
constexpr int64_t kPieceBytes = 1 << 16;            // that one thread fills at a time
constexpr int64_t kBufferBytes = 64 * kPieceBytes;  // handed to the file at a time
constexpr uint64_t kChoices = uint64_t(1) << 62;    // indices of choices; those of values are below

template <class F>
std::vector<std::byte> encoded(const Draw& draw, Spread spread, int64_t blocks, ThreadPool& pool) {
  constexpr int64_t kValues = std::max(F::block_values, 4), kAtOnce = kValues / F::block_values, kGroup = 256;
  std::vector<std::byte> bytes(size_t(blocks) * sizeof(typename F::Block));
  pool.run((blocks + kGroup - 1) / kGroup, [&](int64_t group) {
    for (int64_t b = group * kGroup; b < std::min(blocks, (group + 1) * kGroup); b += kAtOnce) {
      float values[kValues];
      for (int64_t i = 0; i < kValues; i += 4)
        draw.values(uint64_t(b * F::block_values + i) / 4, spread, values + i);
      for (int64_t i = 0; i < std::min(kAtOnce, blocks - b); ++i) {
        typename F::Block block;
        F::encode(values + i * F::block_values, block);
        std::memcpy(&bytes[size_t(b + i) * sizeof block], &block, sizeof block);
      }
    }
  });
  return bytes;
}

// A tensor of at most kStockValues is drawn whole.  Of a larger one, that much is drawn and encoded, and each
// piece of 256 values of the tensor is a random one of the stock, so that quantizing billions of values is
// not waited for.  Rows differ; of rows as short as two pieces, a few in a hundred are alike in the largest
// stacks.
class Filler {
 public:
  Filler(const NewTensor& t, const Draw& draw, Spread spread, ThreadPool& pool) : draw_(draw), pool_(pool) {
    const int64_t width = t.type->block_values, blocks = int64_t(t.bytes()) / t.type->block_bytes;
    total_ = blocks * t.type->block_bytes;
    // A row that 256 does not divide may begin inside a piece; blocks have no place of their own, so it may.
    const int64_t per_part = std::max<int64_t>(1, 256 / width);
    const int64_t drawn = std::min(blocks, kStockValues / width);
    part_bytes_ = per_part * t.type->block_bytes;
    with_format(*format_by_gguf_id(t.type->id), [&]<class F>() {
      if constexpr (F::gguf_id >= 0) stock_ = encoded<F>(draw, spread, drawn, pool);
    });
    parts_ = blocks > drawn ? drawn / per_part : 0;
  }

  Status emit(const Emit& out, const std::function<Status(size_t)>& written) {
    if (parts_ == 0) {
      TRY(out(stock_));
      return written(stock_.size());
    }
    const int64_t parts_per_piece = kPieceBytes / part_bytes_, piece = parts_per_piece * part_bytes_;
    std::vector<std::byte> buffer(size_t(kBufferBytes / kPieceBytes * piece));
    for (int64_t at = 0; at < total_; at += int64_t(buffer.size())) {
      const int64_t n = std::min(total_ - at, int64_t(buffer.size()));
      pool_.run((n + piece - 1) / piece, [&](int64_t i) {
        fill((at + i * piece) / part_bytes_,
             std::span(buffer).subspan(size_t(i * piece), size_t(std::min(piece, n - i * piece))));
      });
      TRY(out(std::span(buffer).first(size_t(n))));
      TRY(written(size_t(n)));
    }
    return Ok{};
  }

 private:
  void fill(int64_t first_part, std::span<std::byte> out) const {
    for (int64_t part = first_part; !out.empty(); ++part) {
      const uint64_t bits = draw_.at(kChoices + uint64_t(part))[0];
      const size_t from = size_t(bits * uint64_t(parts_) >> 32),
                   n = std::min(out.size(), size_t(part_bytes_));
      std::memcpy(out.data(), &stock_[from * size_t(part_bytes_)], n);
      out = out.subspan(n);
    }
  }

  const Draw& draw_;
  ThreadPool& pool_;
  std::vector<std::byte> stock_;
  int64_t total_, part_bytes_, parts_;
};

}  // namespace

std::vector<std::string> mix_names() {
  std::vector<std::string> names{kQ4KM};
  for (const FormatInfo& f : kFormatTable)
    if (f.gguf_id >= 0) names.push_back(f.name);
  return names;
}

Result<std::vector<NewTensor>> mixed_tensors(const Shape& shape, const std::string& mix) {
  if (mix != kQ4KM && !format_by_name(mix)) {
    std::string known;
    for (const std::string& name : mix_names()) known += (known.empty() ? "" : ", ") + name;
    return Error{Code::Usage, "--mix", "expected one of " + known + ", found '" + mix + "'"};
  }
  std::vector<NewTensor> tensors;
  for (const ShapeTensor& t : tensors_of(shape)) {
    const char* format = always_f32(t.part) ? "F32" : mix == kQ4KM ? q4_k_m(shape, t) : mix.c_str();
    const GgmlType* type = find_ggml_type(format);
    CHECK(type);
    if (t.shape.back() % type->block_values != 0)
      return Error{Code::Usage, "--mix",
                   "expected a format whose block of values divides the rows of " + t.name + ", which have " +
                       std::to_string(t.shape.back()) + ", found " + format + " with blocks of " +
                       std::to_string(type->block_values)};
    tensors.push_back({t.name, type, t.shape});
  }
  return tensors;
}

Status synthesize(const Shape& shape, const std::string& path, const SynthOptions& options, ThreadPool& pool,
                  const std::function<bool(double)>& go_on) {
  std::vector<NewTensor> tensors = TRY(mixed_tensors(shape, options.mix));
  Metadata keys = keys_of(shape);
  add_vocabulary(shape, keys);
  if (options.header_only) return write_gguf_header(path, keys, std::move(tensors));
  uint64_t total = 0, done = 0;
  std::unordered_map<std::string, Spread> spreads;
  for (const NewTensor& t : tensors) total += t.bytes();
  for (const ShapeTensor& t : tensors_of(shape)) spreads.emplace(t.name, spread_of(shape, t));
  return write_gguf(path, keys, std::move(tensors), [&](const NewTensor& t, const Emit& emit) -> Status {
    const Draw draw(options.seed, t.name);
    return Filler(t, draw, spreads.at(t.name), pool).emit(emit, [&](size_t bytes) -> Status {
      done += bytes;
      if (!go_on(double(done) / double(total)))
        return Error{Code::Cancelled, path, "interrupted; nothing was written"};
      return Ok{};
    });
  });
}

}  // namespace invar
