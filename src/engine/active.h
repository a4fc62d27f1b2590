// What the engine knows of one choice of a request while it waits and runs.  Private to engine.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace invar {

// One choice of a request, from submission to its last event.
struct Engine::Active {
  uint64_t id = 0, request_id = 0;
  Request request;  // its prompt is in `tokens`
  std::vector<Token> tokens;
  int64_t prompt_tokens = 0, limit = 0;  // limit: most tokens of the answer
  double submitted_at = 0, began_at = 0, read_at = 0;
  bool began = false;
  std::unique_ptr<SequenceState> state;                        // none: it waits
  enum { Nothing, Opening, Loading, Saving } wants = Nothing;  // of the disk; then it gets no rows
  bool asked_named = false, asked_disk = false;
  std::string file;                           // the stored state that it waits for
  std::shared_ptr<Result<SavedState>> named;  // the state that it names, when opened
  Result<Snapshot> loaded = Snapshot{};       // and read
  Status saved = Ok{};
  int64_t last_snapshot = 0;                       // where its state was kept last, or came from
  int64_t last_stored = 0;                         // the same, of what was kept on disk, too
  int64_t known = 0;                               // where it left what was known
  int64_t taken = 0;                               // the position its state came with
  int64_t awaited = 0;                             // where others want its state: the first place to come
  std::vector<std::unique_ptr<Active>> followers;  // further choices, until the prompt is read
  TokenUsage usage;
  Sha256 digest;
  std::optional<Token> chosen;          // in this step
  std::vector<TokenLogprob> logprobs;   // of it, if wanted
  std::vector<TokenLogprob> of_prompt;  // in this step, if wanted
  int64_t scored = 0;  // tokens of the prompt whose log-probabilities were told, and the first
  Token stopped_by = -1;
  Finish outcome = Finish::Running;
  std::optional<Error> failure;

  void forget_disk() {
    wants = Nothing;
    asked_named = asked_disk = false;
    loaded = Snapshot{};
  }
  bool stops(Token token) const {
    return std::find(request.stop.begin(), request.stop.end(), token) != request.stop.end();
  }
  void fail(const Error& error) {  // with the choices that have not begun
    outcome = Finish::Failed;
    failure = error;
    for (auto& f : followers) f->fail(error);
  }
  int64_t position() const { return state ? state->position() : 0; }
  // The text of the snapshot that its state gives.
  std::span<const Token> settled() const {
    return std::span(tokens).first(state ? size_t(state->settled()) : 0);
  }
  // About, with the other choices that have not begun.
  int64_t bytes() const {
    int64_t sum =
        int64_t(sizeof *this + tokens.size() * sizeof(Token) + request.allowed.capacity() * sizeof(uint64_t) +
                request.marks.capacity() * sizeof(int64_t));
    for (const auto& f : followers) sum += f->bytes();
    return sum;
  }
  int64_t answer_tokens() const { return int64_t(tokens.size()) - prompt_tokens; }
  Ticket ticket() const {
    Ticket t;
    t.id = id;
    t.priority = request.priority;
    t.arrived = submitted_at;
    t.deadline = submitted_at + request.deadline_s;
    t.start_by = submitted_at + request.start_s;
    t.tokens = int64_t(tokens.size());
    t.most = prompt_tokens + std::max<int64_t>(limit, 1);
    return t;
  }
};

}  // namespace invar
