#include "files/hf_config.h"

#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "base/file.h"
#include "base/math.h"
#include "files/byte_source.h"
#include "files/json_text.h"

namespace invar {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSize = 1 << 20;  // of what is multiplied or sizes an array

// Looks names up where the published files keep them: in text_config of a multimodal model, rotary settings
// in an object of their own, the rest at the top.  null counts as absent.
class ConfigReader {
 public:
  ConfigReader(const json& root, std::string path) : root_(root), path_(std::move(path)) {
    if (const json* text = member(root_, "text_config"); text && text->is_object()) text_ = text;
    for (const char* name : {"rope_parameters", "rope_scaling"})
      if (const json* rope = member(*text_, name); rope && rope->is_object() && !rope_) rope_ = rope;
  }

  const json* find(const char* name) const {
    const json* found = rope_ ? member(*rope_, name) : nullptr;
    if (!found) found = member(*text_, name);
    return found ? found : member(root_, name);
  }

  Error bad(const char* name, const std::string& message) const { return bad_file(name, message, path_); }
  Error unsupported(const char* name, const std::string& message) const {
    return file_error(Code::Unsupported, name, message, path_);
  }

  Result<int64_t> integer(const char* name, std::optional<int64_t> fallback = {}, int64_t low = 0,
                          int64_t high = INT32_MAX) const {
    const json* value = find(name);
    if (!value && fallback) return *fallback;
    if (!value) return bad(name, "the name is missing");
    if (!value->is_number_unsigned() || value->get<uint64_t>() > uint64_t(high) ||
        value->get<int64_t>() < low)
      return bad(name, "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
                           ", found " + shown(*value));
    return value->get<int64_t>();
  }

  Result<double> real(const char* name, std::optional<double> fallback = {}) const {
    const json* value = find(name);
    if (!value && fallback) return *fallback;
    if (!value) return bad(name, "the name is missing");
    if (!value->is_number() || !std::isfinite(float(value->get<double>())))
      return bad(name, "expected a finite number, found " + shown(*value));
    return value->get<double>();
  }

  Result<bool> boolean(const char* name, bool fallback) const {
    const json* value = find(name);
    if (!value) return fallback;
    if (!value->is_boolean()) return bad(name, "expected true or false, found " + shown(*value));
    return value->get<bool>();
  }

  Result<std::string> text(const char* name, const std::string& fallback) const {
    const json* value = find(name);
    if (!value) return fallback;
    if (!value->is_string()) return bad(name, "expected text, found " + shown(*value));
    return value->get<std::string>();
  }

  // What the rotary object calls its kind; "default" without one.
  Result<std::string> rope_type() const {
    if (!rope_) return std::string("default");
    return text(member(*rope_, "rope_type") ? "rope_type" : "type", "default");
  }

  static std::string shown(const json& value) { return printable(value.dump()); }

 private:
  static const json* member(const json& object, const char* name) {
    const auto at = object.find(name);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }

