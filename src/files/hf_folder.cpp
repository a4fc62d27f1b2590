#include "files/hf_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "files/byte_source.h"
#include "files/hf_config.h"
#include "files/hf_names.h"
#include "files/json_text.h"
#include "files/model_file.h"
#include "files/safetensors.h"

namespace invar {
namespace {

using nlohmann::json;

constexpr uint64_t kSmallFile = 64 << 20;

Result<FloatType> float_type_of(const SafeTensor& tensor, const std::string& file) {
  switch (tensor.dtype->ggml_type) {
    case kGgmlF32:
      return FloatType::F32;
    case kGgmlF16:
      return FloatType::F16;
    case kGgmlBF16:
      return FloatType::BF16;
    default:
      return file_error(Code::Unsupported, tensor.name,
                        std::string("expected values in F32, F16 or BF16, found ") + tensor.dtype->name,
                        file);
  }
}

const GgmlType* ggml_type_of(FloatType type) {
  return find_ggml_type(type == FloatType::F32 ? kGgmlF32 : type == FloatType::F16 ? kGgmlF16 : kGgmlBF16);
}

bool multiplies(const std::vector<int64_t>& shape, int64_t& product) {
  product = 1;
  for (const int64_t n : shape)
    if (n < 1 || __builtin_mul_overflow(product, n, &product)) return false;
  return true;
}

// Turns the tensors of the shards into those of a converted file.
class Converter {
 public:
  Converter(const HfConfig& config, const std::vector<File>& files) : config_(config), files_(files) {}

  Status add(const SafeTensor& tensor);
  Result<std::vector<HfTensor>> finish();
  bool has_mtp() const { return has_mtp_; }

 private:
  struct Stack {
    const HfName* rule;
    std::map<int, const SafeTensor*> experts;
  };

  const std::string& file_of(const SafeTensor& tensor) const { return files_[tensor.file].path(); }
  Error bad(const SafeTensor& tensor, const std::string& message) const {
    return bad_file(tensor.name, message, file_of(tensor));
  }
  Status keep(HfTensor made, const SafeTensor& from);
  Status keep_unknown(const SafeTensor& tensor);
  Result<HfTensor> convert(const SafeTensor& tensor, const HfName& rule, std::string name) const;
  Status set_orders(const SafeTensor& tensor, const HfName& rule, HfTensor& made) const;
  Status add_gate_up(const SafeTensor& tensor, const HfName& rule, const std::string& prefix);
  Result<HfTensor> stack(const std::string& name, const Stack& stack) const;

