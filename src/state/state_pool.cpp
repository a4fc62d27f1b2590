#include "state/state_pool.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <sys/mman.h>

#include "base/check.h"

namespace invar {
namespace {

constexpr int64_t kAlign = 64;    // of one layer's part
constexpr int64_t kGrain = 4096;  // what the system takes back
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLarge = 256 << 10;     // blocks from here on lie in huge pages
constexpr int64_t kMostListed = 1 << 20;  // blocks that the lists have room for from the start

int64_t rounded(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

int64_t spec_bytes(const StateSpec& s) {
  return rounded(s.kind == StateSpec::PerToken ? s.bytes * kPagePositions : s.bytes, kAlign);
}

int64_t sum_of(std::span<const StateSpec> layout, StateSpec::Kind kind) {
  int64_t sum = 0;
  for (const StateSpec& s : layout)
    if (s.kind == kind) sum += spec_bytes(s);
  return rounded(sum, kGrain);
}

// Address space from the start of a huge page on; physical memory comes with the first write.
std::byte* map(int64_t bytes) {
  const int64_t most = bytes + kHugePage;
  void* p =
      mmap(nullptr, size_t(most), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(p);
  const int64_t before = rounded(int64_t(uintptr_t(p)), kHugePage) - int64_t(uintptr_t(p));
  if (before > 0) munmap(first, size_t(before));
  munmap(first + before + bytes, size_t(most - before - bytes));
  return first + before;
}

}  // namespace

int64_t StatePool::page_bytes(std::span<const StateSpec> layout) {
  return sum_of(layout, StateSpec::PerToken);
}
int64_t StatePool::set_bytes(std::span<const StateSpec> layout) { return sum_of(layout, StateSpec::Fixed); }

Result<std::unique_ptr<StatePool>> StatePool::make(std::span<const StateSpec> layout, int64_t budget_bytes) {
  std::unique_ptr<StatePool> pool(new StatePool);
  pool->budget_bytes_ = std::max<int64_t>(0, budget_bytes);
  int64_t at[2] = {0, 0};
  for (const StateSpec& s : layout) {
    pool->offset_.push_back(at[s.kind]);
    at[s.kind] += spec_bytes(s);
  }
  for (StateSpec::Kind kind : {StateSpec::PerToken, StateSpec::Fixed}) {
    Blocks& b = pool->blocks_[kind];
    b.each_bytes = sum_of(layout, kind);
    if (b.each_bytes == 0) continue;
    b.most = std::min<int64_t>(pool->budget_bytes_ / b.each_bytes, std::numeric_limits<int32_t>::max());
    if (b.most > 0) {
      b.base = map(b.most * b.each_bytes);
      if (!b.base)
        return Error{
            Code::NoRoom, "state",
            "expected " + std::to_string(b.most * b.each_bytes) + " bytes of address space, found less"};
      b.huge = b.each_bytes >= kLarge;
      // Advice: a kernel without huge pages refuses it.
      (void)madvise(b.base, size_t(b.most * b.each_bytes), b.huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    const auto listed = size_t(std::min(b.most, kMostListed));
    b.all.reserve(listed), b.spare.reserve(listed), b.absent.reserve(listed);
  }
  return pool;
}

StatePool::~StatePool() {
  for (Blocks& b : blocks_) {
    CHECK(b.used == 0);  // a share would point into nothing
    if (b.base) munmap(b.base, size_t(b.most * b.each_bytes));
  }
}

int64_t StatePool::used_bytes() const {
  return blocks_[0].used * blocks_[0].each_bytes + blocks_[1].used * blocks_[1].each_bytes;
}

int64_t StatePool::resident_bytes() const {
  int64_t bytes = used_bytes();
  for (const Blocks& b : blocks_) bytes += int64_t(b.spare.size()) * b.each_bytes + b.tail_bytes();
  return bytes;
}

int64_t StatePool::Blocks::tail_bytes() const { return touched - int64_t(all.size()) * each_bytes; }

int64_t StatePool::Blocks::touched_with_one_more() const {
  const int64_t bytes = (int64_t(all.size()) + 1) * each_bytes;
  return std::max(touched, huge ? std::min(rounded(bytes, kHugePage), most * each_bytes) : bytes);
}

PoolUse StatePool::use() const {
  auto of = [](const Blocks& b) {
    return KindUse{b.live, b.used - b.live, int64_t(b.spare.size()), b.each_bytes};
  };
  return {of(blocks_[StateSpec::PerToken]), of(blocks_[StateSpec::Fixed]), budget_bytes_, used_bytes(),
          resident_bytes()};
}

int32_t StatePool::take_block(StateSpec::Kind kind) {
  Blocks& own = blocks_[kind];
  if (own.each_bytes == 0 || own.used == own.most || used_bytes() + own.each_bytes > budget_bytes_) return -1;
  if (own.spare.empty()) {
    Blocks& other = blocks_[kind == StateSpec::Fixed ? StateSpec::PerToken : StateSpec::Fixed];
    auto growth = [&] {
      return own.absent.empty() ? own.touched_with_one_more() - own.touched : own.each_bytes;
    };
    while (resident_bytes() + growth() > budget_bytes_)
      if (!give_back(other) && !leave_huge_pages(other) && !leave_huge_pages(own)) return -1;
    if (own.absent.empty()) {
      own.touched = own.touched_with_one_more();
      own.absent.push_back(int32_t(own.all.size()));
      own.all.emplace_back();
    }
  }
  std::vector<int32_t>& from = own.spare.empty() ? own.absent : own.spare;
  const int32_t index = from.back();
  from.pop_back();
  own.used += 1;
  own.all[size_t(index)].version = ++versions_;
  return index;
}

// One free block to the system; false: there is none, or its memory is locked.
bool StatePool::give_back(Blocks& blocks) {
  if (blocks.spare.empty()) return false;
  leave_huge_pages(blocks);  // they would bring back what lies beside memory in use
  const int32_t index = blocks.spare.back();
  if (madvise(blocks.base + index * blocks.each_bytes, size_t(blocks.each_bytes), MADV_DONTNEED) != 0)
    return false;
  blocks.spare.pop_back();
  blocks.absent.push_back(index);
  return true;
}

// What is touched from now on comes in small pages, and what no block has reached goes back to the system.
// False: it is so already.
bool StatePool::leave_huge_pages(Blocks& blocks) {
  if (!blocks.huge) return false;
  blocks.huge = false;
  (void)madvise(blocks.base, size_t(blocks.most * blocks.each_bytes), MADV_NOHUGEPAGE);
  std::byte* const tail = blocks.base + blocks.touched - blocks.tail_bytes();
  if (blocks.tail_bytes() > 0 && madvise(tail, size_t(blocks.tail_bytes()), MADV_DONTNEED) == 0)
    blocks.touched -= blocks.tail_bytes();
  return true;
}

void StatePool::share(StateSpec::Kind kind, int32_t index, bool live) {
  Block& block = blocks_[kind].all[size_t(index)];
  block.shares += 1;
  if (live && block.live++ == 0) blocks_[kind].live += 1;
}

void StatePool::drop(StateSpec::Kind kind, int32_t index, bool live) {
  Blocks& blocks = blocks_[kind];
  Block& block = blocks.all[size_t(index)];
  if (live && --block.live == 0) blocks.live -= 1;
  if (--block.shares > 0) return;
  CHECK(block.live == 0);
  blocks.used -= 1;
  blocks.spare.push_back(index);
}

template <StateSpec::Kind kind>
StateRef<kind> StatePool::take(bool live) {
  const int32_t index = take_block(kind);
  return index < 0 ? StateRef<kind>() : StateRef<kind>(this, index, live);
}

PageRef StatePool::take_page(bool live) { return take<StateSpec::PerToken>(live); }
SetRef StatePool::take_set(bool live) { return take<StateSpec::Fixed>(live); }

uint64_t StatePool::version(const PageRef& page) const {
  return blocks_[StateSpec::PerToken].all[size_t(page.index_)].version;
}
void StatePool::renew(const PageRef& page) {
  blocks_[StateSpec::PerToken].all[size_t(page.index_)].version = ++versions_;
}

template <StateSpec::Kind kind>
StateRef<kind>::StateRef(StatePool* pool, int32_t index, bool live)
    : pool_(pool), index_(index), live_(live) {
  if (pool_) pool_->share(kind, index_, live_);
}

template <StateSpec::Kind kind>
StateRef<kind>::StateRef(const StateRef& other) : StateRef(other.pool_, other.index_, other.live_) {}

template <StateSpec::Kind kind>
StateRef<kind>::~StateRef() {
  if (pool_) pool_->drop(kind, index_, live_);
}

template <StateSpec::Kind kind>
std::byte* StateRef<kind>::data() const {
  if (!pool_) return nullptr;
  return pool_->blocks_[kind].base + index_ * pool_->blocks_[kind].each_bytes;
}

template <StateSpec::Kind kind>
bool StateRef<kind>::shared() const {
  return pool_ && pool_->blocks_[kind].all[size_t(index_)].shares > 1;
}

template class StateRef<StateSpec::PerToken>;
template class StateRef<StateSpec::Fixed>;

}  // namespace invar
