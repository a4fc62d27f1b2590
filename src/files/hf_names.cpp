#include "files/hf_names.h"

#include <optional>

namespace invar {
namespace {

constexpr HfArchitecture kArchitectures[] = {
    {"Qwen3_5ForConditionalGeneration", "qwen35", kQwen35},
    {"Qwen3_5ForCausalLM", "qwen35", kQwen35},
    {"Qwen3_5MoeForConditionalGeneration", "qwen35moe", kQwen35Moe},
    {"Qwen3_5MoeForCausalLM", "qwen35moe", kQwen35Moe},
    {"LlamaForCausalLM", "llama", kLlama},
    {"MistralForCausalLM", "llama", kLlama},
    {"Qwen2ForCausalLM", "qwen2", kQwen2},
    {"Qwen3ForCausalLM", "qwen3", kQwen3},
};

// Block count, rotary dimensions, sections and scaling need arithmetic: hf_config.cpp.
constexpr HfKey kKeys[] = {
    {kAnyFamily, "max_position_embeddings", "context_length", HfKey::Integer, true},
    {kAnyFamily, "hidden_size", "embedding_length", HfKey::Integer, true},
    {kDense | kQwen35, "intermediate_size", "feed_forward_length", HfKey::Integer, true},
    {kAnyFamily, "num_attention_heads", "attention.head_count", HfKey::Integer, true},
    {kAnyFamily, "num_key_value_heads", "attention.head_count_kv", HfKey::Integer, false},
    {kAnyFamily, "rms_norm_eps", "attention.layer_norm_rms_epsilon", HfKey::Real, true},
    {kAnyFamily, "rope_theta", "rope.freq_base", HfKey::Real, false},
    {kAnyFamily, "vocab_size", "vocab_size", HfKey::Integer, true},
    {kAnyQwen35, "linear_conv_kernel_dim", "ssm.conv_kernel", HfKey::Integer, true},
    {kAnyQwen35, "linear_key_head_dim", "ssm.state_size", HfKey::Integer, true},
    {kAnyQwen35, "linear_num_key_heads", "ssm.group_count", HfKey::Integer, true},
    {kAnyQwen35, "linear_num_value_heads", "ssm.time_step_rank", HfKey::Integer, true},
    {kAnyQwen35, "full_attention_interval", "full_attention_interval", HfKey::Integer, false},
    {kQwen35Moe, "num_experts", "expert_count", HfKey::Integer, true},
    {kQwen35Moe, "num_experts_per_tok", "expert_used_count", HfKey::Integer, true},
    {kQwen35Moe, "moe_intermediate_size", "expert_feed_forward_length", HfKey::Integer, true},
    {kQwen35Moe, "shared_expert_intermediate_size", "expert_shared_feed_forward_length", HfKey::Integer,
     true},
};

constexpr HfName kTopNames[] = {
    {kAnyFamily, "embed_tokens.weight", "token_embd.weight"},
    {kAnyQwen35, "norm.weight", "output_norm.weight", HfChange::AddOne},
    {kDense, "norm.weight", "output_norm.weight"},
    {kAnyFamily, "lm_head.weight", "output.weight"},
};

// In the first MTP block.
constexpr HfName kMtpNames[] = {
    {kAnyQwen35, "fc.weight", "nextn.eh_proj.weight"},
    {kAnyQwen35, "pre_fc_norm_embedding.weight", "nextn.enorm.weight", HfChange::AddOne},
    {kAnyQwen35, "pre_fc_norm_hidden.weight", "nextn.hnorm.weight", HfChange::AddOne},
    {kAnyQwen35, "norm.weight", "nextn.shared_head_norm.weight", HfChange::AddOne},
};

constexpr HfName kLayerNames[] = {
    {kAnyQwen35, "input_layernorm.weight", "attn_norm.weight", HfChange::AddOne},
    {kAnyQwen35, "post_attention_layernorm.weight", "post_attention_norm.weight", HfChange::AddOne},
    {kAnyQwen35, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", HfChange::QkvRows},
    {kAnyQwen35, "linear_attn.in_proj_z.weight", "attn_gate.weight", HfChange::ValueRows},
    {kAnyQwen35, "linear_attn.in_proj_b.weight", "ssm_beta.weight", HfChange::HeadRows},
    {kAnyQwen35, "linear_attn.in_proj_a.weight", "ssm_alpha.weight", HfChange::HeadRows},
    {kAnyQwen35, "linear_attn.conv1d.weight", "ssm_conv1d.weight", HfChange::Conv, true},
    {kAnyQwen35, "linear_attn.A_log", "ssm_a", HfChange::HeadNegExp},
    {kAnyQwen35, "linear_attn.dt_bias", "ssm_dt.bias", HfChange::HeadRows},
    {kAnyQwen35, "linear_attn.norm.weight", "ssm_norm.weight"},
    {kAnyQwen35, "linear_attn.out_proj.weight", "ssm_out.weight", HfChange::ValueCols},
    {kAnyQwen35, "self_attn.q_norm.weight", "attn_q_norm.weight", HfChange::AddOne},
    {kAnyQwen35, "self_attn.k_norm.weight", "attn_k_norm.weight", HfChange::AddOne},
    {kQwen35Moe, "mlp.gate.weight", "ffn_gate_inp.weight", HfChange::None, true},
    {kQwen35Moe, "mlp.experts.gate_up_proj", "ffn_gate_exps.weight", HfChange::GateUp},
    {kQwen35Moe, "mlp.experts.down_proj", "ffn_down_exps.weight"},
    {kQwen35Moe, "mlp.experts.gate_proj.weight", "ffn_gate_exps.weight", HfChange::Expert},
    {kQwen35Moe, "mlp.experts.up_proj.weight", "ffn_up_exps.weight", HfChange::Expert},
    {kQwen35Moe, "mlp.experts.down_proj.weight", "ffn_down_exps.weight", HfChange::Expert},
    {kQwen35Moe, "mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {kQwen35Moe, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {kQwen35Moe, "mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {kQwen35Moe, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", HfChange::Flat},

    {kDense, "input_layernorm.weight", "attn_norm.weight"},
    {kDense, "post_attention_layernorm.weight", "ffn_norm.weight"},
    {kQwen3, "self_attn.q_norm.weight", "attn_q_norm.weight"},
    {kQwen3, "self_attn.k_norm.weight", "attn_k_norm.weight"},
    {kLlama, "self_attn.q_proj.weight", "attn_q.weight", HfChange::QueryPairs},
    {kLlama, "self_attn.k_proj.weight", "attn_k.weight", HfChange::KeyPairs},
    {kLlama, "self_attn.q_proj.bias", "attn_q.bias", HfChange::QueryPairs},
    {kLlama, "self_attn.k_proj.bias", "attn_k.bias", HfChange::KeyPairs},
    {kQwen2 | kQwen3, "self_attn.q_proj.bias", "attn_q.bias"},
    {kQwen2 | kQwen3, "self_attn.k_proj.bias", "attn_k.bias"},
    {kDense, "self_attn.v_proj.bias", "attn_v.bias"},
    {kDense, "self_attn.o_proj.bias", "attn_output.bias"},

    {kAnyQwen35 | kQwen2 | kQwen3, "self_attn.q_proj.weight", "attn_q.weight"},
    {kAnyQwen35 | kQwen2 | kQwen3, "self_attn.k_proj.weight", "attn_k.weight"},
    {kAnyFamily, "self_attn.v_proj.weight", "attn_v.weight"},
    {kAnyFamily, "self_attn.o_proj.weight", "attn_output.weight"},
    {kDense | kQwen35, "mlp.gate_proj.weight", "ffn_gate.weight"},
    {kDense | kQwen35, "mlp.up_proj.weight", "ffn_up.weight"},
    {kDense | kQwen35, "mlp.down_proj.weight", "ffn_down.weight"},
};

bool strip(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// Takes "12." off the front.
std::optional<int> strip_number(std::string_view& name) {
  const size_t dot = name.find('.');
  if (dot == 0 || dot > 6 || dot == std::string_view::npos) return std::nullopt;
  int number = 0;
  for (const char c : name.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  if (name[0] == '0' && dot > 1) return std::nullopt;  // "07" would be a second name of 7
  name.remove_prefix(dot + 1);
  return number;
}

const HfName* find_rule(std::span<const HfName> rules, std::string_view name, Family family) {
  for (const HfName& rule : rules)
    if ((rule.families & family) && name == rule.hf) return &rule;
  return nullptr;
}

// "mlp.experts.7.up_proj.weight" is looked up as "mlp.experts.up_proj.weight".
void find_in_layer(HfPlace& place, std::string_view name, Family family) {
  constexpr std::string_view kExperts = "mlp.experts.";
  std::string_view rest = name;
  if (strip(rest, kExperts)) {
    if (const std::optional<int> expert = strip_number(rest)) {
      place.rule = find_rule(kLayerNames, std::string(kExperts) + std::string(rest), family);
      if (place.rule && place.rule->change != HfChange::Expert) place.rule = nullptr;
      place.expert = *expert;
      return;
    }
  }
  place.rule = find_rule(kLayerNames, name, family);
  if (place.rule && place.rule->change == HfChange::Expert) place.rule = nullptr;
}

}  // namespace

std::span<const HfArchitecture> hf_architectures() { return kArchitectures; }
std::span<const HfKey> hf_keys() { return kKeys; }

HfPlace place_hf_tensor(std::string_view name, Family family) {
  HfPlace place;
  strip(name, "model.");
  strip(name, "language_model.");
  // The vision tower, and tables that old exporters stored though they follow from the config.
  if (name.starts_with("visual.") || name.ends_with(".rotary_emb.inv_freq")) {
    place.kind = HfPlace::Skipped;
    return place;
  }
  const bool mtp = strip(name, "mtp.");
  if (strip(name, "layers.")) {
    const std::optional<int> layer = strip_number(name);
    if (!layer) return place;
    place.layer = *layer;
    find_in_layer(place, name, family);
    if (place.rule) place.kind = mtp ? HfPlace::Mtp : HfPlace::Layer;
    return place;
  }
  place.rule = mtp ? find_rule(kMtpNames, name, family) : find_rule(kTopNames, name, family);
  if (place.rule) place.kind = mtp ? HfPlace::Mtp : HfPlace::Top;
  if (mtp) place.layer = 0;
  return place;
}

}  // namespace invar
