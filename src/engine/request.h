// What is asked of the engine, and what it tells while it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "decode/log_probability.h"
#include "decode/sampler.h"

namespace invar {

enum class Finish { Running, Stop, Length, StopString, Cancelled, Deadline, Failed };
const char* name_of(Finish finish);  // as the command line writes it

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, known when the request began to run
  int64_t prompt_rows = 0;    // of the prompt, computed; all the others, unless it was pushed out in between
  int64_t answer_tokens = 0;
  int64_t answer_rows = 0;  // of the answer, computed
  int64_t preemptions = 0;
  double queue_s = 0, prompt_s = 0, answer_s = 0;
};

struct Event {
  uint64_t id = 0;
  int choice = 0;
  std::span<const Token> tokens;  // new ones; none while the prompt is read.  Valid during the call
  Finish finish = Finish::Running;
  std::optional<Error> error = {};  // if Failed
  TokenUsage usage = {};            // so far
  // With the last event, if wanted: SHA-256 of the logits of the last prompt row and of every row that a
  // token was chosen from, before mask and penalties.
  Digest logits = {};
  Token stopped_by = -1;  // with the last event: the stop token behind the answer
  // If asked for: one per token of `tokens`, and one for `stopped_by`.
  std::span<const TokenLogprob> logprobs = {};
  // If asked for: of the prompt, from its second token on, in order, with the passes that read it.
  std::span<const TokenLogprob> prompt_logprobs = {};
};

class Constraint {  // which tokens may come next
 public:
  virtual ~Constraint() = default;
  virtual void mask(std::span<uint64_t> allowed) = 0;  // clears the bits of the others
  virtual bool masks() const { return true; }          // false: any token may come, mask() clears none
  virtual bool accept(Token token) = 0;                // false: the answer is complete with it
  // A stop token was chosen: what the answer goes on with instead, or the same for its end.
  virtual Token in_place_of(Token stop) { return stop; }
  virtual std::unique_ptr<Constraint> copy() const = 0;  // for each of n choices
};

struct Request {
  std::vector<Token> prompt;
  int64_t max_tokens = -1;  // below 0: until the context is full
  SamplingParams sampling;
  std::vector<Token> stop;                 // end the answer, and are not part of it
  std::vector<uint64_t> allowed;           // one bit per token; empty: all
  std::unique_ptr<Constraint> constraint;  // none: all that are allowed
  int n = 1;                   // choices, of one prompt that is read once; sampling.choice is the first's
  std::vector<int64_t> marks;  // rising positions of the prompt where another may go another way
  int priority = 0;            // higher is served earlier
  // From now on: until it ends, and until it begins to run.  Else it ends with Deadline.
  double deadline_s = std::numeric_limits<double>::infinity();
  double start_s = std::numeric_limits<double>::infinity();
  bool reuse = true;  // of what others read; false: and nothing of it is kept for them
  bool digest = false;
  // Alternatives told with the log-probability of each token of the answer or the prompt; below 0: none are
  // told.  A prompt whose are wanted is read from its beginning, once for all n.
  int logprobs = -1, prompt_logprobs = -1;
  // The state behind the prompt is kept by this name, on the disk before the first token if the engine has a
  // folder; or the request fails.
  std::string save_as;
  std::string from;  // starts from the state of this name, whose text begins the prompt, or fails
  // Called on the engine's thread; must not block.  After each pass over the prompt, for each token, and for
  // each choice once with its finish, last.  False after a token: enough, the answer ends with StopString.
  std::function<bool(const Event&)> on_event = {};
};

// What a prompt of so many tokens is told when it does not fit.
Status check_fits(int64_t prompt_tokens, int64_t context);

// SHA-256 over ids as little-endian 32-bit integers.
Digest digest_tokens(std::span<const Token> tokens);

}  // namespace invar
