#include "state/state.h"

#include <cstring>

#include "base/check.h"

namespace invar {
namespace {

int64_t pages_of(int64_t positions) { return (positions + kPagePositions - 1) / kPagePositions; }

}  // namespace

bool Snapshot::take_rest(StatePool& pool) {
  const int64_t lacking = pool.page_bytes() > 0 ? pages_of(position) - int64_t(pages.size()) : 0;
  if (lacking * pool.page_bytes() + (fixed ? 0 : pool.set_bytes()) > pool.room_bytes()) return false;
  for (int64_t i = 0; i < lacking; ++i) {
    pages.push_back(pool.take_page(/*live=*/false));
    if (!pages.back()) return false;
  }
  if (!fixed && pool.set_bytes() > 0) fixed = pool.take_set(/*live=*/false);
  return bool(fixed) == (pool.set_bytes() > 0);
}

Snapshot Snapshot::cut(int64_t at) const {
  CHECK(!fixed && at >= 0 && at <= position);
  return {at, {pages.begin(), pages.begin() + pages_of(at)}, {}};
}

int64_t Snapshot::bytes(const StatePool& pool) const {
  return int64_t(pages.size()) * pool.page_bytes() + (fixed ? pool.set_bytes() : 0);
}

int64_t Snapshot::own_bytes(const StatePool& pool) const {
  int64_t bytes = fixed && !fixed.shared() ? pool.set_bytes() : 0;
  for (const PageRef& page : pages) bytes += page.shared() ? 0 : pool.page_bytes();
  return bytes;
}

std::unique_ptr<SequenceState> SequenceState::make(StatePool& pool) {
  SetRef set = pool.take_set();
  if (!set && pool.set_bytes() > 0) return nullptr;
  if (set) std::memset(set.data(), 0, size_t(pool.set_bytes()));
  return std::unique_ptr<SequenceState>(new SequenceState(pool, std::move(set)));
}

std::unique_ptr<SequenceState> SequenceState::make(StatePool& pool, const Snapshot& snapshot) {
  if (!snapshot) return make(pool);
  SetRef set = pool.take_set();
  if (!set && pool.set_bytes() > 0) return nullptr;
  std::unique_ptr<SequenceState> state(new SequenceState(pool, std::move(set)));
  state->restore(snapshot);
  return state;
}

// The page that position_ cuts, if others share it.
bool SequenceState::copies() const {
  return position_ % kPagePositions != 0 && !pages_.empty() &&
         pages_[size_t(position_ / kPagePositions)].shared();
}

int64_t SequenceState::wanted_pages(int64_t rows) const {
  if (pool_.page_bytes() == 0 || rows == 0) return 0;
  return std::max<int64_t>(0, pages_of(position_ + rows) - int64_t(pages_.size())) + copies();
}

void SequenceState::expect(int64_t positions) {
  if (pool_.page_bytes() == 0) return;
  pages_.reserve(size_t(pages_of(positions)));
  tables_.reserve(pages_.capacity());
}

bool SequenceState::reserve(int64_t rows) {
  const int64_t wanted = wanted_pages(rows);
  if (wanted * pool_.page_bytes() > pool_.room_bytes()) return false;
  const size_t before = pages_.size();
  PageRef copy;
  if (copies() && rows > 0 && !(copy = pool_.take_page())) return false;
  while (int64_t(pages_.size() - before) + bool(copy) < wanted) {
    pages_.push_back(pool_.take_page());
    if (pages_.back()) continue;
    pages_.resize(before);
    return false;
  }
  const size_t last = size_t(position_ / kPagePositions);
  if (copy) {
    std::memcpy(copy.data(), pages_[last].data(), size_t(pool_.page_bytes()));
    pages_[last] = std::move(copy);
    tables_[last] = pages_[last].data();
  } else if (last < before && rows > 0) {
    pool_.renew(pages_[last]);
  }
  for (size_t i = before; i < pages_.size(); ++i) tables_.push_back(pages_[i].data());
  return true;
}

void SequenceState::commit(int64_t rows, int64_t certain) {
  CHECK(rows >= certain && certain >= 0);
  CHECK(pool_.page_bytes() == 0 || pages_of(position_ + rows) <= int64_t(pages_.size()));
  position_ += rows;
  pending_ = rows - certain;
}

Snapshot SequenceState::with(SetRef fixed) const {
  Snapshot snapshot{settled(), {}, std::move(fixed)};
  if (pages_.empty()) return snapshot;
  const auto pages = size_t(pages_of(snapshot.position));
  snapshot.pages.reserve(pages);
  for (size_t i = 0; i < pages; ++i) snapshot.pages.push_back(pages_[i].kept());
  return snapshot;
}

std::optional<Snapshot> SequenceState::snapshot() const {
  if (!set_) return with({});
  SetRef copy = pool_.take_set(/*live=*/false);
  if (!copy) return std::nullopt;
  std::memcpy(copy.data(), set_.data(), size_t(pool_.set_bytes()));
  return with(std::move(copy));
}

Snapshot SequenceState::freeze(std::unique_ptr<SequenceState> state) { return state->as_it_is(); }

void SequenceState::restore(const Snapshot& snapshot) {
  CHECK(bool(snapshot.fixed) == bool(set_));
  if (set_) std::memcpy(set_.data(), snapshot.fixed.data(), size_t(pool_.set_bytes()));
  position_ = snapshot.position;
  pending_ = 0;
  pages_.clear(), tables_.clear();  // those that the snapshot shares stay
  for (const PageRef& page : snapshot.pages) {
    pages_.push_back(page.live());
    tables_.push_back(page.data());
  }
}

}  // namespace invar
