// A NumPy array file (format 1.0) of float32 rows, written row by row: the shape is known before the values.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace invar::cli {

std::string npy_header(int64_t rows, int64_t cols);

class NpyFile {
 public:
  static Result<NpyFile> make(const std::string& path, int64_t rows, int64_t cols);
  Status append(std::span<const float> row);
  Status close();

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  Error failure() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace invar::cli