  const json& root_;
  const json* text_ = &root_;
  const json* rope_ = nullptr;
  std::string path_;
};

Result<const HfArchitecture*> find_architecture(const json& root, const std::string& path) {
  const auto at = root.find("architectures");
  if (at == root.end() || !at->is_array() || at->size() != 1 || !(*at)[0].is_string())
    return bad_file("architectures", "expected an array of one text", path);
  const auto name = (*at)[0].get<std::string>();
  for (const HfArchitecture& architecture : hf_architectures())
    if (name == architecture.hf_class) return &architecture;
  return file_error(Code::Unsupported, "architectures", "\"" + printable(name) + "\" is not supported", path);
}

// Settings that GGUF files have no key for: only the published value is known.
Status check_fixed(const ConfigReader& in) {
  const std::string act = TRY(in.text("hidden_act", "silu"));
  if (act != "silu")
    return in.unsupported("hidden_act", "expected \"silu\", found \"" + printable(act) + "\"");
  const std::string gate = TRY(in.text("output_gate_type", "silu"));
  if (gate != "silu" && gate != "swish")
    return in.unsupported("output_gate_type",
                          "expected \"silu\" or \"swish\", found \"" + printable(gate) + "\"");
  if (!TRY(in.boolean("attn_output_gate", true)))
    return in.unsupported("attn_output_gate", "expected true, found false");
  if (in.find("quantization_config"))
    return in.unsupported("quantization_config",
                          "expected weights in BF16, F16 or F32, found quantized ones");
  return Ok{};
}

Status add_table_keys(const ConfigReader& in, const std::string& prefix, Family family, Metadata& keys) {
  for (const HfKey& rule : hf_keys()) {
    if (!(rule.families & family) || (!rule.required && !in.find(rule.hf))) continue;
    if (rule.kind == HfKey::Integer)
      keys.set(prefix + rule.gguf, Value::u32(uint32_t(TRY(in.integer(rule.hf)))));
    else keys.set(prefix + rule.gguf, Value::f32(float(TRY(in.real(rule.hf)))));
  }
  return Ok{};
}

Status read_shapes(const ConfigReader& in, HfConfig& config) {
  const Family family = config.architecture->family;
  config.layers = TRY(in.integer("num_hidden_layers", {}, 1, kMaxSize));
  config.heads = TRY(in.integer("num_attention_heads", {}, 1, kMaxSize));
  config.kv_heads = TRY(in.integer("num_key_value_heads", config.heads, 1, kMaxSize));
  const int64_t hidden = TRY(in.integer("hidden_size", {}, 1, kMaxSize));
  config.head_dim = TRY(in.integer("head_dim", hidden / config.heads, 1, kMaxSize));
  if (config.head_dim < 1) return in.bad("num_attention_heads", "expected at most hidden_size");
  config.tied = TRY(in.boolean("tie_word_embeddings", false));
  if (family & kAnyQwen35) {
    config.mtp_layers = TRY(in.integer("mtp_num_hidden_layers", 0, 0, kMaxSize));
    config.key_heads = TRY(in.integer("linear_num_key_heads", {}, 1, kMaxSize));
    config.value_heads = TRY(in.integer("linear_num_value_heads", {}, 1, kMaxSize));
    config.key_dim = TRY(in.integer("linear_key_head_dim", {}, 1, kMaxSize));
    config.value_dim = TRY(in.integer("linear_value_head_dim", {}, 1, kMaxSize));
    if (config.value_heads % config.key_heads)
      return in.bad("linear_num_value_heads", "expected a multiple of linear_num_key_heads");
    if (config.value_heads * config.value_dim > INT32_MAX)
      return in.bad("linear_value_head_dim", "the heads together have more than 2147483647 values");
  }
  if (family == kQwen35Moe) config.experts = TRY(in.integer("num_experts", {}, 1, kMaxSize));
  return Ok{};
}

// Llama 3.1 and later: long wavelengths are divided by `factor`, short ones stay, those between are blended.
Result<std::vector<float>> llama3_factors(const ConfigReader& in, int64_t dims) {
  const double factor = TRY(in.real("factor")), low = TRY(in.real("low_freq_factor")),
               high = TRY(in.real("high_freq_factor")), base = TRY(in.real("rope_theta", 10000.0)),
               length = TRY(in.real("original_max_position_embeddings"));
  if (!(factor > 0) || !(low > 0) || !(high > low) || !(base > 0) || !(length > 0))
    return in.bad("rope_scaling", "expected positive numbers, and low_freq_factor < high_freq_factor");
  std::vector<float> factors;
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double wave = 2 * std::numbers::pi * math::exp2(2.0 * double(i) / double(dims) * math::log2(base));
    double f = factor;
    if (wave < length / high) {
      f = 1;
    } else if (wave <= length / low) {
      const double t = (length / wave - low) / (high - low);
      f = 1 / ((1 - t) / factor + t);
    }
    factors.push_back(float(f));
  }
  return factors;
}

Status read_rope(const ConfigReader& in, const std::string& prefix, HfConfig& config) {
  const bool qwen35 = config.architecture->family & kAnyQwen35;
  const double part = TRY(in.real("partial_rotary_factor", qwen35 ? 0.25 : 1.0));
  if (!(part > 0 && part <= 1)) return in.bad("partial_rotary_factor", "expected more than 0, at most 1");
  const auto dims = int64_t(double(config.head_dim) * part);
  config.keys.set(prefix + "rope.dimension_count", Value::u32(uint32_t(dims)));

  if (const json* sections = in.find("mrope_section")) {
    std::vector<int32_t> values;
    if (!sections->is_array() || sections->size() > 4)
      return in.bad("mrope_section", "expected at most 4 numbers");
    for (const json& n : *sections) {
      if (!n.is_number_unsigned() || n.get<uint64_t>() > uint64_t(config.head_dim))
        return in.bad("mrope_section",
                      "expected whole numbers up to head_dim, found " + ConfigReader::shown(n));
      values.push_back(n.get<int32_t>());
    }
    values.resize(4);
    config.keys.set(prefix + "rope.dimension_sections", Value::i32s(values));
  }

  const std::string type = TRY(in.rope_type());
  if (type == "default" || type == "mrope") return Ok{};
  if (type == "llama3") {
    config.rope_factors = TRY(llama3_factors(in, dims));
    return Ok{};
  }
  config.keys.set(prefix + "rope.scaling.type", Value::text(type));
  if (in.find("factor"))
    config.keys.set(prefix + "rope.scaling.factor", Value::f32(float(TRY(in.real("factor")))));
  if (in.find("original_max_position_embeddings"))
    config.keys.set(prefix + "rope.scaling.original_context_length",
                    Value::u32(uint32_t(TRY(in.integer("original_max_position_embeddings")))));
  return Ok{};
}

