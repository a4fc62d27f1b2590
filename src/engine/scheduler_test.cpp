// Thousands of random arrival patterns on a machine that is only numbers: rows cost time, positions cost
// pages.
#include "engine/scheduler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace invar {
namespace {

constexpr int64_t kPage = 64;
int64_t pages_of(int64_t positions) { return (positions + kPage - 1) / kPage; }

struct Job {
  Ticket ticket;
  int64_t prompt = 0, answer = 0;
  int ended = 0;
  bool runs = false;
  int64_t began_at = 0;  // the position it was admitted with
  uint64_t reader = 0;   // that it waits for, and to which position
  int64_t until = 0;
  double held_until = -1;  // it waits for the disk
  double answered = -1;    // when it got its row in the step before this one
  double cancel = std::numeric_limits<double>::infinity();

  int64_t bytes(const SchedulerLimits& l, int64_t position) const {
    return l.fixed_bytes + pages_of(position) * l.page_bytes;
  }
};

struct Pattern {
  SchedulerLimits limits;
  int64_t memory = 0;
  double base_s = 0, row_s = 0, noise = 0;
  bool alike = false;  // prompts begin alike
  std::vector<Job> jobs;
};

Pattern draw(std::mt19937& random) {
  auto whole = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  auto real = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  Pattern p;
  p.limits.running = whole(1, 12);
  p.limits.prompt_rows = whole(1, 3) == 1 ? whole(1, 32) : whole(64, 512);
  p.limits.page_bytes = whole(0, 3) ? 100 : 0;  // none: a model with fixed states alone
  p.limits.fixed_bytes = whole(0, 1) * 1000;
  p.limits.growth = whole(0, 256);
  p.base_s = real(0.001, 0.1);
  p.row_s = real(0.0001, 0.01);
  p.noise = real(0, 0.2);
  p.alike = whole(0, 1) == 1;
  const double gap = real(0, 3);
  const int64_t longest = whole(0, 3) ? 400 : 3000;
  for (int64_t n = whole(1, 30), i = 0; i < n; ++i) {
    Job job;
    job.prompt = whole(1, longest);
    job.answer = whole(0, 60);
    job.ticket = {uint64_t(i + 1), int(whole(-1, 1)), (i ? p.jobs.back().ticket.arrived : 0) + real(0, gap)};
    job.ticket.tokens = job.prompt;
    job.ticket.most = job.prompt + job.answer;
    if (whole(0, 9) == 0) job.ticket.deadline = job.ticket.arrived + real(0, 10);
    if (whole(0, 9) == 0) job.cancel = job.ticket.arrived + real(0, 10);
    p.memory = std::max(p.memory, job.bytes(p.limits, job.prompt + job.answer));
    p.jobs.push_back(job);
  }
  p.memory = int64_t(double(p.memory) * real(1, 4));  // the largest fits alone
  return p;
}

class Simulation {
 public:
  Simulation(Pattern pattern, uint32_t seed) : p_(std::move(pattern)), scheduler_(p_.limits), random_(seed) {}

  void run() {
    const int64_t bound = most_steps();
    size_t come = 0;
    int64_t steps = 0;
    while (left_ < p_.jobs.size()) {
      for (; come < p_.jobs.size() && p_.jobs[come].ticket.arrived <= now_; ++come)
        scheduler_.add(p_.jobs[come].ticket);
      drop();
      admit();
      if (scheduler_.running() == 0) {
        ASSERT_EQ(scheduler_.queued(), 0u) << "the first of the queue fits alone";
        if (come == p_.jobs.size()) break;
        now_ = std::max(now_, p_.jobs[come].ticket.arrived);
        continue;
      }
      step();
      ASSERT_LE(++steps, bound) << "somebody starves";
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const Job& j : p_.jobs) ASSERT_EQ(j.ended, 1) << "request " << j.ticket.id;
    EXPECT_EQ(scheduler_.running() + scheduler_.queued(), 0u);
  }

 private:
  Job& job(uint64_t id) { return p_.jobs[id - 1]; }
  int64_t used() const {
    int64_t sum = 0;
    for (const Job& j : p_.jobs) sum += j.runs ? j.bytes(p_.limits, j.ticket.position) : 0;
    return sum;
  }

  // Every step reads a row of the first in the order; what a push-out throws away is read again, and it can
  // throw away no more than the pages that those before it take.
  int64_t most_steps() const {
    int64_t rows = 0;
    for (const Job& j : p_.jobs) rows += j.prompt + j.answer + 1;
    return rows * int64_t(p_.jobs.size() + 1) + 100;
  }

