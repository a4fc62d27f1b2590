#include "base/arena.h"

#include <sys/mman.h>

namespace invar {

Arena::~Arena() {
  if (base_) munmap(base_, size_t(size_));
}

bool Arena::reserve(int64_t bytes) {
  CHECK(base_ == nullptr);
  void* p = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  madvise(p, size_t(bytes), MADV_HUGEPAGE);
  base_ = static_cast<char*>(p);
  size_ = bytes;
  used_ = most_ = 0;
  return true;
}

}  // namespace invar
