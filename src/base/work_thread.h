// One thread that does what is posted to it, in order of posting.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace invar {

class WorkThread {
 public:
  WorkThread();
  ~WorkThread();  // what is posted is still done
  WorkThread(const WorkThread&) = delete;

  void post(std::function<void()> work);
  size_t waiting() const;
  double busy_seconds() const { return busy_s_.load(std::memory_order_relaxed); }  // in all work so far

 private:
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::atomic<double> busy_s_ = 0;
  std::thread thread_;
};

}  // namespace invar
