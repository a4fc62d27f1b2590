// Takes a model's weights by name: checks shape and format, packs them on the device, tensor by tensor.
// Faults are collected, so that one message can name all of them.  On a device that is planning nothing is
// read: only sizes are counted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "files/model_file.h"
#include "files/pack_cache.h"
#include "state/state.h"

namespace invar {

class Loader {
 public:
  // `packs` may be null; `progress` hears the share of the file's bytes that is loaded, 0..1.
  Loader(const ModelFile& file, Device& device, bool planning, KvFormat kv, PackCache* packs = nullptr,
         std::function<void(double)> progress = {})
      : file_(file),
        device_(device),
        planning_(planning),
        kv_(kv),
        packs_(packs),
        progress_(std::move(progress)) {}

  const ModelFile& file() const { return file_; }
  const Metadata& keys() const { return file_.keys(); }
  KvFormat kv() const { return kv_; }

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

  // NAME.weight (outputs, inputs), with NAME.bias and the factor NAME.scale where the file has them.
  Linear linear(const std::string& name, int64_t outputs, int64_t inputs);
  // NAME (rows, cols) as it is looked up, one row a token; not counted as read for each token.
  Linear table(const std::string& name, int64_t rows, int64_t cols);
  // NAME.weight (experts, outputs, inputs), of which `used` are read for a token.
  Experts experts(const std::string& name, int64_t n, int64_t outputs, int64_t inputs, int64_t used);
  // NAME, n values.
  const float* vector(const std::string& name, int64_t n);
  // The same for the program and not for the device; read even while it is planned.
  std::vector<float> values(const std::string& name, int64_t n) { return floats(name, {n}, true); }
  // NAME (rows, cols) as floats, [cols][rows].
  const float* transposed(const std::string& name, int64_t rows, int64_t cols);

  // A tensor that this engine knows and leaves out: no fault if nobody takes it.
  void skip(const std::string& name) { taken_.insert(name); }
  // A head that shares the table: its bytes are read for each token.
  void count_read(const Weight& w) { read_bytes_ += (w.rows + kLanes - 1) / kLanes * w.tile_row_bytes; }
  int64_t read_bytes() const { return read_bytes_; }  // weights that one decoded token reads

  // The place of a layer's state in the model's layout.
  size_t state(StateSpec::Kind kind, int64_t bytes) {
    layout_.push_back({kind, bytes});
    return layout_.size() - 1;
  }
  std::vector<StateSpec> layout() const { return layout_; }

  void fault(Code code, const std::string& where, const std::string& message) {
    faults_.push_back({code, where, message, {}});
  }
  // All faults, and every tensor that nobody took, as one error.
  Status finish();

 private:
  const TensorEntry* take(const std::string& name, std::optional<Format>& format);
  bool fits(const TensorEntry& t, std::vector<int64_t> shape);
  void advance(uint64_t bytes);  // so many bytes of the file more are loaded
  // Zeros while it is planned, unless they are wanted then too; empty: a fault was noted.
  std::vector<float> floats(const std::string& name, std::vector<int64_t> shape, bool always = false);
  // All of a tensor's weights: `parts` matrices of `rows` rows, each from a tile row of its own on.
  void load(const TensorEntry& t, Weight& w, int64_t parts, int64_t rows);
  // Packs rows [from, from + rows) of the tensor from row `to` of the weight on.
  void pack(const TensorEntry& t, const Weight& w, int64_t from, int64_t rows, int64_t to);
  Weight weight(const std::string& name, int64_t rows, int64_t cols);

  const ModelFile& file_;
  Device& device_;
  bool planning_;
  KvFormat kv_;
  PackCache* packs_;
  std::function<void(double)> progress_;
  std::unordered_set<std::string> taken_;
  std::vector<Error> faults_;
  std::vector<StateSpec> layout_;
  int64_t read_bytes_ = 0;
  uint64_t loaded_bytes_ = 0;
};

}  // namespace invar
