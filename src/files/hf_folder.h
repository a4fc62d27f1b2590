// A Hugging Face checkpoint folder: config.json, safetensors (one file or shards), and the small files beside
// them, turned into GGUF keys, GGUF tensor names and recipes.  What belongs to one architecture is in
// hf_names.h.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "files/ggml_types.h"
#include "files/metadata.h"
#include "files/recipe.h"

namespace invar {

// What a folder says about text beside the keys; empty for a GGUF file.
struct FolderText {
  std::string tokenizer_path;  // tokenizer.json; empty when there is none
  std::string bos_token, eos_token;
  std::vector<int64_t> eos_ids;  // generation_config.json, else config.json
};

struct HfTensor {
  std::string name;  // the GGUF name; of a tensor nobody knows, its own
  std::vector<int64_t> shape;
  const GgmlType* type;
  Recipe recipe;
};

struct HfFolder {
  Metadata keys;
  std::vector<HfTensor> tensors;
  FolderText text;
  std::vector<File> files;
};

Result<HfFolder> open_hf_folder(const std::string& path);

}  // namespace invar
