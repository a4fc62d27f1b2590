// The gate before the engine: the bound of the queue, the end, and what is counted.
#include "server/intake.h"

#include <gtest/gtest.h>
#include <map>

namespace invar::server {
namespace {

class Fake : public Service {  // the test says what happens
 public:
  Result<uint64_t> submit(Request request) override {
    if (request.prompt.empty()) return Error{Code::BadRequest, "prompt", "empty"};
    requests[++last] = std::move(request);
    return last;
  }
  void cancel(uint64_t id) override { cancelled.push_back(id); }
  Statistics statistics() const override { return {}; }
  int64_t context() const override { return 100; }
  int64_t vocab() const override { return 10; }

  void tell(uint64_t id, std::vector<Token> tokens, Finish finish = Finish::Running, int choice = 0) {
    Event event;
    event.id = id;
    event.choice = choice;
    event.tokens = tokens;
    event.finish = finish;
    event.usage.prompt_tokens = 5;
    event.usage.cached_tokens = 2;
    event.usage.answer_tokens = 3;
    requests[id].on_event(event);
  }

  uint64_t last = 0;
  std::map<uint64_t, Request> requests;
  std::vector<uint64_t> cancelled;
};

struct Gate {
  explicit Gate(const IntakeLimits& limits = {}, size_t places = 0) : intake(fake, metrics, limits, places) {}
  Fake fake;
  Metrics metrics;
  Intake intake;
};

Request ask() {
  Request request;
  request.prompt = {1, 2, 3};
  return request;
}

TEST(Intake, BoundsWhatWaits) {
  IntakeLimits limits;
  limits.waiting = 2;
  Gate gate(limits);
  auto& [fake, metrics, intake] = gate;
  const uint64_t one = *intake.submit(ask());
  ASSERT_TRUE(intake.submit(ask()));
  const auto third = intake.submit(ask());
  ASSERT_FALSE(third);
  EXPECT_EQ(Result<uint64_t>(third).error().code, Code::NoRoom);
  EXPECT_EQ(metrics.rejected.value(), 1);
  fake.tell(one, {});  // it runs now
  EXPECT_EQ(metrics.running.value(), 1);
  EXPECT_EQ(metrics.waiting.value(), 1);
  EXPECT_TRUE(intake.submit(ask()));
  EXPECT_FALSE(intake.submit({}));  // refused behind the gate: counts for nothing
  EXPECT_EQ(metrics.waiting.value(), 2);
}

TEST(Intake, WhoFindsASequenceFreeDoesNotWait) {
  for (const int64_t most : {0, 1}) {
    IntakeLimits limits;
    limits.waiting = most;
    limits.waiting_tokens = 1;
    Gate gate(limits, 2);
    auto& [fake, metrics, intake] = gate;
    const uint64_t one = *intake.submit(ask());
    ASSERT_TRUE(intake.submit(ask())) << "at the same instant, on an idle server";
    if (most == 1) { EXPECT_TRUE(intake.submit(ask())); }
    EXPECT_FALSE(intake.submit(ask()));
    fake.tell(one, {});
    EXPECT_FALSE(intake.submit(ask())) << "what runs has taken a sequence";
    fake.tell(one, {}, Finish::Stop);
    EXPECT_TRUE(intake.submit(ask()));
    EXPECT_EQ(metrics.rejected.value(), 2);
  }
}

TEST(Intake, TheFirstPromptTakesTheOthersIn) {
  IntakeLimits limits;
  limits.waiting = 1;
  Gate gate(limits);
  auto& [fake, metrics, intake] = gate;
  ASSERT_TRUE(intake.submit(ask()));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(intake.submit_further(ask()));
  EXPECT_EQ(metrics.waiting.value(), 6);
  EXPECT_FALSE(intake.submit(ask()));
  intake.close();
  EXPECT_EQ(intake.submit_further(ask()).error().code, Code::Cancelled);
}

TEST(Intake, BoundsTheTokensThatWait) {
  IntakeLimits limits;
  limits.waiting_tokens = 6;
  Gate gate(limits);
  auto& [fake, metrics, intake] = gate;
  Request large = ask();
  large.prompt.resize(50, 1);
  const uint64_t alone = *intake.submit(std::move(large));  // where nothing waits any prompt may
  EXPECT_FALSE(intake.submit(ask()));
  fake.tell(alone, {});
  const uint64_t one = *intake.submit(ask());
  EXPECT_TRUE(intake.submit(ask()));
  auto third = intake.submit(ask());
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::NoRoom);
  fake.tell(one, {}, Finish::Cancelled);  // it waits no longer either
  EXPECT_TRUE(intake.submit(ask()));
  EXPECT_EQ(metrics.rejected.value(), 2);
  EXPECT_EQ(metrics.cancelled_waiting.value(), 1);
}

TEST(Intake, GivesItsTimesToRequests) {
  IntakeLimits limits;
  limits.queue_s = 3;
  limits.answer_s = 70;
  Gate gate(limits);
  auto& [fake, metrics, intake] = gate;
  Request hurried = ask();
  hurried.deadline_s = 5;
  ASSERT_TRUE(intake.submit(ask()) && intake.submit(std::move(hurried)));
  EXPECT_EQ(fake.requests[1].start_s, 3);
  EXPECT_EQ(fake.requests[1].deadline_s, 70);
  EXPECT_EQ(fake.requests[2].deadline_s, 5);
}

TEST(Intake, ShowsWhatEachSequenceIsAt) {
  Gate gate({}, 2);
  auto& [fake, metrics, intake] = gate;
  Request two = ask();
  two.n = 2;
  two.max_tokens = 9;
  const uint64_t first = *intake.submit(std::move(two)), waits = *intake.submit(ask());
  EXPECT_FALSE(intake.places()[0].busy);
  fake.tell(first, {});
  fake.tell(first, {4}, Finish::Running, 1);
  auto places = intake.places();
  ASSERT_EQ(places.size(), 2u);
  EXPECT_TRUE(places[0].busy && places[1].busy);
  EXPECT_EQ(places[1].request, first);
  EXPECT_EQ(places[1].most_tokens, 9);
  EXPECT_EQ(places[1].usage.cached_tokens, 2);
  fake.tell(waits, {});
  EXPECT_EQ(intake.places().size(), 3u) << "more run than was thought";
  fake.tell(first, {}, Finish::Stop, 1);
  places = intake.places();
  EXPECT_FALSE(places[1].busy);
  EXPECT_EQ(places[1].usage.answer_tokens, 3) << "the last numbers stay";
  const uint64_t next = *intake.submit(ask());
  fake.tell(next, {});
  EXPECT_EQ(intake.places()[1].request, next);
  const uint64_t never = *intake.submit(ask());
  fake.tell(never, {}, Finish::Cancelled);
  EXPECT_EQ(intake.places().size(), 3u) << "it never ran";
}

TEST(Intake, CountsWhatHappened) {
  Gate gate;
  auto& [fake, metrics, intake] = gate;
  Request request = ask();
  request.n = 2;
  int events = 0;
  request.on_event = [&](const Event&) { return ++events < 4; };
  const uint64_t id = *intake.submit(std::move(request));
  fake.tell(id, {});
  fake.tell(id, {7});
  fake.tell(id, {8}, Finish::Running, 1);
  fake.tell(id, {}, Finish::Stop);
  EXPECT_EQ(metrics.running.value(), 1);
  fake.tell(id, {}, Finish::Length, 1);
  EXPECT_EQ(events, 5);
  EXPECT_EQ(metrics.running.value(), 0);
  EXPECT_EQ(metrics.waiting.value(), 0);
  EXPECT_EQ(metrics.stopped.value(), 1);
  EXPECT_EQ(metrics.length.value(), 1);
  EXPECT_EQ(metrics.generation_tokens.value(), 2);
  EXPECT_EQ(metrics.prompt_tokens.value(), 5);
  EXPECT_EQ(metrics.cached_tokens.value(), 2);

  const uint64_t silent = *intake.submit(ask());  // its prompt alone is wanted
  fake.tell(silent, {});
  EXPECT_EQ(metrics.prompt_tokens.value(), 5);
  fake.tell(silent, {}, Finish::Length);
  EXPECT_EQ(metrics.prompt_tokens.value(), 10);
  EXPECT_EQ(metrics.cached_tokens.value(), 4);

  const uint64_t queued = *intake.submit(ask());
  fake.tell(queued, {}, Finish::Cancelled);
  EXPECT_EQ(metrics.prompt_tokens.value(), 10);
  EXPECT_EQ(metrics.aborted.value(), 1);
  EXPECT_EQ(metrics.running.value() + metrics.waiting.value(), 0);
}

TEST(Intake, TheEndRefusesAndCancels) {
  Gate gate;
  auto& [fake, metrics, intake] = gate;
  const uint64_t one = *intake.submit(ask()), two = *intake.submit(ask());
  fake.tell(one, {}, Finish::Stop);
  intake.close();
  auto late = intake.submit(ask());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::Cancelled);
  intake.cancel_all();
  EXPECT_EQ(fake.cancelled, std::vector<uint64_t>{two});
}

TEST(Metrics, HistogramsInTextForm) {
  Histogram h({1, 2.5});
  for (double x : {0.5, 1.0, 2.0, 9.0}) h.add(x);
  MetricsText text("a=\"b\"");
  text.histogram("x", "Help.", h);
  EXPECT_EQ(
      text.take(),
      "# HELP x Help.\n# TYPE x histogram\nx_bucket{a=\"b\",le=\"1\"} 2\nx_bucket{a=\"b\",le=\"2.5\"} 3\n"
      "x_bucket{a=\"b\",le=\"+Inf\"} 4\nx_sum{a=\"b\"} 12.5\nx_count{a=\"b\"} 4\n");
}

}  // namespace
}  // namespace invar::server
