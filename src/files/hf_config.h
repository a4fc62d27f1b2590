// config.json of a checkpoint folder as GGUF keys, and the numbers that the weight changes need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/hf_names.h"
#include "files/metadata.h"

namespace invar {

struct HfConfig {
  std::string path;  // of config.json, for errors
  const HfArchitecture* architecture = nullptr;
  Metadata keys;
  bool tied = false;  // the output matrix is the embedding
  int64_t layers = 0, mtp_layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t key_heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;  // delta net; dims of one head
  int64_t experts = 0;
  std::vector<bool> recurrent;      // one a trunk layer; empty: full_attention_interval says it
  std::vector<float> rope_factors;  // divisors of the rotary frequencies; empty: none
  std::vector<int64_t> eos_ids;
};

Result<HfConfig> parse_hf_config(std::string_view text, const std::string& path);
Result<HfConfig> read_hf_config(const std::string& folder);

}  // namespace invar
