// One thread for what takes milliseconds and is neither network nor model: bodies, templates, tokenizing,
// grammars.  In order of posting.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace invar::server {

class TextThread {
 public:
  TextThread();
  ~TextThread();  // what is posted is still done
  TextThread(const TextThread&) = delete;

  void post(std::function<void()> work);
  size_t waiting() const;

 private:
  void loop();

  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace invar::server
