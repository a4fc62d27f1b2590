#include "engine/engine_thread.h"

namespace invar {

EngineThread::EngineThread(std::unique_ptr<Engine> engine)
    : engine_(std::move(engine)), thread_([this] { loop(); }) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  engine_->wake();
  thread_.join();
}

void EngineThread::forget(std::function<void()> done) {
  engine_->post([this, done = std::move(done)] {
    engine_->forget();
    done();
  });
}

void EngineThread::loop() {
  while (!stopping_) {
    engine_->wait();
    while (!stopping_ && engine_->step()) {}
  }
  engine_->drain();
}

}  // namespace invar