  void end(uint64_t id) {
    ASSERT_TRUE(scheduler_.remove(id));
    ++job(id).ended;
    job(id).runs = false;
    ++left_;
  }

  void drop() {
    for (uint64_t id : scheduler_.expired(now_)) end(id);
    for (Job& j : p_.jobs)
      if (j.ended == 0 && j.cancel <= now_ && j.ticket.arrived <= now_) {
        if (scheduler_.remove(j.ticket.id)) j.runs = false, ++j.ended, ++left_;
        j.cancel = std::numeric_limits<double>::infinity();
        ASSERT_FALSE(scheduler_.remove(j.ticket.id));
      }
  }

  void admit() {
    while (auto id = scheduler_.admit(p_.memory - used())) {
      Job& j = job(*id);
      ASSERT_FALSE(j.runs || j.ended);
      for (const Job& other : p_.jobs)  // nobody waits who stands before it
        if (&other != &j && !other.runs && !other.ended && other.ticket.arrived <= now_) {
          ASSERT_LE(place(j), place(other));
        }
      j.runs = true;
      // A part of it is known, as far as there is room.
      j.ticket.position = std::uniform_int_distribution<int64_t>(0, j.ticket.tokens - 1)(random_);
      if (used() > p_.memory) j.ticket.position = 0;
      j.began_at = j.ticket.position;
      j.reader = 0;
      tell(j);
      j.held_until = random_() % 8 ? -1 : now_ + double(random_() % 100) / 30;
      if (j.held_until >= 0) scheduler_.hold(*id);
    }
    ASSERT_LE(int64_t(scheduler_.running()), p_.limits.running);
  }

  double place(const Job& j) const { return j.ticket.arrived - j.ticket.priority * p_.limits.priority_s; }

  void tell(Job& j) {
    int64_t cut = j.ticket.position + std::uniform_int_distribution<int64_t>(1, 300)(random_);
    scheduler_.update(j.ticket.id, j.ticket.tokens, j.ticket.position, cut, j.ticket.tokens > j.prompt);
  }

  // Memory for the rows; pushes others out, or the request itself.
  bool reserve(Job& j, int64_t rows) {
    const int64_t more = j.bytes(p_.limits, j.ticket.position + rows) - j.bytes(p_.limits, j.ticket.position);
    while (used() + more > p_.memory) {
      Job& out = job(*scheduler_.victim());
      scheduler_.preempt(out.ticket.id);
      out.runs = false, out.ticket.position = 0, out.answered = -1;
      if (&out == &j) return false;
    }
    return true;
  }

  // Who has read nothing yet may wait for one that reads the same, and has it then; whether that one stands
  // before it, runs, or ends first is left to chance.
  void share() {
    for (uint64_t id : scheduler_.order()) {
      Job& j = job(id);
      if (j.ticket.position != j.began_at || j.held_until >= 0) continue;
      if (j.reader && job(j.reader).runs && job(j.reader).ticket.position >= j.until &&
          j.until > j.ticket.position && j.until < j.ticket.tokens) {
        const int64_t had = std::exchange(j.ticket.position, j.until);
        if (used() > p_.memory) j.ticket.position = had;
        j.began_at = j.ticket.position;
        tell(j);
      }
      const std::vector<uint64_t> order = scheduler_.order();
      j.reader = random_() % 4 ? order[random_() % order.size()] : 0;
      if (j.reader == id) j.reader = 0;
      j.until = j.ticket.position + int64_t(random_() % 500);
      scheduler_.await(id, j.reader, j.until);
    }
  }

