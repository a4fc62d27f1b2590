// The memory behind all states: pages of per-token state and sets of fixed states, in counted shares under
// one budget.  Keeps counts and bytes; who gives way when there is no room is decided elsewhere.  Address
// space is reserved at the start, physical memory comes with the first write and stays within the budget too.
// One thread owns the pool and every share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/operands.h"

namespace invar {

struct StateSpec {  // what one layer keeps; a model lists these
  enum Kind { PerToken, Fixed } kind;
  int64_t bytes;              // per position, or in all
  int64_t journal_bytes = 0;  // Fixed only: the inputs of one drafted row
};

class StatePool;

// A share of one page or of one set.  The last one gone frees it; the pool outlives them all.  A sequence
// that runs holds `live` shares, a snapshot the others: the pool tells them apart in its statistics.
template <StateSpec::Kind kind>
class StateRef {
 public:
  StateRef() = default;  // empty
  StateRef(const StateRef& other);
  StateRef(StateRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_), live_(other.live_) {}
  StateRef& operator=(StateRef other) noexcept {
    std::swap(pool_, other.pool_), std::swap(index_, other.index_), std::swap(live_, other.live_);
    return *this;
  }
  ~StateRef();

  explicit operator bool() const { return pool_ != nullptr; }
  bool operator==(const StateRef& other) const { return pool_ == other.pool_ && index_ == other.index_; }

  std::byte* data() const;
  bool shared() const;  // others hold it as well
  StateRef live() const { return {pool_, index_, true}; }
  StateRef kept() const { return {pool_, index_, false}; }

 private:
  friend StatePool;
  StateRef(StatePool* pool, int32_t index, bool live);

  StatePool* pool_ = nullptr;
  int32_t index_ = 0;
  bool live_ = false;
};

using PageRef = StateRef<StateSpec::PerToken>;
using SetRef = StateRef<StateSpec::Fixed>;

struct KindUse {
  int64_t live = 0;   // held by sequences that run
  int64_t kept = 0;   // held by snapshots alone
  int64_t spare = 0;  // free, but still in physical memory
  int64_t each_bytes = 0;
};

struct PoolUse {
  KindUse pages, sets;
  int64_t budget_bytes = 0, used_bytes = 0, resident_bytes = 0;
};

class StatePool {
 public:
  static Result<std::unique_ptr<StatePool>> make(std::span<const StateSpec> layout, int64_t budget_bytes);
  ~StatePool();
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  // Of a page, or of a set: whole pages of the system, so that each can be given back; 0: the layout has
  // none.
  static int64_t page_bytes(std::span<const StateSpec> layout);
  static int64_t set_bytes(std::span<const StateSpec> layout);
  int64_t page_bytes() const { return blocks_[StateSpec::PerToken].each_bytes; }
  int64_t set_bytes() const { return blocks_[StateSpec::Fixed].each_bytes; }
  int64_t offset(size_t spec) const { return offset_[spec]; }  // in a page, or in a set

  // What lies in it is what its last owner left.  Empty: no room, or the layout has no such state.
  PageRef take_page(bool live = true);
  SetRef take_set(bool live = true);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t used_bytes() const;      // at most the budget
  int64_t resident_bytes() const;  // used, spare, and the rest of huge pages; at most the budget
  int64_t room_bytes() const { return budget_bytes_ - used_bytes(); }
  PoolUse use() const;

  // A number that stands for the bytes of a page: written again, it gets another one.
  uint64_t version(const PageRef& page) const;
  void renew(const PageRef& page);

 private:
  template <StateSpec::Kind kind>
  friend class StateRef;

  struct Block {  // one page, or one set
    int32_t shares = 0, live = 0;
    uint64_t version = 0;
  };
  struct Blocks {
    std::byte* base = nullptr;
    int64_t each_bytes = 0, most = 0;
    std::vector<Block> all;              // those ever taken; from all.size() on never touched
    std::vector<int32_t> spare, absent;  // free ones: in physical memory; given back to the system
    int64_t used = 0, live = 0;
    // Attention reads 1.3 times as fast from huge pages.  The first write to one touches all of it, so small
    // blocks do without: they would hold much memory that nobody asked for.
    bool huge = false;
    int64_t touched = 0;         // bytes from `base` on that came, those of absent blocks included
    int64_t tail_bytes() const;  // touched, and of no block yet
    int64_t touched_with_one_more() const;
  };

  StatePool() = default;
  template <StateSpec::Kind kind>
  StateRef<kind> take(bool live);
  int32_t take_block(StateSpec::Kind kind);  // -1: no room
  void share(StateSpec::Kind kind, int32_t index, bool live);
  void drop(StateSpec::Kind kind, int32_t index, bool live);
  bool give_back(Blocks& blocks);
  static bool leave_huge_pages(Blocks& blocks);

  std::vector<int64_t> offset_;
  Blocks blocks_[2];
  int64_t budget_bytes_ = 0;
  uint64_t versions_ = 0;
};

}  // namespace invar
