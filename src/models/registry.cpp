// The list of architectures.
#include <string>

#include "models/model.h"

namespace invar {

extern const ModelDef kLlama, kQwen2, kQwen3;  // llama.cpp
extern const ModelDef kQwen35, kQwen35Moe;     // qwen35.cpp

std::span<const ModelDef> all_models() {
  static const ModelDef models[] = {kLlama, kQwen2, kQwen3, kQwen35, kQwen35Moe};
  return models;
}

const ModelDef* find_model(std::string_view arch) {
  for (const ModelDef& m : all_models())
    if (arch == m.arch) return &m;
  return nullptr;
}

Result<const ModelDef*> require_model(const std::string& arch) {
  if (const ModelDef* found = find_model(arch)) return found;
  std::string known;
  for (const ModelDef& m : all_models()) known += (known.empty() ? "" : ", ") + std::string(m.arch);
  return Error{Code::Unsupported, "general.architecture", "expected one of " + known + ", found " + arch};
}

}  // namespace invar
