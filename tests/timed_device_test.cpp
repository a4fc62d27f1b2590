// The device that keeps costs: it changes no bit, and the bytes it counts for one token are those that the
// engine names.
#include "device/timed_device.h"

#include <gtest/gtest.h>

#include "engine/model_runner.h"
#include "files/model_file.h"

namespace invar {
namespace {

struct Pass {
  std::vector<float> logits;
  double bytes = 0, named = 0;  // of the last row
  std::map<std::string, OperationCost> costs;
};

Pass run(bool timed) {
  constexpr Token kTokens[] = {5, 17, 300, 4, 99, 1023, 7};
  constexpr int64_t kDepth = std::size(kTokens) - 1;
  ModelFile file = ModelFile::open(INVAR_TEST_DATA "/vehicle-trial-q8_0.gguf").take();
  RunnerOptions options;
  options.threads = 2;
  options.context = 64;
  auto engine = ModelRunner::open(file, options).take();
  auto sequence = engine->new_sequence();
  TimedDevice around(engine->device(), &engine->threads());
  if (timed) engine->run_on(around), engine->threads().watch();
  auto none = [](int64_t, std::span<const float>) { return true; };
  EXPECT_TRUE(engine->forward(*sequence, std::span(kTokens).first(kDepth), ModelRunner::Rows::None, none));
  around.clear();
  Pass r;
  EXPECT_TRUE(engine->forward(*sequence, std::span(kTokens).subspan(kDepth), ModelRunner::Rows::Last,
                              [&](int64_t, std::span<const float> row) {
                                r.logits.assign(row.begin(), row.end());
                                return true;
                              }));
  r.costs = around.costs();
  for (const auto& [name, cost] : r.costs) r.bytes += double(cost.bytes);
  r.named = double(engine->bytes_per_token(kDepth));
  return r;
}

TEST(TimedDevice, ChangesNothingAndCountsWhatTheEngineNames) {
  const Pass plain = run(false), timed = run(true);
  EXPECT_TRUE(plain.costs.empty());
  EXPECT_EQ(plain.logits, timed.logits);
  // The engine's number has the gains of norms in it as well.
  EXPECT_NEAR(timed.bytes / timed.named, 1, 0.01);
  EXPECT_EQ(timed.costs.at("delta").calls, 3);  // three recurrent layers, one of attention
  EXPECT_EQ(timed.costs.at("attend").calls, 1);
  EXPECT_EQ(timed.costs.at("delta").bytes, 3 * 2 * 4 * 128 * 128 * 4);
  EXPECT_EQ(timed.costs.at("attend").bytes, 7 * 2 * 256 * 2);
  double seconds = 0, waited = 0;
  for (const auto& [name, cost] : timed.costs) {
    EXPECT_LE(cost.waited, cost.seconds) << name;
    seconds += cost.seconds, waited += cost.waited;
  }
  EXPECT_GT(seconds, 0);
  EXPECT_GT(waited, 0) << "two threads do not end at the same nanosecond, dozens of times";
}

}  // namespace
}  // namespace invar
