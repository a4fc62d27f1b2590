// The engine as other threads see it: requests in, numbers out.
#include <algorithm>

#include "base/clock.h"
#include "engine/engine.h"

namespace invar {

Result<uint64_t> Engine::submit(Request request) {
  if (request.prompt.empty())
    return Error{Code::BadRequest, "prompt", "expected at least one token, found none"};
  TRY(check_fits(int64_t(request.prompt.size()), runner_.context()));
  for (Token t : request.prompt)
    if (t < 0 || t >= runner_.vocab())
      return Error{Code::BadRequest, "prompt",
                   "expected tokens from 0 to " + std::to_string(runner_.vocab() - 1) + ", found " +
                       std::to_string(t)};
  constexpr int kMostChoices = 128;
  if (request.n < 1 || request.n > kMostChoices)
    return Error{Code::BadRequest, "n",
                 "expected 1 to " + std::to_string(kMostChoices) + ", found " + std::to_string(request.n)};
  TRY(check_sampling(request.sampling, runner_.vocab()));
  for (const std::string* name : {&request.save_as, &request.from})
    if (!name->empty()) TRY(check_state_name(*name));
  if (!request.from.empty() && request.prompt_logprobs >= 0)
    return Error{Code::BadRequest, "from",
                 "expected no saved state where the prompt's log-probabilities are wanted"};
  std::sort(request.marks.begin(), request.marks.end());
  std::lock_guard lock(mutex_);
  const uint64_t id = next_id_;
  next_id_ += uint64_t(request.n);
  submitted_.push_back({id, std::move(request), steady_seconds()});
  inbox_filled_.notify_all();
  return id;
}

void Engine::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  inbox_filled_.notify_all();
}

Statistics Engine::statistics() const {
  std::lock_guard lock(mutex_);
  return shown_;
}

void Engine::wait() {
  if (!active_.empty()) return;
  std::unique_lock lock(mutex_);
  inbox_filled_.wait(
      lock, [&] { return woken_ || !submitted_.empty() || !cancelled_.empty() || !posted_.empty(); });
  woken_ = false;
}

void Engine::post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  inbox_filled_.notify_all();
}

void Engine::wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  inbox_filled_.notify_all();
}

}  // namespace invar
