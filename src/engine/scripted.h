// A service without a model: replays token sequences from a file, so that everything around the model can be
// tested in seconds.  The file has one JSON object on each line; the first whose conditions hold answers:
//
//   "match"   text or list of texts: all occur in the prompt (control tokens as they are written)
//   "last"    the same, in the last message that the prompt closes
//   "ends"    the prompt ends with this text
//   "times"   it answers so many requests, then it is passed over
//   "text"    the answer; control tokens may be written out.  Or "tokens": a list of ids
//   "repeat"  the answer so many times over, 1 unless given
//   "end"     "eos" (unless given), "length", or "fail": how it ends
//   "prompt_ms", "delay_ms"   waits before the first token, and before each other one
//   "chunk"   tokens of one event, a number or a list that is gone through again and again
//
// A constraint is obeyed: a token that it rules out fails the request, unless only one is left, which is
// taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/chat.h"
#include "engine/service.h"

namespace invar {

struct ScriptLine {
  std::vector<std::string> match, last;
  std::string ends;
  int64_t times = INT64_MAX;
  std::vector<Token> tokens;
  Finish end = Finish::Stop;
  double prompt_s = 0, delay_s = 0;
  std::vector<int> chunk = {1};
};

// `where` names the file in errors.
Result<std::vector<ScriptLine>> parse_script(std::string_view text, const Tokenizer& tokenizer,
                                             const std::string& where);

struct ScriptedOptions {
  int64_t context = 4096, vocab = 0;
  int running = 16;  // requests at once; the others wait
};

class Scripted : public Service {
 public:
  Scripted(const Chat& chat, std::vector<ScriptLine> script, const ScriptedOptions& options);
  ~Scripted() override;

  Result<uint64_t> submit(Request request) override;
  void cancel(uint64_t id) override;
  Statistics statistics() const override;
  void forget(std::function<void()> done) override;
  int64_t context() const override { return options_.context; }
  int64_t vocab() const override { return options_.vocab; }

 private:
  struct Active;
  void loop();
  double turn();  // seconds until there is something to do
  const ScriptLine* line_for(const std::vector<Token>& prompt);
  void begin(Active& a);
  void remember(std::vector<Token> text);
  void advance(Active& a);
  Result<Token> constrained(Constraint& constraint, Token token) const;
  bool tell(Active& a, int choice, std::span<const Token> tokens, Finish finish,
            std::optional<Error> error = {}, Token stopped_by = -1);
  void end(Active& a, int choice, Finish finish, std::optional<Error> error = {}, Token stopped_by = -1);

  const Chat& chat_;
  const std::vector<ScriptLine> script_;
  const ScriptedOptions options_;
  std::vector<int64_t> used_;             // requests that each line has answered
  std::vector<std::vector<Token>> read_;  // what a cache would hold: prompts before
  std::vector<std::unique_ptr<Active>> active_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable filled_;
  std::vector<std::unique_ptr<Active>> submitted_;
  std::vector<uint64_t> cancelled_;
  std::vector<std::function<void()>> forgets_;
  uint64_t next_id_ = 1;
  bool stopping_ = false;
  Statistics counts_;
  std::thread thread_;
};

}  // namespace invar
