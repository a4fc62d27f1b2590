#include "models/synth/shapes.h"

#include <algorithm>
#include <array>

namespace invar {
namespace {

constexpr int64_t kQwenVocab = 248320, kQwenContext = 262144;

// Row lengths of the tiny shapes are multiples of 256, and the hybrids have three value heads to a key head.
constexpr Shape kShapes[] = {
    // arch, size, layers, hidden, width, heads, kv heads, head dim, vocab, context, tied,
    //   key heads, value heads, delta dim, rope dims, experts, used, expert width, shared width
    {"qwen35", "tiny", 4, 256, 256, 4, 2, 64, 512, 4096, false, 4, 12, 64, 16},
    {"qwen35", "0.8B", 24, 1024, 3584, 8, 2, 256, kQwenVocab, kQwenContext, true, 16, 16, 128, 64},
    {"qwen35", "2B", 24, 2048, 6144, 8, 2, 256, kQwenVocab, kQwenContext, true, 16, 16, 128, 64},
    {"qwen35", "4B", 32, 2560, 9216, 16, 4, 256, kQwenVocab, kQwenContext, true, 16, 32, 128, 64},
    {"qwen35", "9B", 32, 4096, 12288, 16, 4, 256, kQwenVocab, kQwenContext, false, 16, 32, 128, 64},
    {"qwen35", "27B", 64, 5120, 17408, 24, 4, 256, kQwenVocab, kQwenContext, false, 16, 48, 128, 64},
    {"qwen35moe", "tiny", 4, 256, 0, 4, 2, 64, 512, 4096, false, 4, 12, 64, 16, 4, 2, 256, 256},
    {"qwen35moe", "35B-A3B", 40, 2048, 0, 16, 2, 256, kQwenVocab, kQwenContext, false, 16, 32, 128, 64, 256,
     8, 512, 512},
    {"qwen35moe", "35B-cut", 6, 2048, 0, 16, 2, 256, kQwenVocab, kQwenContext, false, 16, 32, 128, 64, 256, 8,
     512, 512},
    {"qwen35moe", "122B-A10B", 48, 3072, 0, 32, 2, 256, kQwenVocab, kQwenContext, false, 16, 64, 128, 64, 256,
     8, 1024, 1024},
    {"qwen35moe", "397B-A17B", 60, 4096, 0, 32, 2, 256, kQwenVocab, kQwenContext, false, 16, 64, 128, 64, 512,
     10, 1024, 1024},
    {"llama", "tiny", 3, 256, 512, 4, 2, 64, 512, 4096, false},
    {"llama", "135M", 30, 576, 1536, 9, 3, 64, 49152, 8192, true},
    {"qwen2", "tiny", 3, 256, 512, 4, 2, 64, 512, 4096, false},
    {"qwen2", "0.5B", 24, 896, 4864, 14, 2, 64, 151936, 32768, true},
    {"qwen3", "tiny", 3, 256, 512, 4, 2, 64, 512, 4096, false},
    {"qwen3", "0.6B", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true},
};

class TensorList {
 public:
  explicit TensorList(const Shape& shape) : s_(shape) {}

  std::vector<ShapeTensor> make() {
    add("token_embd.weight", {s_.vocab, s_.hidden}, Part::Embedding);
    add("output_norm.weight", {s_.hidden}, Part::Norm);
    if (!s_.tied) add("output.weight", {s_.vocab, s_.hidden}, Part::Output);
    for (int64_t i = 0; i < s_.blocks(); ++i) {
      block_ = "blk." + std::to_string(i) + ".";
      add("attn_norm.weight", {s_.hidden}, Part::Norm);
      if (s_.recurrent(i)) delta();
      else attention();
      add(s_.hybrid() ? "post_attention_norm.weight" : "ffn_norm.weight", {s_.hidden}, Part::Norm);
      if (s_.experts > 0) experts();
      else mlp();
      if (i >= s_.layers) draft();
    }
    return std::move(list_);
  }

 private:
  void add(const char* name, std::vector<int64_t> shape, Part part) {
    list_.push_back({block_ + name, std::move(shape), part});
  }

  void delta() {
    const int64_t keys = s_.key_heads * s_.delta_dim, values = s_.value_heads * s_.delta_dim;
    add("attn_qkv.weight", {2 * keys + values, s_.hidden}, Part::Value);
    add("attn_gate.weight", {values, s_.hidden}, Part::Matrix);
    add("ssm_beta.weight", {s_.value_heads, s_.hidden}, Part::Gate);
    add("ssm_alpha.weight", {s_.value_heads, s_.hidden}, Part::Gate);
    add("ssm_conv1d.weight", {2 * keys + values, 4}, Part::Conv);
    add("ssm_a", {s_.value_heads}, Part::Decay);
    add("ssm_dt.bias", {s_.value_heads}, Part::TimeStep);
    add("ssm_norm.weight", {s_.delta_dim}, Part::Norm);
    add("ssm_out.weight", {s_.hidden, values}, Part::Residual);
  }

