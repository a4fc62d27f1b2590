#include "files/roles.h"

#include "files/model_file.h"

namespace invar {
namespace {

struct Rule {
  std::string_view start, end;  // of the name without blk.N. and without .weight, .bias, .scale
  const char* role;
};

// The first that fits.
constexpr Rule kRules[] = {
    {"nextn.", "", "mtp"},
    {"token_embd_norm", "", "norm"},
    {"token_embd", "", "embedding"},
    {"output_norm", "", "norm"},
    {"output", "", "output"},
    {"rope_", "", "rope"},
    {"", "_norm", "norm"},
    {"ssm_", "", "recurrent"},
    {"attn_gate", "", "recurrent"},
    {"attn_", "", "attention"},
    {"ffn_gate_inp", "", "router"},
    {"exp_probs_b", "", "router"},
    {"ffn_", "_exps", "expert"},
    {"ffn_", "_shexp", "shared expert"},
    {"ffn_", "", "mlp"},
};

std::string_view kind_of(std::string_view name) {
  if (layer_of(name) >= 0) name.remove_prefix(name.find('.', 4) + 1);
  for (const std::string_view end : {".weight", ".bias", ".scale"})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return name;
}

}  // namespace

const char* role_of(std::string_view architecture, std::string_view tensor_name) {
  const std::string_view kind = kind_of(tensor_name);
  if (kind == "attn_qkv" && (architecture == "qwen35" || architecture == "qwen35moe")) return "recurrent";
  for (const Rule& rule : kRules)
    if (kind.starts_with(rule.start) && kind.ends_with(rule.end)) return rule.role;
  return "other";
}

}  // namespace invar
