// Generated conversations to replay: who comes when, what each turn adds to the prompt, how long its answer
// is.  Token ids are drawn at random, so no text is needed; the same seed gives the same ids on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace invar::cli {

struct WorkloadShape {
  const char* name;
  int64_t users, turns;                  // conversations, and questions in each
  int64_t system, first, later, answer;  // tokens: common to all users, of a first and of later messages
  double arrival_s, think_s;             // mean time between users, and from an answer to the next question
};
std::span<const WorkloadShape> workload_shapes();

struct WorkloadTurn {
  double wait_s;               // from the start of it all, or from the end of the answer before
  std::vector<Token> message;  // what it adds to the prompt
  std::vector<Token> answer;   // stands for its answer in the prompts of later turns
};

struct Workload {
  WorkloadShape shape;  // as scaled
  std::vector<Token> system;
  std::vector<std::vector<WorkloadTurn>> conversations;

  int64_t requests() const { return shape.users * shape.turns; }
  int64_t positions() const;  // of the longest conversation, its last answer included
};

struct WorkloadSize {  // 0: as the shape says
  int64_t users = 0, turns = 0;
  double scale = 1;  // of lengths and times
};

// `ordinary`: the ids to draw from.  Message lengths vary by half around their mean, in pairs that add up to
// twice the mean; times are exponential.
Result<Workload> make_workload(const WorkloadShape& shape, const WorkloadSize& size, uint64_t seed,
                               std::span<const Token> ordinary);

// The prompt of a conversation as it grows; `marks` are the ends of its messages and answers.
struct GrowingPrompt {
  std::vector<Token> tokens;
  std::vector<int64_t> marks;

  void add(std::span<const Token> message);
};

}  // namespace invar::cli
