// The thread that owns an engine and steps it for as long as this object lives.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "engine/service.h"

namespace invar {

class EngineThread : public Service {
 public:
  explicit EngineThread(std::unique_ptr<Engine> engine);
  ~EngineThread() override;  // stop()

  Result<uint64_t> submit(Request request) override { return engine_->submit(std::move(request)); }
  void cancel(uint64_t id) override { engine_->cancel(id); }
  Statistics statistics() const override { return engine_->statistics(); }
  void forget(std::function<void()> done) override;
  int64_t context() const override { return engine_->runner().context(); }
  int64_t vocab() const override { return engine_->runner().vocab(); }

  // After the step that runs; then what is kept on disk is written.  Requests that have not ended get no more
  // events.
  void stop();

 private:
  void loop();

  std::unique_ptr<Engine> engine_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace invar
