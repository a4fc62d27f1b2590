// What one answer must obey, as the engine asks for it: a grammar that begins after the thought, a budget for
// the thought, texts that must not appear.
//
// The engine calls mask, accept and copy from its thread.  With a thread for masks the mask for the next
// token is computed there from the moment a token was accepted, while the engine's pass runs; mask() waits
// for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/work_thread.h"
#include "engine/metrics.h"
#include "engine/request.h"
#include "text/answer_format.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace invar {

struct AnswerRules {
  enum class Thought { No, May, Open };  // none; the answer may begin with one; the prompt opened one
  Thought thought = Thought::No;
  int64_t thought_budget = -1;           // tokens; then the end of the thought is forced; below 0: no limit
  std::optional<Grammar> grammar = {};   // what follows the thought
  std::vector<std::string> banned = {};  // texts that must not appear after the thought
  Counter* kept_on = nullptr;            // counts the ends of answers that a thought stood in the way of

  bool needed() const { return thought_budget >= 0 || grammar || !banned.empty(); }
};

// What constraints of one model share.  Immutable but for the thread: any number of threads may use it.
class ConstraintMaker {
 public:
  // `ends`: every token that ends an answer.  All arguments must outlive the maker and its constraints.
  static Result<ConstraintMaker> make(const Tokenizer& tokenizer, const AnswerFormat& format,
                                      std::span<const Token> ends, WorkThread* masks);
  // `banned` are beginnings of calls (call_begins).
  Result<std::unique_ptr<Constraint>> constraint(AnswerRules rules) const;

  struct Shared;

 private:
  std::shared_ptr<const Shared> shared_;
};

}  // namespace invar
