#include "server/text_thread.h"

namespace invar::server {

TextThread::TextThread() : thread_([this] { loop(); }) {}

TextThread::~TextThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_all();
  thread_.join();
}

void TextThread::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  filled_.notify_one();
}

size_t TextThread::waiting() const {
  std::lock_guard lock(mutex_);
  return work_.size();
}

void TextThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    work = {};
    lock.lock();
  }
}

}  // namespace invar::server
