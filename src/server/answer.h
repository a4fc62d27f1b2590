// An answer as it grows, the same for all APIs, and how one of them writes it.  A whole answer is written
// from what was gathered, a stream from the pieces as they are gathered, so both say the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/errors.h"
#include "server/question.h"

namespace invar::server {

// How a choice ended.  Window: the context is full.
enum class Ending { Stop, StopString, StopToken, Length, Window };

struct Block {  // of an answer, in its order
  enum class Kind { Thought, Text, Call } kind;
  std::string id;         // 24 drawn letters and digits
  std::string text;       // of a call its arguments, as JSON
  std::string name = {};  // of a call
  bool complete = false;  // a call that the end cut off is not
  // Of the choice's tokens, those between the block before and its own end, as far as they are kept.
  size_t first_token = 0, last_token = 0;  // the last is behind them; set when it is closed
};

struct Said {  // one token
  Token token;
  Block::Kind part;                          // of the answer that it belongs to
  std::optional<TokenLogprob> logprob = {};  // if asked for
};

struct Choice {
  std::vector<Block> blocks;
  std::vector<Said> tokens;     // of the answer
  std::optional<Said> stopped;  // the stop token behind them
  int64_t token_count = 0, thought_tokens = 0;
  std::optional<Ending> ending;
  std::string stop_string;  // if StopString
  Token stop_token = -1;    // if StopToken

  bool has_calls() const;
  std::string joined(Block::Kind kind) const;
};

struct Prompt {
  std::vector<Token> tokens;
  std::vector<TokenLogprob> logprobs;  // from the second token on
  int64_t cached_tokens = 0;
};

struct Usage {
  int64_t prompt = 0, cached = 0, answer = 0, thought = 0;
};

struct Answer {
  std::string id;       // 24 drawn letters and digits
  std::string model;    // as it was asked for
  int64_t created = 0;  // seconds since 1970
  uint64_t seed = 0;
  std::vector<Prompt> prompts;
  std::vector<Choice> choices;  // those of the first prompt, then of the next
  TokenUsage first;             // of the engine, for timings

  Usage usage() const;
  const Prompt& prompt_of(size_t choice) const { return prompts[choice / (choices.size() / prompts.size())]; }
};

// One API's form of one answer.  `write` takes what is to be sent of a stream, an event at a time.
class Writer {
 public:
  using Write = std::function<void(std::string)>;
  virtual ~Writer() = default;

  virtual std::string whole(const Answer& answer) = 0;

  // The stream: begin once, before anything else but heartbeats; blocks of one choice follow each other and
  // never overlap.
  virtual void begin(const Answer&, const Write&) {}
  virtual void open(const Answer&, size_t, const Block&, const Write&) {}
  virtual void add(const Answer& answer, size_t choice, const Block& block, std::string_view text,
                   const Write& write) = 0;
  virtual void close(const Answer&, size_t, const Block&, const Write&) {}
  virtual void end_choice(const Answer&, size_t, const Write&) {}
  virtual void end(const Answer&, const Write&) = 0;
  // Nothing was sent for a while; `begun`: begin was called.
  virtual void heartbeat(const Answer& answer, bool begun, const Write& write) = 0;
  // The answer ends here, with what is wrong.  False: break the connection off instead.
  virtual bool fail(const Answer& answer, const ApiError& error, const Write& write) = 0;
};

// Fills an answer; the writer, if any, hears of each piece, or of several as one while `busy` says so.
class Gatherer {
 public:
  Gatherer(Answer& answer, Writer* writer, Writer::Write write, std::function<bool()> busy = {})
      : answer_(answer), writer_(writer), write_(std::move(write)), busy_(std::move(busy)) {}

  void thought(size_t choice, std::string_view text) { add(choice, Block::Kind::Thought, text); }
  void text(size_t choice, std::string_view text) { add(choice, Block::Kind::Text, text); }
  void call(size_t choice, std::string name);
  void arguments(size_t choice, std::string_view json);
  void call_complete(size_t choice);
  void end_choice(size_t choice, Ending ending);
  void end();
  void heartbeat();
  bool fail(const ApiError& error);
  bool begun() const { return begun_; }

 private:
  void begin();
  void add(size_t choice, Block::Kind kind, std::string_view text);
  void extend(size_t choice, std::string_view text);
  void open(size_t choice, Block block);
  void flush(size_t choice);
  void close(size_t choice);

  Answer& answer_;
  Writer* writer_;
  Writer::Write write_;
  std::function<bool()> busy_;
  bool begun_ = false;
  struct Last {  // block of a choice
    bool open = false;
    size_t told = 0;  // bytes of its text that the writer has heard
  };
  std::vector<Last> last_;
};

}  // namespace invar::server
