// Which requests get how many rows of the next step.  Keeps no clock, no device and no thread: time, room and
// costs are told to it, so that it can be tested by simulation.
//
// One order rules all: a request of priority p stands where one of priority 0 would that had come p *
// priority_s earlier.  The queue is served in that order and nobody is passed over, so a request waits only
// for those before it, and of a priority d above its own only those that came within d * priority_s after it.
// Every running answer gets its row in every step; the first prompt gets at least `least_piece` rows and half
// of the step's (or what is left of it, or up to its cut), so both end.  The other half it lends to those
// behind it that are short enough to end with that, so that a short prompt need not wait for a long one.  Two
// prompts that begin alike need not both be read: the later one may wait for the earlier, in steps in which
// that one reads on, and unless it could end in this step.  Who is pushed out when memory ends is the last in
// the order, and keeps its place in the queue: the first always goes on.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace invar {

// How many rows a step may have to stay within a time: learned from steps.  One that took longer sets the
// number in proportion; one that did not raises it, to twice its own rows at most, since a step also costs
// what does not depend on rows.
class Pace {
 public:
  explicit Pace(double step_s) : step_s_(step_s) {}
  void learn(int64_t rows, double seconds);
  int64_t rows() const;

 private:
  double step_s_, rows_ = 0;
};

struct SchedulerLimits {
  int64_t running = 16;       // requests with a state at once
  int64_t prompt_rows = 512;  // of a step
  int64_t least_piece = 16;   // prompt rows that a step takes, however slow it is
  double step_s = 0.25;       // what a step may take while answers run
  double priority_s = 30;     // what one level of priority is worth
  int64_t growth = 256;       // positions that a running answer is kept room for
  int64_t page_positions = 64, page_bytes = 0, fixed_bytes = 0;  // of the state
};

struct Ticket {  // what the scheduler knows of a request
  uint64_t id = 0;
  int priority = 0;
  double arrived = 0;
  double deadline = std::numeric_limits<double>::infinity();  // to end
  double start_by = std::numeric_limits<double>::infinity();  // to begin; once it has, it may be pushed out
  int64_t tokens = 0;                                         // prompt and answer so far
  int64_t most = 0;                                           // that it may come to
  int64_t position = 0;                                       // tokens that are read
  int64_t cut = std::numeric_limits<int64_t>::max();          // a piece ends here, for a snapshot
  bool answering = false;                                     // the prompt is read
  uint64_t reader = 0;  // reads what both begin with, to `until`; 0: nobody
  int64_t until = 0;
  bool held = false;
};

struct Planned {
  uint64_t id;
  int64_t rows;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits), pace_(limits.step_s) {}

  void add(const Ticket& ticket);  // to the queue
  bool remove(uint64_t id);        // ended, wherever it was; false: not known
  std::vector<uint64_t> expired(double now) const;

  // The next of the queue that there is room for; it runs from now on.  `free_bytes`: state that could be
  // taken now, at the cost of what is only kept for reuse.
  std::optional<uint64_t> admit(int64_t free_bytes);
  void update(uint64_t id, int64_t tokens, int64_t position, int64_t cut, bool answering);
  void hold(uint64_t id);  // it gets no rows until the next update
  // The state that the reader has at position `until` will be the request's as well.  Reader 0: no more.
  void await(uint64_t id, uint64_t reader, int64_t until);

  // Answers first, then pieces of prompts, both in the order.  `rows`: an earlier plan, for its memory.
  std::vector<Planned> plan(std::vector<Planned> rows = {}) const;
  void learn(int64_t rows, double seconds) { pace_.learn(rows, seconds); }

  std::optional<uint64_t> victim() const;  // of the running; none: nobody runs
  void preempt(uint64_t id);               // back to its place in the queue

  int64_t most_rows() const;                                          // of any plan
  std::vector<uint64_t> order(std::vector<uint64_t> ids = {}) const;  // of the running; `ids`: as above
  size_t running() const { return running_.size(); }
  size_t queued() const { return queue_.size(); }

 private:
  struct Entry {
    double place;  // in the order; then the id
    Ticket ticket;
    bool operator<(const Entry& other) const {
      return place != other.place ? place < other.place : ticket.id < other.ticket.id;
    }
  };
  static void insert(std::vector<Entry>& list, Entry entry);
  static std::vector<Entry>::iterator find(std::vector<Entry>& list, uint64_t id);
  bool waits(const Ticket& ticket, const std::vector<Planned>& so_far, bool ends_now) const;
  int64_t bytes_to(const Ticket& ticket) const;  // that the ticket still lacks for its prompt and some growth

  SchedulerLimits limits_;
  Pace pace_;
  std::vector<Entry> queue_, running_;  // both in the order
};

}  // namespace invar
