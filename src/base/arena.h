// Memory for weights, and for one step: a bump allocator in huge pages that knows its high-water mark.  A dry
// arena only counts: what it hands out must not be touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace invar {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // From now on real, with this many bytes; false when the system has no address space for them.
  bool reserve(int64_t bytes);
  void touch();  // all of it into physical memory, so that no step waits for the system
  bool dry() const { return base_ == nullptr; }

  // 64-byte aligned; lives until `reset`.
  template <class T>
  T* take(int64_t n) {
    int64_t bytes = (n * int64_t(sizeof(T)) + 63) / 64 * 64;
    char* p = (dry() ? kNowhere : base_) + used_;
    used_ += bytes;
    if (used_ > most_) most_ = used_;
    CHECK(dry() || used_ <= size_);
    return reinterpret_cast<T*>(p);
  }

  void reset() { used_ = 0; }
  int64_t used() const { return used_; }
  void rewind(int64_t used) { used_ = used; }  // frees what was taken since `used()` said so
  int64_t most() const { return most_; }
  void forget_most() { most_ = used_; }

 private:
  static inline char* const kNowhere =
      reinterpret_cast<char*>(int64_t(1) << 40);  // so that views can be formed
  void* mapping_ = nullptr;
  char* base_ = nullptr;
  int64_t mapping_bytes_ = 0, size_ = 0, used_ = 0, most_ = 0;
};

}  // namespace invar
