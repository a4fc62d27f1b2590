// One request on an engine: the prompt, then token after token until something ends the answer.  Knows no
// text: who listens turns tokens into text, and may end the answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "decode/sampler.h"
#include "engine/engine.h"
#include "state/state.h"

namespace invar {

constexpr int kNumericsVersion = 1;  // raised by any change that moves a bit of any logits

enum class Finish { Stop, Length, StopString, Interrupt };
const char* name_of(Finish finish);  // as the command line writes it

struct Request {
  std::vector<Token> prompt;
  int64_t max_tokens = -1;        // below 0: until the context is full
  SamplingParams sampling;        // checked
  std::vector<Token> stop;        // end the answer, and are not part of it
  std::vector<uint64_t> allowed;  // one bit per token; empty: all
};

struct Listener {
  std::function<bool(Token)> on_token = {};                        // false ends the answer: a stop string
  std::function<void(int64_t done, int64_t rows)> on_prompt = {};  // after each pass over the prompt
  const std::atomic<bool>* interrupt = nullptr;                    // looked at between passes
};

struct Answer {
  std::vector<Token> tokens;
  Finish finish = Finish::Stop;
  Digest logits{};  // of the last prompt row and every row a token was chosen from, before mask and penalties
  int64_t prompt_rows = 0;  // rows of the prompt that had to be computed
  double prompt_s = 0, generate_s = 0;
  int64_t passes = 0;      // after the prompt
  double bytes_moved = 0;  // by those passes
};

// A sequence with the tokens that it has read, so that a longer prompt can go on from there.
struct Story {
  std::unique_ptr<SequenceState> state;
  std::vector<Token> tokens;
};

// A prompt longer than the context is refused.  An answer that fills the context ends with Length.
Result<Answer> generate(Engine& engine, Story& story, const Request& request, const Listener& listener = {});

// What a prompt of so many tokens is told when it does not fit.
Status check_fits(int64_t prompt_tokens, int64_t context);

// SHA-256 over ids as little-endian 32-bit integers.
Digest digest_tokens(std::span<const Token> tokens);

}  // namespace invar