  const HfConfig& config_;
  const std::vector<File>& files_;
  std::vector<HfTensor> tensors_;
  std::unordered_set<std::string> names_;
  std::map<std::string, Stack> stacks_;
  bool has_mtp_ = false;
};

Status Converter::keep(HfTensor made, const SafeTensor& from) {
  if (!names_.insert(made.name).second) return bad(from, "a second tensor for " + made.name);
  tensors_.push_back(std::move(made));
  return Ok{};
}

// Kept under its own name, so that it is shown as unused and a model can refuse it.
Status Converter::keep_unknown(const SafeTensor& tensor) {
  const GgmlType* type = find_ggml_type(tensor.dtype->ggml_type);
  if (!type)
    return file_error(Code::Unsupported, tensor.name,
                      std::string("an unknown tensor of dtype ") + tensor.dtype->name, file_of(tensor));
  HfTensor made{tensor.name, tensor.shape, type, {}};
  if (made.shape.empty()) made.shape = {1};
  made.recipe.sources = {{tensor.file, tensor.offset}};
  return keep(std::move(made), tensor);
}

Status Converter::add(const SafeTensor& tensor) {
  const HfPlace place = place_hf_tensor(tensor.name, config_.architecture->family);
  if (place.kind == HfPlace::Skipped) return Ok{};
  int64_t elements = 0;
  if (!multiplies(tensor.shape, elements)) return bad(tensor, "expected dimensions of at least 1");
  const bool trunk = place.kind == HfPlace::Layer, mtp = place.kind == HfPlace::Mtp;
  if (place.kind == HfPlace::Unknown || (trunk && place.layer >= config_.layers)) return keep_unknown(tensor);
  has_mtp_ = has_mtp_ || mtp;

  const int64_t block = place.layer + (mtp ? config_.layers : 0);
  const std::string prefix = trunk || mtp ? "blk." + std::to_string(block) + "." : "";
  const HfName& rule = *place.rule;
  const std::string name = prefix + rule.gguf;
  if (config_.tied && name == "output.weight") return Ok{};
  if (rule.change == HfChange::GateUp) return add_gate_up(tensor, rule, prefix);
  if (rule.change == HfChange::Expert) {
    Stack& stack = stacks_[name];
    stack.rule = &rule;
    if (!stack.experts.emplace(place.expert, &tensor).second)
      return bad(tensor, "a second tensor for one expert");
    return Ok{};
  }
  return keep(TRY(convert(tensor, rule, name)), tensor);
}

Result<HfTensor> Converter::convert(const SafeTensor& tensor, const HfName& rule, std::string name) const {
  HfTensor made{std::move(name), tensor.shape, nullptr, {}};
  std::vector<int64_t>& shape = made.shape;
  if (rule.change == HfChange::Flat) {
    if (shape.size() != 2 || shape[0] != 1) return bad(tensor, "expected the shape [1, n]");
    shape = {shape[1]};
  }
  if (rule.change == HfChange::Conv) {
    if (shape.size() != 3 || shape[1] != 1) return bad(tensor, "expected the shape [channels, 1, taps]");
    shape = {shape[0], shape[2]};
  }
  if (shape.empty() || shape.size() > 4)
    return bad(tensor, "expected 1 to 4 dimensions, found " + std::to_string(shape.size()));

  Recipe& recipe = made.recipe;
  recipe.sources = {{tensor.file, tensor.offset}};
  recipe.change = rule.change == HfChange::AddOne       ? Change::AddOne
                  : rule.change == HfChange::HeadNegExp ? Change::NegExp
                                                        : Change::None;
  const bool wide = rule.wide || shape.size() == 1 || recipe.change != Change::None;
  recipe.from = TRY(float_type_of(tensor, file_of(tensor)));
  recipe.to = wide ? FloatType::F32 : recipe.from;
  made.type = ggml_type_of(recipe.to);
  recipe.cols = shape.size() == 1 ? 1 : shape.back();
  for (size_t i = 0; i < std::max<size_t>(1, shape.size() - 1); ++i) recipe.rows *= shape[i];
  TRY(set_orders(tensor, rule, made));
  recipe.as_stored = recipe.row_order.kind == Order::Same && recipe.col_order.kind == Order::Same &&
                     recipe.change == Change::None && recipe.from == recipe.to;
  return made;
}

// Also checks that the dimension which is cut into heads has the size that config.json gives.
Status Converter::set_orders(const SafeTensor& tensor, const HfName& rule, HfTensor& made) const {
  Recipe& recipe = made.recipe;
  const int64_t values = config_.value_heads * config_.value_dim;
  Order order{
      Order::ValueHeads, 0, config_.value_dim, config_.key_heads, config_.value_heads / config_.key_heads, 0};
  int64_t expected = values;
  switch (rule.change) {
    case HfChange::QkvRows:
    case HfChange::Conv:
      order.first = 2 * config_.key_heads * config_.key_dim;
      expected = order.first + values;
      break;
    case HfChange::ValueRows:
    case HfChange::ValueCols:
      break;
    case HfChange::HeadRows:
    case HfChange::HeadNegExp:
      order.head = 1;
      expected = config_.value_heads;
      break;
    case HfChange::QueryPairs:
    case HfChange::KeyPairs:
      order = {Order::RopePairs, 0, config_.head_dim, 1, 1, 0};
      expected = config_.head_dim * (rule.change == HfChange::QueryPairs ? config_.heads : config_.kv_heads);
      if (config_.head_dim % 2) return bad(tensor, "cannot pair the rows of heads of odd size");
      break;
    default:
      return Ok{};
  }
  const bool columns = rule.change == HfChange::ValueCols;
  const int64_t found = columns ? recipe.cols : recipe.rows;
  if (found != expected)
    return bad(tensor, std::string(columns ? "expected columns: " : "expected rows: ") +
                           std::to_string(expected) + ", from config.json; found " + std::to_string(found));
  (columns ? recipe.col_order : recipe.row_order) = order;
  return Ok{};
}

Status Converter::add_gate_up(const SafeTensor& tensor, const HfName& rule, const std::string& prefix) {
  HfTensor gate = TRY(convert(tensor, rule, prefix + rule.gguf));
  if (gate.shape.size() != 3 || gate.shape[1] % 2)
    return bad(tensor, "expected the shape [experts, 2 n, hidden]");
  gate.shape[1] /= 2;
  gate.recipe.rows /= 2;
  gate.recipe.row_order = {Order::Halves, 0, gate.shape[1], 1, 1, 0};
  gate.recipe.as_stored = false;
  HfTensor up = gate;
  up.name = prefix + "ffn_up_exps.weight";
  up.recipe.row_order.half = 1;
  TRY(keep(std::move(gate), tensor));
  return keep(std::move(up), tensor);
}

Result<HfTensor> Converter::stack(const std::string& name, const Stack& stack) const {
  const SafeTensor& first = *stack.experts.begin()->second;
  HfTensor made = TRY(convert(first, *stack.rule, name));
  if (made.shape.size() != 2) return bad(first, "expected 2 dimensions");
  const auto count = int64_t(stack.experts.size());
  if (count != config_.experts || stack.experts.rbegin()->first != count - 1)
    return bad(first, "expected experts 0 to " + std::to_string(config_.experts - 1) + ", found " +
                          std::to_string(count) + " of them, the last is " +
                          std::to_string(stack.experts.rbegin()->first));
  made.recipe.sources.clear();
  for (const auto& [number, tensor] : stack.experts) {
    if (tensor->shape != first.shape || tensor->dtype != first.dtype)
      return bad(*tensor, "its shape or dtype differs from that of expert 0");
    made.recipe.sources.push_back({tensor->file, tensor->offset});
  }
  made.shape.insert(made.shape.begin(), count);
  made.recipe.rows *= count;
  made.recipe.as_stored = false;
  return made;
}

Result<std::vector<HfTensor>> Converter::finish() {
  for (const auto& [name, experts] : stacks_)
    TRY(keep(TRY(stack(name, experts)), *experts.experts.begin()->second));
  if (!config_.rope_factors.empty()) {
    HfTensor made{"rope_freqs.weight", {int64_t(config_.rope_factors.size())}, find_ggml_type(kGgmlF32), {}};
    const auto bytes = std::as_bytes(std::span(config_.rope_factors));
    made.recipe.made.assign(bytes.begin(), bytes.end());
    tensors_.push_back(std::move(made));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const HfTensor& a, const HfTensor& b) {
    return std::pair(layer_of(a.name), std::string_view(a.name)) <
           std::pair(layer_of(b.name), std::string_view(b.name));
  });
  return std::move(tensors_);
}

// A small JSON file that a folder may lack; then an empty object.
Result<json> read_optional(const std::string& path) {
  Result<json> value = read_json(path, kSmallFile);
  if (!value && value.error().code == Code::NotFound) return json::object();
  if (value && !value->is_object()) return bad_file("", "expected a JSON object", path);
  return value;
}

// Recommended sampling, and the tokens that end an answer.
Status read_generation(const std::string& path, HfFolder& folder) {
  struct Rule {
    const char *hf, *gguf;
  };
  constexpr Rule kRules[] = {{"temperature", "temp"},
                             {"top_p", "top_p"},
                             {"min_p", "min_p"},
                             {"repetition_penalty", "penalty_repeat"}};
  const json config = TRY(read_optional(path));
  for (const Rule& rule : kRules) {
    if (!config.contains(rule.hf) || config[rule.hf].is_null()) continue;
    if (!config[rule.hf].is_number()) return bad_file(rule.hf, "expected a number", path);
    folder.keys.set(std::string("general.sampling.") + rule.gguf, Value::f32(config[rule.hf].get<float>()));
  }
  if (config.contains("do_sample") && config["do_sample"] == false)
    folder.keys.set("general.sampling.temp", Value::f32(0));
  if (config.contains("top_k") && !config["top_k"].is_null()) {
    if (!config["top_k"].is_number_unsigned() || config["top_k"].get<uint64_t>() > uint64_t(INT32_MAX))
      return bad_file("top_k", "expected a whole number", path);
    folder.keys.set("general.sampling.top_k", Value::u32(config["top_k"].get<uint32_t>()));
  }
  if (!config.contains("eos_token_id") || config["eos_token_id"].is_null()) return Ok{};
  const json& eos = config["eos_token_id"];
  folder.text.eos_ids.clear();
  for (const json& id : eos.is_array() ? eos : json::array({eos})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(INT32_MAX))
      return bad_file("eos_token_id", "expected token ids", path);
    folder.text.eos_ids.push_back(id.get<int64_t>());
  }
  return Ok{};
}