  void attention() {
    const int64_t queries = s_.heads * s_.head_dim, keys = s_.kv_heads * s_.head_dim;
    const std::string_view arch = s_.arch;
    // Hybrids: of each head the query rows, then as many gate rows.
    add("attn_q.weight", {s_.hybrid() ? 2 * queries : queries, s_.hidden}, Part::Matrix);
    add("attn_k.weight", {keys, s_.hidden}, Part::Matrix);
    add("attn_v.weight", {keys, s_.hidden}, Part::Value);
    add("attn_output.weight", {s_.hidden, queries}, Part::Residual);
    if (arch == "qwen2") {
      add("attn_q.bias", {queries}, Part::Bias);
      add("attn_k.bias", {keys}, Part::Bias);
      add("attn_v.bias", {keys}, Part::Bias);
    }
    if (arch == "qwen3" || s_.hybrid()) {
      add("attn_q_norm.weight", {s_.head_dim}, Part::Norm);
      add("attn_k_norm.weight", {s_.head_dim}, Part::Norm);
    }
  }

  void mlp() {
    add("ffn_gate.weight", {s_.width, s_.hidden}, Part::Matrix);
    add("ffn_up.weight", {s_.width, s_.hidden}, Part::Matrix);
    add("ffn_down.weight", {s_.hidden, s_.width}, Part::Down);
  }

  void experts() {
    const int64_t n = s_.experts, width = s_.expert_width, shared = s_.shared_width;
    add("ffn_gate_inp.weight", {n, s_.hidden}, Part::Router);
    add("ffn_gate_exps.weight", {n, width, s_.hidden}, Part::Matrix);
    add("ffn_up_exps.weight", {n, width, s_.hidden}, Part::Matrix);
    add("ffn_down_exps.weight", {n, s_.hidden, width}, Part::Down);
    add("ffn_gate_inp_shexp.weight", {s_.hidden}, Part::Router);
    add("ffn_gate_shexp.weight", {shared, s_.hidden}, Part::Matrix);
    add("ffn_up_shexp.weight", {shared, s_.hidden}, Part::Matrix);
    add("ffn_down_shexp.weight", {s_.hidden, shared}, Part::Down);
  }

  void draft() {
    add("nextn.eh_proj.weight", {s_.hidden, 2 * s_.hidden}, Part::Matrix);
    add("nextn.enorm.weight", {s_.hidden}, Part::Norm);
    add("nextn.hnorm.weight", {s_.hidden}, Part::Norm);
    add("nextn.shared_head_norm.weight", {s_.hidden}, Part::Norm);
  }

  const Shape& s_;
  std::string block_;
  std::vector<ShapeTensor> list_;
};

float rope_base(std::string_view arch) {
  if (arch.starts_with("qwen35")) return 1e7f;
  return arch == "llama" ? 1e5f : 1e6f;
}

}  // namespace

std::span<const Shape> all_shapes() { return kShapes; }

const Shape* find_shape(std::string_view name) {
  const Shape* found =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& s) { return s.name() == name; });
  return found == std::end(kShapes) ? nullptr : found;
}

Metadata keys_of(const Shape& s) {
  Metadata keys;
  const std::string arch = s.arch;
  auto number = [&](const char* key, int64_t value) {
    keys.set(arch + "." + key, Value::u32(uint32_t(value)));
  };
  auto real = [&](const char* key, float value) { keys.set(arch + "." + key, Value::f32(value)); };
  keys.set("general.architecture", Value::text(arch));
  keys.set("general.type", Value::text("model"));
  keys.set("general.name", Value::text("Random " + s.name()));
  number("block_count", s.blocks());
  number("context_length", s.context);
  number("embedding_length", s.hidden);
  if (s.width > 0) number("feed_forward_length", s.width);
  number("attention.head_count", s.heads);
  number("attention.head_count_kv", s.kv_heads);
  number("attention.key_length", s.head_dim);
  number("attention.value_length", s.head_dim);
  real("attention.layer_norm_rms_epsilon", arch == "llama" ? 1e-5f : 1e-6f);
  real("rope.freq_base", rope_base(arch));
  number("rope.dimension_count", s.hybrid() ? s.rope_dims : s.head_dim);
  number("vocab_size", s.vocab);
  if (s.hybrid()) {
    // A third of the pairs each for time, height and width, rounded as in the published 11, 11, 10.
    const int32_t pairs = int32_t(s.rope_dims / 2), third = (pairs + 2) / 3;
    keys.set(arch + ".rope.dimension_sections", Value::i32s(std::array{third, third, pairs - 2 * third, 0}));
    number("ssm.conv_kernel", 4);
    number("ssm.state_size", s.delta_dim);
    number("ssm.group_count", s.key_heads);
    number("ssm.time_step_rank", s.value_heads);
    number("ssm.inner_size", s.value_heads * s.delta_dim);
    number("full_attention_interval", 4);
    number("nextn_predict_layers", 1);
  }
  if (s.experts > 0) {
    number("expert_count", s.experts);
    number("expert_used_count", s.experts_used);
    number("expert_feed_forward_length", s.expert_width);
    number("expert_shared_feed_forward_length", s.shared_width);
  }
  return keys;
}

std::vector<ShapeTensor> tensors_of(const Shape& shape) { return TensorList(shape).make(); }

}  // namespace invar
