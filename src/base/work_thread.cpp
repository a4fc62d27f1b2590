#include "base/work_thread.h"

#include "base/clock.h"

namespace invar {

WorkThread::WorkThread() : thread_([this] { loop(); }) {}

WorkThread::~WorkThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_all();
  thread_.join();
}

void WorkThread::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  filled_.notify_one();
}

size_t WorkThread::waiting() const {
  std::lock_guard lock(mutex_);
  return work_.size();
}

void WorkThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    const double start = steady_seconds();
    work();
    work = {};
    busy_s_.store(busy_s_.load(std::memory_order_relaxed) + steady_seconds() - start,
                  std::memory_order_relaxed);
    lock.lock();
  }
}

}  // namespace invar
