// What a sequence keeps between steps, and snapshots of it.  Moves bytes; does not know what the layers put
// there.  Memory and counts are state_pool.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "state/state_pool.h"

namespace invar {

// A state at one position: never written again, cheap to copy.
struct Snapshot {
  int64_t position = 0;
  std::vector<PageRef> pages;  // of positions [0, position), 64 each; rows behind it mean nothing
  SetRef fixed;                // empty: the layout has no fixed states

  explicit operator bool() const { return position > 0; }
  // The pages and the set that it lacks for its position.  False: no room, then it is of no use.
  bool take_rest(StatePool& pool);
  // The state at an earlier position.  Only without fixed states, which know one position.
  Snapshot cut(int64_t at) const;
  int64_t bytes(const StatePool& pool) const;      // of its pages and its set, shared or not
  int64_t own_bytes(const StatePool& pool) const;  // of those that nobody else holds: what dropping it frees
};

class SequenceState {  // the pool outlives it
 public:
  // At position 0, or at a snapshot's.  Null: no room for its fixed states.
  static std::unique_ptr<SequenceState> make(StatePool& pool);
  static std::unique_ptr<SequenceState> make(StatePool& pool, const Snapshot& snapshot);
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int64_t position() const { return position_; }  // rows that are final

  // Room to write `rows` more; false: no room, nothing changed.  A last page that others share is copied
  // here.
  bool reserve(int64_t rows);
  // Its lists need not grow up to so many positions.
  void expect(int64_t positions);
  // Pages that reserve(rows) would take.
  int64_t wanted_pages(int64_t rows) const;

  // The first `rows` of the last pass are final; of these the fixed states hold the first `certain`, the
  // others wait in the journal until the next pass folds them.
  void commit(int64_t rows) { commit(rows, rows); }
  void commit(int64_t rows, int64_t certain);
  int64_t pending() const { return pending_; }
  void folded() { pending_ = 0; }  // the pass did

  // The position that a snapshot has: rows that wait in the journal are not in the fixed states, and whoever
  // goes on from it reads them again.
  int64_t settled() const { return set_ ? position_ - pending_ : position_; }
  // Nothing: no room for the copy of the fixed states.
  std::optional<Snapshot> snapshot() const;
  // The same without a copy: it holds until the next pass, or for good if there is none.
  Snapshot as_it_is() const { return with(set_.kept()); }
  // The same for good: the sequence ends.
  static Snapshot freeze(std::unique_ptr<SequenceState> state);
  // Takes no room: pages are shared, the fixed states copied into the sequence's own.
  void restore(const Snapshot& snapshot);

  std::span<std::byte* const> pages() const { return tables_; }
  int64_t page_offset(size_t spec) const { return pool_.offset(spec); }
  std::byte* fixed(size_t spec) const { return set_.data() + pool_.offset(spec); }

 private:
  SequenceState(StatePool& pool, SetRef set) : pool_(pool), set_(std::move(set)) {}
  bool copies() const;
  Snapshot with(SetRef fixed) const;

  StatePool& pool_;
  SetRef set_;
  int64_t position_ = 0, pending_ = 0;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> tables_;  // address of each page
};

}  // namespace invar
