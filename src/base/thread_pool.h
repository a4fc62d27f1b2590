// Runs the pieces of one operation on a fixed set of threads, the caller among them.  Pieces are claimed by a
// counter: outputs are independent, so who computes one cannot matter.  Idle threads spin briefly, then
// sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace invar {

// Processors that the affinity mask and the cgroup's quota allow, at least 1.
int available_processors();

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // the caller counts as one; fewer if the system gives no more
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(threads_.size()) + 1; }

  // From now on, the time of each operation from when its first thread found no piece left until its last one
  // did.  Each thread then reads the clock once an operation.
  void watch() { watched_ = true; }
  double waited_seconds() const { return waited_; }

  // Calls piece(i) once for each i in [0, n); returns when all are done.  One caller at a time; pieces must
  // not throw.
  template <class Piece>
  void run(int64_t n, Piece&& piece) {
    run_pieces(
        n, [](void* p, int64_t i) { (*static_cast<std::remove_reference_t<Piece>*>(p))(i); }, &piece);
  }

 private:
  using Call = void (*)(void*, int64_t);
  void run_pieces(int64_t n, Call call, void* piece);
  void claim(size_t thread);
  void loop(size_t thread);
  void count_waiting();

  struct alignas(64) Ended {
    double at = 0;
  };

  std::vector<std::thread> threads_;
  std::vector<Ended> ended_;  // by thread, the caller first; if watched
  bool watched_ = false;
  double waited_ = 0;
  int spins_;
  Call call_ = nullptr;
  void* piece_ = nullptr;
  int64_t n_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> turn_{0};  // one more for each run; the threads wait for it to move
  alignas(64) std::atomic<int> busy_{0};       // threads that have not finished this turn
  std::atomic<bool> stop_{false};
};

}  // namespace invar
