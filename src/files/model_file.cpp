#include "files/model_file.h"

#include <sys/stat.h>

#include "base/check.h"
#include "files/gguf_split.h"
#include "files/hf_folder.h"

namespace invar {
namespace {

// From a shape [.., rows, cols] to the two dimensions the engine sees.
TensorEntry entry_of(std::string name, std::vector<int64_t> shape, const GgmlType& type) {
  TensorEntry entry;
  entry.cols = shape.back();
  for (size_t i = 0; i + 1 < shape.size(); ++i) entry.rows *= shape[i];
  entry.type = type.id;
  entry.format = type.name;
  entry.row_bytes = uint64_t(entry.cols / type.block_values) * uint64_t(type.block_bytes);
  entry.bytes = uint64_t(entry.rows) * entry.row_bytes;
  entry.layer = layer_of(name);
  entry.name = std::move(name);
  entry.shape = std::move(shape);
  return entry;
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::string& path, Need need) {
  struct stat status {};
  const bool is_folder = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  ModelFile model = is_folder ? TRY(open_folder(path)) : TRY(open_gguf(path, need));
  model.path_ = path;
  model.is_folder_ = is_folder;
  model.architecture_ = TRY(model.keys_.text("general.architecture"));
  return model;
}

Result<ModelFile> ModelFile::open_gguf(const std::string& path, Need need) {
  std::vector<GgufPart> parts = TRY(open_gguf_parts(path, need == Need::Data));
  ModelFile model;
  model.keys_ = std::move(parts[0].index.keys);
  for (GgufPart& part : parts) {
    for (GgufTensor& tensor : part.index.tensors) {
      Recipe recipe;
      recipe.sources = {{model.files_.size(), tensor.offset}};
      model.add_tensor(entry_of(std::move(tensor.name), {tensor.ne.rbegin(), tensor.ne.rend()}, *tensor.type),
                       std::move(recipe));
    }
    model.has_data_ = model.has_data_ && part.index.has_data;
    model.trailing_bytes_ += part.index.trailing_bytes;
    model.files_.push_back(std::move(part.file));
  }
  return model;
}

Result<ModelFile> ModelFile::open_folder(const std::string& path) {
  HfFolder folder = TRY(open_hf_folder(path));
  ModelFile model;
  model.keys_ = std::move(folder.keys);
  model.folder_text_ = std::move(folder.text);
  model.files_ = std::move(folder.files);
  for (HfTensor& tensor : folder.tensors)
    model.add_tensor(entry_of(std::move(tensor.name), std::move(tensor.shape), *tensor.type),
                     std::move(tensor.recipe));
  return model;
}

void ModelFile::add_tensor(TensorEntry entry, Recipe recipe) {
  entry.recipe = recipes_.size();
  CHECK(index_.emplace(entry.name, tensors_.size()).second);
  tensors_.push_back(std::move(entry));
  recipes_.push_back(std::move(recipe));
}

const TensorEntry* ModelFile::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

Status ModelFile::read(const TensorEntry& tensor, uint64_t offset, std::span<std::byte> out) const {
  CHECK(tensor.recipe < recipes_.size());
  CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  if (!has_data_) return bad_file(tensor.name, "truncated: the file holds no tensor data", path_);
  return read_recipe(files_, recipes_[tensor.recipe], offset, out);
}

std::string ModelFile::identity() const {
  std::string text;
  for (const File& file : files_) text += file.identity() + "\n";
  return text;
}

int layer_of(std::string_view tensor_name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!tensor_name.starts_with(kPrefix)) return -1;
  int layer = 0;
  size_t i = kPrefix.size();
  for (; i < tensor_name.size() && tensor_name[i] >= '0' && tensor_name[i] <= '9'; ++i) {
    if (i >= kPrefix.size() + 7) return -1;
    layer = 10 * layer + (tensor_name[i] - '0');
  }
  return i > kPrefix.size() && i < tensor_name.size() && tensor_name[i] == '.' ? layer : -1;
}

}  // namespace invar