// "<s>", or {"content": "<s>", ...}.
Result<std::string> token_text(const json& config, const char* name, const std::string& path) {
  if (!config.contains(name) || config[name].is_null()) return std::string();
  const json& token = config[name];
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return bad_file(name, "expected a text or an object with content", path);
}

// A text, or a list of named ones of which "default" counts; empty if there is none.
Result<std::string> template_text(const json& config, const std::string& path) {
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return std::string();
  const json& value = config["chat_template"];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array())
    for (const json& item : value)
      if (item.is_object() && item.value("name", json()) == "default" &&
          item.value("template", json()).is_string())
        return item["template"].get<std::string>();
  return bad_file("chat_template", "expected a text or a list with the name \"default\"", path);
}

Status read_text_files(const std::string& path, HfFolder& folder) {
  const std::string tokenizer = path + "/tokenizer.json", config_path = path + "/tokenizer_config.json";
  std::error_code ignored;  // the answer "no" says all
  if (std::filesystem::exists(tokenizer, ignored)) folder.text.tokenizer_path = tokenizer;
  const json config = TRY(read_optional(config_path));
  folder.text.bos_token = TRY(token_text(config, "bos_token", config_path));
  folder.text.eos_token = TRY(token_text(config, "eos_token", config_path));
  if (config.contains("add_bos_token") && config["add_bos_token"].is_boolean())
    folder.keys.set("tokenizer.ggml.add_bos_token", Value::boolean(config["add_bos_token"].get<bool>()));

  Result<std::string> chat = read_file(path + "/chat_template.jinja", kSmallFile);
  if (!chat && chat.error().code == Code::NotFound) chat = template_text(config, config_path);
  const std::string text = TRY(std::move(chat));
  if (!text.empty()) folder.keys.set("tokenizer.chat_template", Value::text(text));
  return Ok{};
}

}  // namespace

