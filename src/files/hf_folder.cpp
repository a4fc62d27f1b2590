#include "files/hf_folder.h"

namespace invar {

Result<HfFolder> open_hf_folder(const std::string& path) {
  return Error{Code::Unsupported, path, "expected a GGUF file, found a folder"};
}

}  // namespace invar
