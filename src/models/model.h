// An architecture: reads its keys, takes its weights, runs a pass.  One file for each, and one line in
// registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "layers/loader.h"
#include "layers/step.h"

namespace invar {

class Model {
 public:
  virtual ~Model() = default;
  virtual int64_t vocab() const = 0;
  virtual int64_t context_length() const = 0;  // of the file
  virtual Tensor forward(Step& step) = 0;      // last hidden rows, normed: (rows, hidden)
  // Of some rows of those: (rows.size(), vocab).
  virtual Tensor logits(Step& step, Tensor hidden, std::span<const int> rows) = 0;
};

struct ModelDef {
  const char* arch;  // the name in the file
  // Faults of tensors are collected by the loader; what comes back as an error is a fault of a key.
  Result<std::unique_ptr<Model>> (*load)(Loader& loader);
};

std::span<const ModelDef> all_models();
const ModelDef* find_model(std::string_view arch);               // null when unknown
Result<const ModelDef*> require_model(const std::string& arch);  // names the known ones

// The head of every model here: output.weight, or the table of embeddings where the file has none.
struct Vocabulary {
  Linear table, head;
  const float* norm = nullptr;  // output_norm

  void load(Loader& loader, int64_t vocab, int64_t hidden);
  Tensor embed(Step& s, int64_t hidden) const;
  Tensor logits(Step& s, Tensor hidden, std::span<const int> rows) const;
};

// Rows and columns of token_embd.weight, checked against A.vocab_size, where the file has it, and
// A.embedding_length.
struct TableShape {
  int64_t vocab, hidden;
};
Result<TableShape> table_shape(const Loader& loader);

// Limits for keys that size something: a file may say anything.
constexpr int64_t kMaxContext = 1 << 23;
constexpr int64_t kMaxLayers = 1024, kMaxWidth = 1 << 20, kMaxHeads = 4096, kMaxExperts = 4096;

}  // namespace invar
