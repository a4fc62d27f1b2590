#include "cli/npy.h"

#include <bit>
#include <cerrno>
#include <cstring>

namespace invar::cli {

static_assert(std::endian::native == std::endian::little, "the header says <f4");

std::string npy_header(int64_t rows, int64_t cols) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                     std::to_string(cols) + "), }";
  dict.resize((10 + dict.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  dict += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + char(dict.size() & 255) + char(dict.size() >> 8) + dict;
}

Result<NpyFile> NpyFile::make(const std::string& path, int64_t rows, int64_t cols) {
  NpyFile npy;
  npy.path_ = path;
  npy.file_.reset(std::fopen(path.c_str(), "wb"));
  std::string header = npy_header(rows, cols);
  if (!npy.file_ || std::fwrite(header.data(), 1, header.size(), npy.file_.get()) != header.size())
    return npy.failure();
  return npy;
}

Status NpyFile::append(std::span<const float> row) {
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_.get()) != row.size()) return failure();
  return Ok{};
}

Status NpyFile::close() {
  if (std::fclose(file_.release()) != 0) return failure();
  return Ok{};
}

Error NpyFile::failure() const {
  return {Code::Io, path_, std::string("expected to write the array, found: ") + std::strerror(errno)};
}

}  // namespace invar::cli