// Qwen2 and Qwen3 name a window that is off unless use_sliding_window says otherwise.
Status read_window(const ConfigReader& in, const std::string& prefix, HfConfig& config) {
  if (!(config.architecture->family & kDense) || !in.find("sliding_window")) return Ok{};
  if (!TRY(in.boolean("use_sliding_window", config.architecture->family == kLlama))) return Ok{};
  config.keys.set(prefix + "attention.sliding_window",
                  Value::u32(uint32_t(TRY(in.integer("sliding_window")))));
  return Ok{};
}

// Which trunk layers are recurrent, where the config lists them and the interval does not say the same.
Status read_layer_types(const ConfigReader& in, HfConfig& config) {
  const json* types = in.find("layer_types");
  if (!(config.architecture->family & kAnyQwen35) || !types) return Ok{};
  const int64_t interval = TRY(in.integer("full_attention_interval", 4, 1));
  if (!types->is_array() || int64_t(types->size()) != config.layers)
    return in.bad("layer_types",
                  "expected one entry for each of " + std::to_string(config.layers) + " layers");
  std::vector<bool> recurrent;
  bool as_interval = true;
  for (const json& type : *types) {
    if (type != "linear_attention" && type != "full_attention")
      return in.unsupported(
          "layer_types", "expected linear_attention or full_attention, found " + ConfigReader::shown(type));
    recurrent.push_back(type == "linear_attention");
    as_interval = as_interval && recurrent.back() == (int64_t(recurrent.size()) % interval != 0);
  }
  if (!as_interval) config.recurrent = std::move(recurrent);
  return Ok{};
}

Status read_token_ids(const ConfigReader& in, HfConfig& config) {
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const json* value = in.find(name);
    if (!value) continue;
    const bool many = value->is_array() && !value->empty();
    std::vector<int64_t> ids;
    for (const json& id : many ? *value : json::array({*value})) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(INT32_MAX))
        return in.bad(name, "expected a token id, found " + ConfigReader::shown(id));
      ids.push_back(id.get<int64_t>());
    }
    const std::string key = std::string(name) == "pad_token_id" ? "padding_token_id" : name;
    config.keys.set("tokenizer.ggml." + key, Value::u32(uint32_t(ids[0])));
    if (key == "eos_token_id") config.eos_ids = ids;
  }
  return Ok{};
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view text, const std::string& path) {
  HfConfig config;
  config.path = path;
  const json root = TRY(parse_json(text, path));
  if (!root.is_object()) return bad_file("", "expected a JSON object", config.path);
  config.architecture = TRY(find_architecture(root, config.path));
  config.keys = Metadata(config.path);

  const ConfigReader in(root, config.path);
  const std::string arch = config.architecture->arch, prefix = arch + ".";
  config.keys.set("general.architecture", Value::text(arch));
  TRY(check_fixed(in));
  TRY(add_table_keys(in, prefix, config.architecture->family, config.keys));
  TRY(read_shapes(in, config));
  const auto head_dim = uint32_t(config.head_dim);
  config.keys.set(prefix + "attention.key_length", Value::u32(head_dim));
  config.keys.set(prefix + "attention.value_length", Value::u32(head_dim));
  if (config.architecture->family & kAnyQwen35)
    config.keys.set(prefix + "ssm.inner_size", Value::u32(uint32_t(config.value_heads * config.value_dim)));
  TRY(read_rope(in, prefix, config));
  TRY(read_window(in, prefix, config));
  TRY(read_layer_types(in, config));
  TRY(read_token_ids(in, config));
  return config;
}

Result<HfConfig> read_hf_config(const std::string& folder) {
  constexpr uint64_t kLimit = 16 << 20;
  const std::string path = folder + "/config.json";
  return parse_hf_config(TRY(read_file(path, kLimit)), path);
}

}  // namespace invar
