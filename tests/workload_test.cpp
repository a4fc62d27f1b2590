// Generated workloads: what is drawn, and what `bench --workload` reports of them.
#include "cli/workload.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace invar::cli {
namespace {

using nlohmann::json;

const std::vector<Token>& ordinary() {
  static const std::vector<Token> ids = [] {
    std::vector<Token> list(200);
    std::iota(list.begin(), list.end(), 7);
    return list;
  }();
  return ids;
}

const WorkloadShape& shape(const std::string& name) {
  for (const WorkloadShape& s : workload_shapes())
    if (name == s.name) return s;
  ADD_FAILURE() << name;
  return workload_shapes()[0];
}

Workload made(const char* name, const WorkloadSize& size = {}, uint64_t seed = 0) {
  auto w = make_workload(shape(name), size, seed, ordinary());
  EXPECT_TRUE(w) << w.error().message;
  return w.take();
}

TEST(Workload, TheFourAreWhatTheirNamesSay) {
  const Workload agent = made("agent"), chat = made("chat"), batch = made("batch"), shared = made("shared");
  EXPECT_EQ(agent.conversations.size(), 1u);
  EXPECT_EQ(agent.conversations[0].size(), 30u);
  EXPECT_NEAR(double(agent.positions()), 16384, 300);
  EXPECT_EQ(chat.conversations.size(), 16u);
  EXPECT_GT(chat.conversations[15][0].wait_s, chat.conversations[1][0].wait_s);
  EXPECT_GT(chat.conversations[3][2].wait_s, 0);
  EXPECT_EQ(batch.requests(), 64);
  EXPECT_TRUE(batch.system.empty());
  int64_t all = 0;
  for (const auto& turns : batch.conversations) {
    EXPECT_EQ(turns[0].wait_s, 0);
    EXPECT_EQ(turns[0].answer.size(), 64u);
    all += int64_t(turns[0].message.size());
  }
  EXPECT_EQ(all, 64 * 128);  // lengths vary in pairs
  EXPECT_NE(batch.conversations[0][0].message.size(), 128u);
  EXPECT_EQ(shared.system.size(), 4096u);
  EXPECT_NE(shared.conversations[0][0].message, shared.conversations[1][0].message);
}

TEST(Workload, OnlyOrdinaryTokensAndAllOfThem) {
  std::vector<bool> seen(300);
  for (Token t : made("shared").system) {
    ASSERT_TRUE(t >= 7 && t < 207) << t;
    seen[size_t(t)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 200);
}

TEST(Workload, ASeedIsAWorkload) {
  EXPECT_EQ(made("agent").system, made("agent").system);
  EXPECT_NE(made("agent").system, made("agent", {}, 1).system);
  EXPECT_NE(made("agent").system, made("agent", {}, uint64_t(1) << 32).system);
}

TEST(Workload, FlagsMakeItSmallerAndRefuseTheAbsurd) {
  const Workload w = made("chat", {3, 2, 0.25});
  EXPECT_EQ(w.conversations.size(), 3u);
  EXPECT_EQ(w.conversations[2].size(), 2u);
  EXPECT_EQ(w.system.size(), 64u);
  EXPECT_EQ(w.conversations[0][0].answer.size(), 32u);
  EXPECT_EQ(made("batch", {1, 1, 0.001}).conversations[0][0].answer.size(), 2u);
  EXPECT_FALSE(make_workload(shape("agent"), {65536, 65536, 100}, 0, ordinary()));
  EXPECT_FALSE(make_workload(shape("agent"), {}, 0, {}));
}

struct Outcome {
  int status;
  std::string out;
  json parsed() const {
    json j = json::parse(out, nullptr, false);
    EXPECT_TRUE(j.is_object()) << out;
    return j;
  }
};

const std::string& model(const std::string& shape) {
  static std::map<std::string, std::string> paths;
  std::string& path = paths[shape];
  if (path.empty()) {
    path =
        testing::TempDir() + "workload-" + std::to_string(getpid()) + std::to_string(paths.size()) + ".gguf";
    const std::string make = std::string(INVAR_BINARY) + " synth " + shape + " -q -o " + path;
    EXPECT_EQ(std::system(make.c_str()), 0) << make;
    std::atexit([] {
      for (const auto& [_, made] : paths) std::filesystem::remove(made);
    });
  }
  return path;
}

Outcome bench(const std::string& shape, const std::string& flags, const std::string& before = "") {
  const std::string out = testing::TempDir() + "workload-" + std::to_string(getpid()) + ".out";
  const std::string command =
      before + INVAR_BINARY + " bench " + model(shape) + " -q " + flags + " > " + out + " 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream text;
  text << std::ifstream(out).rdbuf();
  std::filesystem::remove(out);
  return {WEXITSTATUS(status), text.str()};
}

TEST(BenchWorkload, AgentReadsOnlyWhatIsNew) {
  const json j = bench("qwen35:tiny", "--workload agent --turns 6 --scale 0.1 --json").parsed();
  const Workload w = made("agent", {0, 6, 0.1});
  ASSERT_EQ(j["turns"].size(), 6u);
  EXPECT_EQ(j["workload"]["name"], "agent");
  EXPECT_EQ(j["workload"]["requests"], 6);
  EXPECT_EQ(j["finished"], 6);
  int64_t prompt = int64_t(w.system.size()), added = prompt, prompts = 0, rows = 0;
  for (size_t t = 0; t < 6; ++t) {
    const json& turn = j["turns"][t];
    prompt += int64_t(w.conversations[0][t].message.size());
    added += int64_t(w.conversations[0][t].message.size());
    EXPECT_EQ(turn["turn"], t);
    EXPECT_EQ(turn["prompt_tokens"], prompt);
    EXPECT_EQ(turn["new_tokens"], added);
    EXPECT_EQ(turn["cached_tokens"], prompt - added);
    EXPECT_EQ(turn["prompt_rows"], added);
    EXPECT_EQ(turn["answer_tokens"], w.shape.answer);
    EXPECT_GT(turn["ttft_s"], 0);
    EXPECT_GT(turn["tpot_s"], 0);
    prompts += prompt;
    rows += added;
    prompt += w.shape.answer;
    added = w.shape.answer;
  }
  EXPECT_EQ(j["prompt_tokens"], prompts);
  EXPECT_EQ(j["prompt_rows"], rows);
  EXPECT_EQ(j["cached_tokens"], prompts - rows);
  EXPECT_NEAR(j["cached_share"], double(prompts - rows) / double(prompts), 1e-9);
  EXPECT_EQ(j["answer_tokens"], 6 * w.shape.answer);
  for (const char* key : {"ttft_s", "tpot_s", "gap_s"}) {
    EXPECT_GT(j[key]["p50"], 0) << key;
    EXPECT_GE(j[key]["p95"], j[key]["p50"]) << key;
    EXPECT_GE(j[key]["max"], j[key]["p95"]) << key;
  }
  for (const char* key : {"wall_s", "prompt_tok_s", "answer_tok_s", "peak_rss_bytes", "state_bytes"})
    EXPECT_GT(j[key], 0) << key;
  EXPECT_EQ(j["preemptions"], 0);
}

TEST(BenchWorkload, OwnAnswersAreNotReadAgain) {
  const json j = bench("qwen35:tiny", "--workload agent --turns 4 --scale 0.1 --own-answers --json").parsed();
  ASSERT_EQ(j["turns"].size(), 4u);
  for (size_t t = 1; t < 4; ++t)  // the last token of an answer was never a row
    EXPECT_EQ(j["turns"][t]["cached_tokens"], int64_t(j["turns"][t - 1]["prompt_tokens"]) + 6 - 1);
}

// The budget is the whole process: program and vocabulary count, and so do texts.
TEST(BenchWorkload, TheProcessStaysWithinItsBudget) {
  const json j = bench("qwen35:tiny", "--workload batch --users 200 --memory 96MiB --json").parsed();
  const double budget = 96 << 20, peak = j["peak_rss_bytes"];
  ASSERT_EQ(j["allowed_bytes"], 96 << 20);
  EXPECT_GT(j["state_bytes"], 0.9 * double(j["state_budget_bytes"])) << "the budget was needed";
  EXPECT_LE(peak, 1.05 * budget) << j["memory"];
  double sum = 0;
  for (const auto& kind : j["memory"]) sum += double(kind);
  EXPECT_LE(sum, budget) << j["memory"];
  EXPECT_NEAR(sum, peak, 0.05 * budget) << j["memory"];
  for (const char* kind : {"beside", "weights", "scratch", "states", "texts"})
    EXPECT_GT(j["memory"][kind], 0) << kind;
}

TEST(BenchWorkload, OneDigestHoweverItRuns) {
  for (const char* shape : {"qwen35:tiny", "llama:tiny"})
    for (const char* workload : {"shared --users 6", "chat --users 4 --turns 2"}) {
      const std::string flags = std::string("--workload ") + workload + " --scale 0.02 --json ";
      const json want = bench(shape, flags + "--threads 1 --parallel 1").parsed();
      EXPECT_GT(want["cached_share"], 0.3) << shape << workload;
      for (const char* how :
           {"--threads 2 --parallel 1", "--threads 1 --parallel 4", "--parallel 4 --cold"}) {
        const json j = bench(shape, flags + how).parsed();
        EXPECT_EQ(j["tokens_sha256"], want["tokens_sha256"]) << shape << workload << how;
        EXPECT_EQ(j["answer_tokens"], want["answer_tokens"]) << shape << workload << how;
        EXPECT_EQ(j["prompt_tokens"], want["prompt_tokens"]) << shape << workload << how;
        EXPECT_EQ(j["cached_tokens"] > 0, !std::string(how).ends_with("--cold")) << shape << workload << how;
      }
    }
}

TEST(BenchWorkload, PrintsWhatItWouldAsk) {
  const Outcome o = bench("llama:tiny", "--workload chat --users 2 --turns 2 --scale 0.1 --print");
  EXPECT_EQ(o.status, 0);
  std::istringstream lines(o.out);
  std::vector<json> requests;
  for (std::string line; std::getline(lines, line);) requests.push_back(json::parse(line, nullptr, false));
  ASSERT_EQ(requests.size(), 4u) << o.out;
  const Workload w = made("chat", {2, 2, 0.1});
  const json &first = requests[2], &second = requests[3];
  EXPECT_EQ(second["conversation"], 1);
  EXPECT_EQ(second["turn"], 1);
  EXPECT_EQ(second["answer_tokens"], w.shape.answer);
  EXPECT_GT(second["wait_s"], 0);
  const size_t n = first["prompt"].size();
  EXPECT_EQ(n, w.system.size() + w.conversations[1][0].message.size());
  EXPECT_EQ(second["prompt"].size(), n + size_t(w.shape.answer) + w.conversations[1][1].message.size());
  EXPECT_TRUE(std::equal(first["prompt"].begin(), first["prompt"].end(), second["prompt"].begin()));
  const json all =
      bench("llama:tiny", "--workload chat --users 2 --turns 2 --scale 0.1 --print --json").parsed();
  EXPECT_EQ(all["requests"], json(requests));
}

// --foreground: one signal, and not another to the group, which would end it at once.
TEST(BenchWorkload, AnInterruptionReportsWhatWasMeasured) {
  const Outcome o =
      bench("llama:tiny", "--workload chat --json", "timeout --foreground --preserve-status --signal=INT 1 ");
  EXPECT_EQ(o.status, 130);
  const json j = o.parsed();
  EXPECT_LT(j["finished"], 64);
  EXPECT_EQ(j["turns"].size(), j["finished"]);
}

TEST(BenchWorkload, RefusesWhatItCannotDo) {
  EXPECT_EQ(bench("llama:tiny", "--workload agnet").status, 2);
  EXPECT_EQ(bench("llama:tiny", "--workload batch --users 0").status, 2);
  EXPECT_EQ(bench("llama:tiny", "--workload batch --print --own-answers").status, 2);
  const Outcome o = bench("llama:tiny", "--workload batch --users 2 --context 8");
  EXPECT_EQ(o.status, 4);
  EXPECT_NE(o.out.find("--context"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" 8; --scale"), std::string::npos) << o.out;
}

}  // namespace
}  // namespace invar::cli
