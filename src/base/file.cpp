#include "base/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

namespace invar {
namespace {

constexpr std::string_view kPart = ".part";
constexpr size_t kMaxRead = size_t{1} << 30;  // one pread moves at most 2 GiB less a page

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "something else";
}

Error io_error(const std::string& path, const char* action) {
  const Code code = errno == ENOENT || errno == ENOTDIR ? Code::NotFound : Code::Io;
  return {code, path, std::string("cannot ") + action + ": " + std::strerror(errno)};
}

}  // namespace

Result<File> File::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return Error{Code::NotFound, "", "a file name holds a NUL byte"};
  // O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    if (errno == ENXIO)
      return Error{Code::BadFile, path, "expected a regular file, found a socket or a device"};
    return io_error(path, "open the file");
  }
  File file(descriptor, path, 0);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return io_error(path, "ask for the size of the file");
  if (!S_ISREG(status.st_mode))
    return Error{Code::BadFile, path,
                 std::string("expected a regular file, found ") + kind_of(status.st_mode)};
  file.size_ = uint64_t(status.st_size);
  return file;
}

File::File(int descriptor, std::string path, uint64_t size)
    : descriptor_(descriptor), path_(std::move(path)), size_(size) {}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string File::identity() const {
  struct stat s {};
  CHECK(::fstat(descriptor_, &s) == 0);  // an open file can always be asked
  std::string text;
  for (int64_t n : {int64_t(s.st_dev), int64_t(s.st_ino), int64_t(s.st_size), int64_t(s.st_mtim.tv_sec),
                    int64_t(s.st_mtim.tv_nsec), int64_t(s.st_ctim.tv_sec), int64_t(s.st_ctim.tv_nsec)})
    text += std::to_string(n) + " ";
  return text;
}

Result<std::span<const std::byte>> File::map() const {
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (p == MAP_FAILED) return io_error(path_, "map the file");
  return std::span(static_cast<const std::byte*>(p), size_);
}

Status File::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset)
    return Error{Code::Io, path_,
                 "expected " + std::to_string(out.size()) + " bytes at byte " + std::to_string(offset) +
                     ", but the file has " + std::to_string(size_)};
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), std::min(out.size(), kMaxRead), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_, "read the file");
    if (n == 0)
      return Error{Code::Io, path_,
                   "the file became shorter while it was read: it ends at byte " + std::to_string(offset)};
    out = out.subspan(size_t(n));
    offset += uint64_t(n);
  }
  return Ok{};
}

Result<NewFile> NewFile::create(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Error{Code::Io, path,
                 std::string("expected a regular file to replace, found ") + kind_of(status.st_mode)};
  static std::atomic<unsigned> number = 0;
  std::string part;
  for (int tries = 0; tries < 100; ++tries) {  // processes of two containers may have the same id
    part = path + "." + std::to_string(number++) + "." + std::to_string(::getpid()) + std::string(kPart);
    const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::flock(descriptor, LOCK_EX);  // where locks are not known, nobody removes what is left
      struct stat own {};
      if (::fstat(descriptor, &own) == 0 && own.st_nlink > 0) return NewFile(descriptor, path, part);
      ::close(descriptor);  // taken for abandoned before it was locked
    } else if (errno != EEXIST) {
      break;
    }
  }
  return io_error(part, "create the file");
}

NewFile::NewFile(int descriptor, std::string path, std::string part)
    : descriptor_(descriptor), path_(std::move(path)), part_(std::move(part)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      part_(std::exchange(other.part_, {})),
      buffer_(std::move(other.buffer_)) {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!part_.empty()) ::unlink(part_.c_str());
}

Status NewFile::write(std::span<const std::byte> bytes) {
  constexpr size_t kBuffer = 1 << 20;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBuffer - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + ptrdiff_t(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kBuffer) TRY(flush());
  }
  return Ok{};
}

Status NewFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::write(descriptor_, &buffer_[done], buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_, "write the file");
    done += size_t(n);
  }
  buffer_.clear();
  return Ok{};
}

Status NewFile::finish_as(const std::string& path) {
  TRY(flush());
  if (::fsync(descriptor_) != 0) return io_error(path_, "write the file to the disk");
  // Before the lock goes with the descriptor: nobody may take the file for abandoned.
  if (::rename(part_.c_str(), path.c_str()) != 0) return io_error(path, "move the file to its name");
  part_.clear();
  if (::close(std::exchange(descriptor_, -1)) != 0) return io_error(path_, "close the file");
  return Ok{};
}

bool remove_abandoned(const std::string& path) {
  std::string_view name = path;
  if (!name.ends_with(kPart)) return false;
  name.remove_suffix(kPart.size());
  const size_t dot = name.find_last_not_of("0123456789");
  if (dot == name.npos || dot + 1 == name.size() || name[dot] != '.') return false;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool dead = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
  ::close(descriptor);
  return dead;
}

Result<std::string> read_file(const std::string& path, uint64_t limit_bytes) {
  const File file = TRY(File::open(path));
  if (file.size() > limit_bytes)
    return Error{
        Code::BadFile, path,
        "expected at most " + std::to_string(limit_bytes) + " bytes, found " + std::to_string(file.size())};
  std::string text(file.size(), '\0');
  TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace invar
