#include "state/state.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#include "base/check.h"

namespace invar {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int64_t spec_bytes(const StateSpec& s) {
  return aligned(s.kind == StateSpec::PerToken ? s.bytes * kPagePositions : s.bytes);
}

int64_t sum_of(std::span<const StateSpec> layout, StateSpec::Kind kind) {
  int64_t sum = 0;
  for (const StateSpec& s : layout)
    if (s.kind == kind) sum += spec_bytes(s);
  return sum;
}

// Address space; physical memory comes with the first write.
std::byte* map(int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* p = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

}  // namespace

int64_t StatePool::page_bytes(std::span<const StateSpec> layout) {
  return sum_of(layout, StateSpec::PerToken);
}
int64_t StatePool::fixed_bytes(std::span<const StateSpec> layout) { return sum_of(layout, StateSpec::Fixed); }

Result<std::unique_ptr<StatePool>> StatePool::make(std::span<const StateSpec> layout, int64_t pages,
                                                   int64_t sequences) {
  std::unique_ptr<StatePool> pool(new StatePool);
  pool->page_bytes_ = page_bytes(layout);
  pool->fixed_bytes_ = fixed_bytes(layout);
  int64_t at[2] = {0, 0};
  for (const StateSpec& s : layout) {
    pool->offset_.push_back(at[s.kind]);
    at[s.kind] += spec_bytes(s);
  }
  pool->n_pages_ = pages;
  pool->n_fixed_ = sequences;
  for (int64_t i = sequences; i-- > 0;) pool->free_fixed_.push_back(i);
  int64_t page_total = pages * pool->page_bytes_, fixed_total = sequences * pool->fixed_bytes_;
  pool->pages_ = map(page_total);
  pool->fixed_ = map(fixed_total);
  if ((page_total && !pool->pages_) || (fixed_total && !pool->fixed_))
    return Error{
        Code::NoRoom, "state",
        "expected " + std::to_string(page_total + fixed_total) + " bytes of address space, found less"};
  return pool;
}

StatePool::~StatePool() {
  if (pages_) munmap(pages_, size_t(n_pages_ * page_bytes_));
  if (fixed_) munmap(fixed_, size_t(n_fixed_ * fixed_bytes_));
}

int64_t StatePool::take_page() {
  if (!free_pages_.empty()) {
    int64_t page = free_pages_.back();
    free_pages_.pop_back();
    return page;
  }
  return fresh_pages_ < n_pages_ ? fresh_pages_++ : -1;
}

int64_t StatePool::take_fixed() {
  if (free_fixed_.empty()) return -1;
  int64_t set = free_fixed_.back();
  free_fixed_.pop_back();
  if (fixed_bytes_) std::memset(fixed(set), 0, size_t(fixed_bytes_));
  return set;
}

std::unique_ptr<SequenceState> SequenceState::make(StatePool& pool) {
  int64_t set = pool.take_fixed();
  if (set < 0) return nullptr;
  return std::unique_ptr<SequenceState>(new SequenceState(pool, set));
}

SequenceState::~SequenceState() {
  for (int64_t page : pages_) pool_.free_page(page);
  pool_.free_fixed(set_);
}

bool SequenceState::reserve(int64_t rows) {
  size_t wanted = size_t((position_ + rows + kPagePositions - 1) / kPagePositions), before = pages_.size();
  while (pages_.size() < wanted) {
    int64_t page = pool_.take_page();
    if (page < 0) {
      for (; pages_.size() > before; pages_.pop_back(), tables_.pop_back()) pool_.free_page(pages_.back());
      return false;
    }
    pages_.push_back(page);
    tables_.push_back(pool_.page(page));
  }
  return true;
}

SequenceState::Mark SequenceState::mark() const {
  const std::byte* fixed = pool_.fixed(set_);
  return {position_, std::vector<std::byte>(fixed, fixed + pool_.set_bytes())};
}

void SequenceState::go_back(const Mark& mark) {
  CHECK(mark.position <= position_ && int64_t(mark.fixed.size()) == pool_.set_bytes());
  std::copy(mark.fixed.begin(), mark.fixed.end(), pool_.fixed(set_));
  position_ = mark.position;
}

}  // namespace invar
