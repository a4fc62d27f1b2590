// What answers requests, as the server sees it: a loaded model with the thread that steps it
// (engine_thread.h), a script that stands for one (scripted.h), or a gate in front of either
// (server/intake.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace invar {

class Service {
 public:
  virtual ~Service() = default;

  // From any thread.  A request that cannot be served is refused here, NoRoom: the queue is full, Cancelled:
  // the server is about to end.  Else all comes through on_event, called on the service's thread; it must not
  // block.
  virtual Result<uint64_t> submit(Request request) = 0;
  virtual void cancel(uint64_t id) = 0;  // all of its choices end with Cancelled; nothing if they have ended
  virtual Statistics statistics() const = 0;  // as of the last step
  // What is kept in memory for reuse; `done` is called when it is given up, on any thread.
  virtual void forget(std::function<void()> done) { done(); }
  virtual int64_t context() const = 0;  // positions that one sequence may have
  virtual int64_t vocab() const = 0;    // token ids are below it
};

}  // namespace invar
