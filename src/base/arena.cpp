#include "base/arena.h"

#include <cstring>
#include <sys/mman.h>

namespace invar {

Arena::~Arena() {
  if (mapping_) munmap(mapping_, size_t(mapping_bytes_));
}

bool Arena::reserve(int64_t bytes) {
  constexpr int64_t kHugePage = 2 << 20;
  CHECK(base_ == nullptr);
  mapping_bytes_ = bytes + kHugePage;  // begun at a huge page, so that all of it can be in such
  void* p = mmap(nullptr, size_t(mapping_bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  mapping_ = p;
  base_ = static_cast<char*>(p) + (kHugePage - reinterpret_cast<intptr_t>(p) % kHugePage);
  madvise(base_, size_t(bytes), MADV_HUGEPAGE);
  size_ = bytes;
  used_ = most_ = 0;
  return true;
}

void Arena::touch() { std::memset(base_, 0, size_t(size_)); }

}  // namespace invar
