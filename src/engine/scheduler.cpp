#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace invar {

void Pace::learn(int64_t rows, double seconds) {
  if (rows <= 0 || !(seconds > 0)) return;  // a clock that stood still, or went back, teaches nothing
  const double fit = double(rows) * step_s_ / seconds;
  rows_ = seconds > step_s_ ? fit : std::max(rows_, std::min(fit, 2.0 * double(rows)));
}

int64_t Pace::rows() const { return int64_t(rows_); }

void Scheduler::insert(std::vector<Entry>& list, Entry entry) {
  list.insert(std::upper_bound(list.begin(), list.end(), entry), entry);
}

std::vector<Scheduler::Entry>::iterator Scheduler::find(std::vector<Entry>& list, uint64_t id) {
  return std::find_if(list.begin(), list.end(), [id](const Entry& e) { return e.ticket.id == id; });
}

void Scheduler::add(const Ticket& ticket) {
  insert(queue_, {ticket.arrived - ticket.priority * limits_.priority_s, ticket});
}

bool Scheduler::remove(uint64_t id) {
  for (auto* list : {&running_, &queue_})
    if (auto at = find(*list, id); at != list->end()) {
      list->erase(at);
      return true;
    }
  return false;
}

std::vector<uint64_t> Scheduler::expired(double now) const {
  std::vector<uint64_t> ids;
  for (const auto* list : {&running_, &queue_})
    for (const Entry& e : *list)
      if (std::min(e.ticket.deadline, list == &queue_ ? e.ticket.start_by : e.ticket.deadline) <= now)
        ids.push_back(e.ticket.id);
  return ids;
}

int64_t Scheduler::bytes_to(const Ticket& t) const {
  auto pages = [&](int64_t positions) {
    return (positions + limits_.page_positions - 1) / limits_.page_positions;
  };
  const int64_t wanted = std::min(t.most, t.tokens + limits_.growth);
  return std::max<int64_t>(0, pages(wanted) - pages(t.position)) * limits_.page_bytes;
}

std::optional<uint64_t> Scheduler::admit(int64_t free_bytes) {
  if (queue_.empty() || int64_t(running_.size()) >= limits_.running) return std::nullopt;
  for (const Entry& e : running_) free_bytes -= bytes_to(e.ticket);
  Entry& first = queue_.front();
  // One alone always fits: what could not was refused before it came here.
  if (!running_.empty() && bytes_to(first.ticket) + limits_.fixed_bytes > free_bytes) return std::nullopt;
  const uint64_t id = first.ticket.id;
  insert(running_, first);
  queue_.erase(queue_.begin());
  return id;
}

void Scheduler::update(uint64_t id, int64_t tokens, int64_t position, int64_t cut, bool answering) {
  auto at = find(running_, id);
  CHECK(at != running_.end() && position < tokens && cut > position);
  Ticket& t = at->ticket;
  t.tokens = tokens, t.position = position, t.cut = cut, t.answering = answering;
  t.held = false;
  t.start_by = std::numeric_limits<double>::infinity();
}

void Scheduler::hold(uint64_t id) {
  auto at = find(running_, id);
  CHECK(at != running_.end());
  at->ticket.held = true;
}

void Scheduler::await(uint64_t id, uint64_t reader, int64_t until) {
  auto at = find(running_, id);
  CHECK(at != running_.end());
  at->ticket.reader = reader, at->ticket.until = until;
}

std::vector<uint64_t> Scheduler::order(std::vector<uint64_t> ids) const {
  ids.clear();
  for (const Entry& e : running_) ids.push_back(e.ticket.id);
  return ids;
}

// `so_far`: the rows of those before it.
bool Scheduler::waits(const Ticket& t, const std::vector<Planned>& so_far, bool ends_now) const {
  if (t.reader == 0) return false;
  auto rows = std::find_if(so_far.begin(), so_far.end(), [&](const Planned& p) { return p.id == t.reader; });
  if (rows == so_far.end()) return false;
  const int64_t position = std::find_if(running_.begin(), running_.end(), [&](const Entry& e) {
                             return e.ticket.id == t.reader;
                           })->ticket.position;
  return position < t.until && (!ends_now || position + rows->rows >= t.until);
}

std::vector<Planned> Scheduler::plan(std::vector<Planned> rows) const {
  rows.clear();
  auto one_row = [](const Ticket& t) { return t.answering && t.tokens - t.position == 1; };
  for (const Entry& e : running_)
    if (one_row(e.ticket) && !e.ticket.held) rows.push_back({e.ticket.id, 1});
  const int64_t answers = int64_t(rows.size());
  int64_t room = limits_.prompt_rows;
  if (answers > 0)
    room = std::clamp(pace_.rows() - answers, std::min(limits_.least_piece, limits_.prompt_rows),
                      limits_.prompt_rows);
  room = std::min(room, most_rows() - answers);
  const size_t first = rows.size();
  const int64_t own = std::max(room / 2, std::min(limits_.least_piece, room));  // of the first, not lent
  for (const Entry& e : running_) {
    const Ticket& t = e.ticket;
    if (one_row(t) || t.held) continue;
    const int64_t left = t.tokens - t.position;
    const int64_t lends = rows.size() > first ? std::max<int64_t>(0, rows[first].rows - own) : 0;
    const bool ends_now = left <= room + lends;
    const int64_t n = std::min({ends_now ? left : room, left, t.cut - t.position});
    if (n == 0 || waits(t, rows, ends_now)) continue;
    if (n > room) rows[first].rows -= n - room;
    room -= std::min(n, room);
    rows.push_back({t.id, n});
  }
  return rows;
}

std::optional<uint64_t> Scheduler::victim() const {
  if (running_.empty()) return std::nullopt;
  return running_.back().ticket.id;
}

void Scheduler::preempt(uint64_t id) {
  auto at = find(running_, id);
  CHECK(at != running_.end());
  Entry entry = *at;
  entry.ticket.position = 0;
  entry.ticket.reader = 0;
  entry.ticket.held = false;
  running_.erase(at);
  insert(queue_, entry);
}

int64_t Scheduler::most_rows() const { return std::max(limits_.prompt_rows, limits_.running); }

}  // namespace invar