Result<HfFolder> open_hf_folder(const std::string& path) {
  HfConfig config = TRY(read_hf_config(path));
  SafeShards shards = TRY(open_safetensors(path));
  Converter converter(config, shards.files);
  for (const SafeTensor& tensor : shards.tensors) TRY(converter.add(tensor));

  HfFolder folder;
  folder.tensors = TRY(converter.finish());
  const std::string prefix = std::string(config.architecture->arch) + ".";
  const int64_t mtp = converter.has_mtp() ? config.mtp_layers : 0;
  config.keys.set(prefix + "block_count", Value::u32(uint32_t(config.layers + mtp)));
  if (mtp) config.keys.set(prefix + "nextn_predict_layers", Value::u32(uint32_t(mtp)));
  if (!config.recurrent.empty()) {
    config.recurrent.resize(size_t(config.layers + mtp));  // an MTP block is never recurrent
    config.keys.set(prefix + "attention.recurrent_layers", Value::booleans(config.recurrent));
  }
  config.keys.set("general.name",
                  Value::text(std::filesystem::path(path + "/").parent_path().filename().string()));
  folder.keys = std::move(config.keys);
  folder.text.eos_ids = std::move(config.eos_ids);
  folder.files = std::move(shards.files);
  TRY(read_generation(path + "/generation_config.json", folder));
  TRY(read_text_files(path, folder));
  return folder;
}

}  // namespace invar
