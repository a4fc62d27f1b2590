// `invar inspect`: what a model file holds, without running it.
#include <cstdio>
#include <map>

#include "cli/command.h"
#include "cli/settings.h"
#include "files/fingerprint.h"
#include "files/roles.h"

namespace invar::cli {
namespace {

constexpr uint64_t kLongArray = 64;  // longer arrays are shown by type and count

struct Sum {
  int64_t tensors = 0, parameters = 0;
  uint64_t bytes = 0;
  void add(const TensorEntry& t) { ++tensors, parameters += t.rows * t.cols, bytes += t.bytes; }
  double bits() const { return parameters ? 8.0 * double(bytes) / double(parameters) : 0; }
  Json json() const {
    return {{"tensors", tensors}, {"parameters", parameters}, {"bytes", bytes}, {"bits_per_weight", bits()}};
  }
};

struct Overview {
  Sum all;
  std::map<std::string, Sum> by_role, by_format;
  int first_draft_layer = 0;  // blocks from here on are the draft head's
};

// A value that its getter refuses, such as a NaN, is null.
template <class T>
Json or_null(const Result<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const Metadata& keys, const Metadata::Entry& entry) {
  const std::string& key = entry.key;
  const Value& value = entry.value;
  if (value.is_array && value.count > kLongArray)
    return {{"array_of", name_of(value.type)}, {"count", value.count}};
  switch (value.type) {
    case ValueType::Text:
      return value.is_array ? or_null(keys.texts(key)) : or_null(keys.text(key));
    case ValueType::Bool:
      return value.is_array ? or_null(keys.booleans(key)) : or_null(keys.boolean(key));
    case ValueType::F32:
    case ValueType::F64:
      return value.is_array ? or_null(keys.reals(key)) : or_null(keys.real(key));
    default:
      return value.is_array ? or_null(keys.integers(key)) : or_null(keys.integer(key));
  }
}

std::string text_of(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 97) + "...";
  return text;
}

Result<Overview> look(const ModelFile& file) {
  Overview o;
  int64_t blocks = TRY(file.keys().integer_or(file.arch_key("block_count"), INT32_MAX, 0, INT32_MAX));
  int64_t drafts = TRY(file.keys().integer_or(file.arch_key("nextn_predict_layers"), 0, 0, blocks));
  o.first_draft_layer = int(blocks - drafts);
  for (const TensorEntry& t : file.tensors()) {
    o.all.add(t);
    o.by_role[role_of(file.architecture(), t.name)].add(t);
    o.by_format[t.format].add(t);
  }
  return o;
}

Json json_of(const std::map<std::string, Sum>& sums) {
  Json j = Json::object();
  for (auto& [name, sum] : sums) j[name] = sum.json();
  return j;
}

Json json_of(const ModelFile& file, const Overview& o, const std::string& fingerprint) {
  auto name = file.keys().text_or("general.name", "");
  Json j = {{"arch", file.architecture()},
            {"name", name ? *name : ""},
            {"parameters", o.all.parameters},
            {"bytes", o.all.bytes},
            {"bits_per_weight", o.all.bits()}};
  if (!fingerprint.empty()) j["fingerprint"] = fingerprint;
  j["metadata"] = Json::object();
  for (const Metadata::Entry& entry : file.keys().entries())
    j["metadata"][entry.key] = json_of(file.keys(), entry);
  j["tensors"] = Json::array();
  for (const TensorEntry& t : file.tensors())
    j["tensors"].push_back({{"name", t.name},
                            {"shape", t.shape},
                            {"format", t.format},
                            {"bytes", t.bytes},
                            {"role", role_of(file.architecture(), t.name)},
                            {"layer", t.layer < 0 ? Json(nullptr) : Json(t.layer)},
                            {"used", t.layer < o.first_draft_layer}});
  j["by_role"] = json_of(o.by_role);
  j["by_format"] = json_of(o.by_format);
  return j;
}

void append_table(std::string& out, const char* head, const std::map<std::string, Sum>& sums) {
  char line[160];
  std::snprintf(line, sizeof line, "\n%-16s %8s %16s %16s %8s\n", head, "tensors", "parameters", "bytes",
                "bits");
  out += line;
  for (auto& [name, sum] : sums) {
    std::snprintf(line, sizeof line, "%-16s %8lld %16lld %16llu %8.3f\n", name.c_str(),
                  static_cast<long long>(sum.tensors), static_cast<long long>(sum.parameters),
                  static_cast<unsigned long long>(sum.bytes), sum.bits());
    out += line;
  }
}

std::string page(const ModelFile& file, const Overview& o, const std::string& fingerprint, bool tensors) {
  std::string out;
  for (const Metadata::Entry& entry : file.keys().entries())
    out += text_of(Json(entry.key)) + " = " + text_of(json_of(file.keys(), entry)) + "\n";
  append_table(out, "role", o.by_role);
  append_table(out, "format", o.by_format);
  append_table(out, "", {{"all", o.all}});
  if (tensors) out += "\n";
  for (const TensorEntry& t : file.tensors())
    if (tensors) out += text_of(Json(t.name)) + " " + text_of(Json(t.shape)) + " " + t.format + "\n";
  if (!fingerprint.empty()) out += "\nfingerprint " + fingerprint + "\n";
  return out;
}

Result<int> run(std::span<const std::string> arguments) {
  std::string model, fingerprint;
  bool wants_fingerprint = false;
  Voice voice;
  Options options("inspect MODEL [options]",
                  "What a model file holds: keys, tensors by role and format, sizes.",
                  {"invar inspect model.gguf", "invar inspect model.gguf --fingerprint --json"});
  options.text("MODEL", model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  options.flag("--fingerprint", wants_fingerprint, "Also the digest of all weights, which reads them once");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;

  ModelFile file = TRY(ModelFile::open(model, wants_fingerprint ? Need::Data : Need::Header));
  Overview overview = TRY(look(file));
  if (wants_fingerprint) fingerprint = TRY(fingerprint_of(file));
  TRY(voice.json ? say_json(json_of(file, overview, fingerprint))
                 : say(page(file, overview, fingerprint, voice.verbose)));
  return 0;
}

}  // namespace

const Command inspect_command = {"inspect", "what a model file holds", run};

}  // namespace invar::cli
