// Files for reading, and new files.  Reads go through pread into memory of the caller: a file that
// shrinks or a disk that fails is an Error, never a signal (`map` is for our own files alone).  Directories,
// FIFOs and devices are refused without waiting for them.  What the bytes mean is the business of files/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar {

class File {
 public:
  static Result<File> open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Which file it is and when it was changed last, as text: another content has another one.
  std::string identity() const;

  // All of it in memory, read-only; the caller unmaps it, and it outlives this.  A file that is cut while it
  // is mapped ends the process, so this is for files that are only ever replaced.
  Result<std::span<const std::byte>> map() const;

  // Fills `out` whole or fails.  Any thread may call it.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  File(int descriptor, std::string path, uint64_t size);

  int descriptor_;
  std::string path_;
  uint64_t size_;
};

// A file that is being written, locked and under a name of its own until `finish` has put every byte on the
// disk and moved it to `path`.  Given up or failed, it leaves nothing behind.
class NewFile {
 public:
  static Result<NewFile> create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status write(std::span<const std::byte> bytes);  // buffered
  Status finish() { return finish_as(path_); }
  Status finish_as(const std::string& path);  // in the same folder

 private:
  NewFile(int descriptor, std::string path, std::string part);
  Status flush();

  int descriptor_;
  std::string path_, part_;
  std::vector<std::byte> buffer_;
};

// Removes a new file that its process left unfinished when it died.  False: it is none, or somebody writes
// it: this process or another, of this container or another that shares the folder.
bool remove_abandoned(const std::string& path);

// The whole of a small file; more than `limit_bytes` is an error.
Result<std::string> read_file(const std::string& path, uint64_t limit_bytes);

}  // namespace invar
