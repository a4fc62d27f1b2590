// A model as keys and named tensors.  A GGUF file (any part of a split one) and a Hugging Face folder look
// the same from here on: GGUF keys, GGUF tensor names, the values a converted file would hold.  Whether
// keys and tensors make sense together is left to the models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "files/hf_folder.h"
#include "files/metadata.h"
#include "files/recipe.h"

namespace invar {

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;  // [.., rows, cols]; a vector is [cols]
  int64_t rows = 1;            // all leading dimensions together: a stack of E matrices has E * I rows
  int64_t cols = 1;            // contiguous: the input features
  int32_t type = 0;            // ggml type number, see ggml_types.h
  const char* format = "";     // its name
  uint64_t row_bytes = 0;
  uint64_t bytes = 0;  // rows * row_bytes
  int layer = -1;      // N of `blk.N.`; -1 outside the blocks
  size_t recipe = 0;   // private to ModelFile: how to read it
};

enum class Need { Data, Header };  // Header: a file that ends before its tensor data will do

class ModelFile {
 public:
  static Result<ModelFile> open(const std::string& path, Need need = Need::Data);

  const std::string& path() const { return path_; }
  const std::string& architecture() const { return architecture_; }
  bool is_folder() const { return is_folder_; }
  bool has_data() const { return has_data_; }
  uint64_t trailing_bytes() const { return trailing_bytes_; }  // behind all tensors; harmless, but odd
  const FolderText& folder_text() const { return folder_text_; }

  const Metadata& keys() const { return keys_; }  // the typed getters are here
  std::string arch_key(std::string_view rest) const { return architecture_ + "." + std::string(rest); }

  std::span<const TensorEntry> tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // null when absent

  // Which files these are and when they were changed last, as text.
  std::string identity() const;

  // `out.size()` bytes of the tensor from byte `offset` of it.  Any thread may call it.
  Status read(const TensorEntry& tensor, uint64_t offset, std::span<std::byte> out) const;

 private:
  static Result<ModelFile> open_gguf(const std::string& path, Need need);
  static Result<ModelFile> open_folder(const std::string& path);
  void add_tensor(TensorEntry entry, Recipe recipe);

  std::string path_, architecture_;
  bool is_folder_ = false, has_data_ = true;
  uint64_t trailing_bytes_ = 0;
  FolderText folder_text_;
  Metadata keys_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<File> files_;
  std::vector<Recipe> recipes_;
};

int layer_of(std::string_view tensor_name);  // N of `blk.N.`; -1 otherwise

}  // namespace invar
