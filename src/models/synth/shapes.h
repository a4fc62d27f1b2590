// Named shapes of models as data, and the keys and tensors that a file of such a shape has.  Sizes of real
// models come from their published configurations; the tiny ones are ours.  Which format a tensor gets and
// what is in it is synth.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/metadata.h"

namespace invar {

struct Shape {
  const char* arch;
  const char* size;  // the name is ARCH:SIZE
  int64_t layers, hidden, width, heads, kv_heads, head_dim;
  int64_t vocab, context;
  bool tied;
  // qwen35 and qwen35moe
  int64_t key_heads = 0, value_heads = 0, delta_dim = 0, rope_dims = 0;
  // qwen35moe
  int64_t experts = 0, experts_used = 0, expert_width = 0, shared_width = 0;

  std::string name() const { return std::string(arch) + ":" + size; }
  bool hybrid() const { return key_heads > 0; }
  int64_t blocks() const {
    return layers + (hybrid() ? 1 : 0);
  }  // hybrids have a draft block behind the layers
  bool recurrent(int64_t layer) const { return hybrid() && layer < layers && (layer + 1) % 4 != 0; }
};

std::span<const Shape> all_shapes();
const Shape* find_shape(std::string_view name);  // null when unknown

// What a weight is for; decides format and values.
enum class Part {
  Norm,
  Bias,
  Conv,
  Router,
  Decay,     // ssm_a: negative
  TimeStep,  // ssm_dt.bias
  Gate,      // ssm_alpha, ssm_beta
  Embedding,
  Output,
  Value,     // attn_v, and attn_qkv of recurrent layers
  Down,      // ffn_down and its kin
  Residual,  // other matrices that write to the residual stream
  Matrix
};

struct ShapeTensor {
  std::string name;
  std::vector<int64_t> shape;  // [.., rows, cols]
  Part part;
};

// general.* and ARCH.*; the vocabulary is vocabulary.h's.
Metadata keys_of(const Shape& shape);
std::vector<ShapeTensor> tensors_of(const Shape& shape);

}  // namespace invar
