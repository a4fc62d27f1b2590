// What a sequence keeps between steps: pages of per-token state and fixed states.  Moves bytes; does not know
// what the layers put there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/operands.h"

namespace invar {

struct StateSpec {  // what one layer keeps; a model lists these
  enum Kind { PerToken, Fixed } kind;
  int64_t bytes;  // per position, or in all
};

// The memory behind all states: counts and bytes, no policy.  Pages take physical memory when they are first
// written.
class StatePool {
 public:
  // Room for `pages` pages of 64 positions and `sequences` sets of fixed states.
  static Result<std::unique_ptr<StatePool>> make(std::span<const StateSpec> layout, int64_t pages,
                                                 int64_t sequences);
  ~StatePool();
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  static int64_t page_bytes(std::span<const StateSpec> layout);
  static int64_t fixed_bytes(std::span<const StateSpec> layout);

  int64_t take_page();  // -1: none left
  void free_page(int64_t page) { free_pages_.push_back(page); }
  int64_t take_fixed();  // zeroed; -1: none left
  void free_fixed(int64_t set) { free_fixed_.push_back(set); }

  std::byte* page(int64_t page) const { return pages_ + page * page_bytes_; }
  std::byte* fixed(int64_t set) const { return fixed_ + set * fixed_bytes_; }
  int64_t offset(size_t spec) const { return offset_[spec]; }  // in a page, or in a set
  int64_t set_bytes() const { return fixed_bytes_; }

 private:
  StatePool() = default;

  std::vector<int64_t> offset_, free_pages_, free_fixed_;
  int64_t page_bytes_ = 0, fixed_bytes_ = 0, n_pages_ = 0, n_fixed_ = 0;
  int64_t fresh_pages_ = 0;  // pages from here on were never taken
  std::byte *pages_ = nullptr, *fixed_ = nullptr;
};

class SequenceState {  // the pool outlives it
 public:
  static std::unique_ptr<SequenceState> make(StatePool& pool);  // null: no fixed state left
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int64_t position() const { return position_; }  // rows that are final
  bool reserve(int64_t rows);                     // pages for `rows` more; false: no room, nothing changed
  void commit(int64_t rows) { position_ += rows; }

  // To go back to: the pages of a position stay as they are until other rows are written behind it.
  struct Mark {
    int64_t position;
    std::vector<std::byte> fixed;
  };
  Mark mark() const;
  void go_back(const Mark& mark);  // of this sequence, at or before its position

  std::span<std::byte* const> pages() const { return tables_; }
  int64_t page_offset(size_t spec) const { return pool_.offset(spec); }
  std::byte* fixed(size_t spec) const { return pool_.fixed(set_) + pool_.offset(spec); }

 private:
  SequenceState(StatePool& pool, int64_t set) : pool_(pool), set_(set) {}

  StatePool& pool_;
  int64_t set_, position_ = 0;
  std::vector<int64_t> pages_;
  std::vector<std::byte*> tables_;  // address of each page
};

}  // namespace invar