  void step() {
    if (p_.alike) share();
    for (Job& j : p_.jobs)  // the disk has answered
      if (j.runs && j.held_until >= 0 && j.held_until <= now_) j.held_until = -1, tell(j);
    const std::vector<Planned> plan = scheduler_.plan();
    int64_t rows = 0, pieces = 0, answers = 0;
    std::set<uint64_t> planned;
    for (const Planned& p : plan) {
      Job& j = job(p.id);
      ASSERT_TRUE(j.runs && j.held_until < 0 && p.rows > 0 && planned.insert(p.id).second);
      ASSERT_LE(j.ticket.position + p.rows, j.ticket.tokens);
      rows += p.rows;
      (j.ticket.tokens > j.prompt && p.rows == 1 ? answers : pieces) += p.rows;
    }
    ASSERT_LE(rows, scheduler_.most_rows());
    ASSERT_LE(pieces, p_.limits.prompt_rows);
    for (const Job& j : p_.jobs)
      if (j.runs && j.held_until < 0 && j.ticket.tokens > j.prompt &&
          j.ticket.tokens - j.ticket.position == 1) {
        ASSERT_TRUE(planned.count(j.ticket.id)) << "an answer lost its turn";
      }
    std::vector<Planned> kept;
    rows = 0;
    for (const Planned& p : plan)
      if (job(p.id).runs && reserve(job(p.id), p.rows)) kept.push_back(p);
    std::erase_if(kept, [&](const Planned& p) { return !job(p.id).runs; });
    if (plan.empty()) {
      const auto order = scheduler_.order();
      ASSERT_TRUE(std::all_of(order.begin(), order.end(), [&](auto id) { return job(id).held_until >= 0; }));
      now_ += 0.05;
      return;
    }
    ASSERT_FALSE(kept.empty()) << "the first in the order goes on";
    for (const Planned& p : kept) rows += p.rows;
    ASSERT_LE(used(), p_.memory);

    const double noise = std::uniform_real_distribution(1 - p_.noise, 1 + p_.noise)(random_);
    const double seconds = (p_.base_s + double(rows) * p_.row_s) * noise;
    now_ += seconds;
    scheduler_.learn(rows, seconds);
    if (answers > 0) {
      const double slack = (1 + p_.noise) / (1 - p_.noise);
      const double least =
          p_.base_s + double(answers + std::min(p_.limits.least_piece, p_.limits.prompt_rows)) * p_.row_s;
      ASSERT_LE(seconds, slack * std::max(p_.limits.step_s + p_.base_s, least) + 1e-9) << rows << " rows";
    }
    for (const Planned& p : kept) advance(job(p.id), p.rows);
  }

  void advance(Job& j, int64_t rows) {
    j.ticket.position += rows;
    ASSERT_LE(j.bytes(p_.limits, j.ticket.position), p_.memory);
    if (j.ticket.position < j.ticket.tokens) return tell(j);
    if (j.ticket.tokens == j.ticket.most) return end(j.ticket.id);
    ++j.ticket.tokens;
    tell(j);
  }

  Pattern p_;
  Scheduler scheduler_;
  std::mt19937 random_;
  double now_ = 0;
  size_t left_ = 0;  // jobs that have ended
};

TEST(Scheduler, ThousandsOfPatternsEndOnceWithinTheirBudgets) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    Pattern pattern = draw(random);
    Simulation(pattern, seed).run();
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

Ticket ticket(uint64_t id, int64_t tokens, double arrived = 0, int priority = 0) {
  Ticket t;
  t.id = id, t.tokens = tokens, t.most = tokens + 10, t.arrived = arrived, t.priority = priority;
  return t;
}

TEST(Scheduler, PriorityIsWorthTimeAndNoMore) {
  SchedulerLimits limits;
  limits.priority_s = 30;
  Scheduler s(limits);
  s.add(ticket(1, 10, 0));
  s.add(ticket(2, 10, 29, 1));
  s.add(ticket(3, 10, 31, 1));
  EXPECT_EQ(s.admit(1), 2u);
  EXPECT_EQ(s.admit(1), 1u);
  EXPECT_EQ(s.admit(1), 3u);
  EXPECT_EQ(s.victim(), 3u);
}

TEST(Scheduler, AnswersComeBeforePromptsAndKeepTheirPace) {
  SchedulerLimits limits;
  limits.prompt_rows = 512, limits.step_s = 0.2, limits.least_piece = 16;
  Scheduler s(limits);
  for (uint64_t id : {1, 2, 3}) {
    s.add(ticket(id, 1000));
    ASSERT_EQ(s.admit(0), id);
  }
  s.update(1, 1000, 0, 2000, false);
  s.update(2, 1001, 1000, 2000, true);
  s.update(3, 1000, 400, 500, false);
  auto rows_of = [&]() {
    std::vector<int64_t> list;
    for (const Planned& p : s.plan()) list.push_back(int64_t(p.id) * 1000 + p.rows);
    return list;
  };
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{2001, 1016})) << "nothing known yet";
  s.learn(512, 1.024);  // 2 ms a row
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{2001, 1099}));
  s.learn(100, 4);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{2001, 1016})) << "never less than the least piece";
  s.update(1, 1000, 996, 2000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{2001, 1004, 3012})) << "what one leaves is the next one's";
  ASSERT_TRUE(s.remove(2));
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1004, 3100})) << "no answer waits; a piece ends at its cut";
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  SchedulerLimits limits;
  limits.prompt_rows = 512;
  Scheduler s(limits);
  const std::pair<int64_t, int64_t> prompts[] = {
      {5000, 9000}, {300, 9000}, {100, 9000}, {150, 40}, {20, 9000}};
  for (uint64_t id = 1; const auto& [tokens, cut] : prompts) {
    s.add(ticket(id, tokens));
    ASSERT_EQ(s.admit(0), id);
    s.update(id++, tokens, 0, cut, false);
  }
  auto rows_of = [&]() {
    std::vector<int64_t> list;
    for (const Planned& p : s.plan()) list.push_back(int64_t(p.id) * 1000 + p.rows);
    return list;
  };
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1352, 3100, 4040, 5020})) << "the second is too long for a half";
  s.update(1, 5000, 4900, 9000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2300, 3100, 4012})) << "the last gets what is left";
  ASSERT_TRUE(s.remove(4));
  s.update(1, 5000, 0, 9000, false);
  s.update(5, 21, 20, 9000, true);
  s.learn(512, 4);
  s.update(3, 100, 84, 9000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{5001, 1031})) << "of 31 rows the first keeps the least piece";
  s.update(3, 100, 85, 9000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{5001, 1016, 3015}));
}

TEST(Scheduler, TwoThatBeginAlikeReadOnce) {
  SchedulerLimits limits;
  limits.prompt_rows = 512;
  Scheduler s(limits);
  for (uint64_t id : {1, 2, 3, 4}) {
    s.add(ticket(id, id == 4 ? 250 : 2000));
    ASSERT_EQ(s.admit(0), id);
  }
  auto rows_of = [&]() {
    std::vector<int64_t> list;
    for (const Planned& p : s.plan()) list.push_back(int64_t(p.id) * 1000 + p.rows);
    return list;
  };
  s.update(1, 2000, 0, 100, false);
  for (uint64_t id : {2, 3, 4}) s.update(id, id == 4 ? 250 : 2000, 0, 9000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2412}));
  s.await(2, 1, 1000);
  s.await(3, 1, 1000);
  s.await(4, 1, 240);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 4250}))
      << "the last ends now, its reader is not there yet";
  s.update(1, 2000, 150, 240, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1090})) << "now it will be";
  s.update(1, 2000, 240, 1000, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1262, 4250})) << "there it is";
  s.update(1, 2000, 1000, 1100, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2412})) << "all have what they waited for";
  s.await(2, 3, 1000);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2412})) << "nobody waits for one behind it";
  s.await(2, 0, 0);
  s.update(2, 2000, 0, 50, false);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2050, 3362}));
  s.update(3, 2000, 0, 50, false);
  s.await(3, 0, 0);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{1100, 2050, 3050, 4250}));
  ASSERT_TRUE(s.remove(1));
  s.await(3, 1, 1000);
  EXPECT_EQ(rows_of(), (std::vector<int64_t>{2050, 3050, 4250})) << "who has ended reads no more";
}

TEST(Scheduler, AdmitsWhileThereIsRoomForAllThatRun) {
  SchedulerLimits limits;
  limits.page_bytes = 10, limits.fixed_bytes = 5, limits.growth = 64;
  Scheduler s(limits);
  for (uint64_t id : {1, 2, 3}) s.add(ticket(id, 128));
  EXPECT_EQ(s.admit(0), 1u) << "alone it always may";
  EXPECT_EQ(s.admit(64), std::nullopt) << "3 pages for each, 5 bytes for the second";
  EXPECT_EQ(s.admit(65), 2u);
  s.update(1, 128, 127, 200, false);
  s.update(2, 128, 127, 200, false);
  EXPECT_EQ(s.admit(54), std::nullopt) << "a page for the growth of each, three for the third";
  EXPECT_EQ(s.admit(55), 3u);
  s.preempt(2);
  EXPECT_EQ(s.running(), 2u);
  EXPECT_EQ(s.admit(1000), 2u);
}

TEST(Scheduler, AClockThatGoesBackTeachesNothing) {
  Pace pace(0.1);
  pace.learn(100, 0.2);
  EXPECT_EQ(pace.rows(), 50);
  pace.learn(100, -1);
  pace.learn(100, 0);
  EXPECT_EQ(pace.rows(), 50);
  pace.learn(40, 0.04);
  EXPECT_EQ(pace.rows(), 80) << "at most twice the rows of a step that was fast enough";
}

}  // namespace
}  // namespace invar
