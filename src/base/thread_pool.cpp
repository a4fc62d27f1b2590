#include "base/thread_pool.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <immintrin.h>
#include <sched.h>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"
#include "base/float_env.h"

namespace invar {
namespace {

// Processors that the control group's quota pays for (cgroup v2 cpu.max of this group and of those above it);
// a large number when there is no quota.
double cgroup_quota() {
  std::ifstream self("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(self, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  double least = 1e9;
  while (true) {
    std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      least = std::min(least, std::stod(quota) / period);
    if (path.empty() || path == "/") return least;
    path = path.substr(0, path.rfind('/'));
  }
}

constexpr int kSpins = 4000;  // about 50 us

}  // namespace

int available_processors() {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                      : int(std::thread::hardware_concurrency());
  return std::max(1, std::min(n, int(std::ceil(cgroup_quota()))));
}

ThreadPool::ThreadPool(int threads)
    : ended_(size_t(std::max(threads, 0))), spins_(threads <= available_processors() ? kSpins : 0) {
  CHECK(threads >= 1);
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { loop(size_t(i)); });
  } catch (const std::system_error&) {
    ended_.resize(size_t(this->threads()));  // the system gives no more: those that run do the work
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++turn_;
  turn_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::claim(size_t thread) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) call_(piece_, i);
  if (watched_) ended_[thread].at = steady_seconds();
}

void ThreadPool::count_waiting() {
  auto [first, last] = std::minmax_element(ended_.begin(), ended_.end(),
                                           [](const Ended& a, const Ended& b) { return a.at < b.at; });
  waited_ += last->at - first->at;
}

void ThreadPool::loop(size_t thread) {
  FloatEnv environment;
  for (uint32_t seen = 0;;) {
    for (int i = 0; i < spins_ && turn_.load(std::memory_order_acquire) == seen; ++i) _mm_pause();
    turn_.wait(seen, std::memory_order_acquire);
    seen = turn_.load(std::memory_order_acquire);
    if (stop_) return;
    claim(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void ThreadPool::run_pieces(int64_t n, Call call, void* piece) {
  FloatEnv environment;
  if (n <= 1 || threads_.empty()) {
    for (int64_t i = 0; i < n; ++i) call(piece, i);
    return;
  }
  call_ = call;
  piece_ = piece;
  n_ = n;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(int(threads_.size()), std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  turn_.notify_all();
  claim(0);
  for (int i = 0; i < spins_ && busy_.load(std::memory_order_acquire) != 0; ++i) _mm_pause();
  for (int left; (left = busy_.load(std::memory_order_acquire)) != 0;)
    busy_.wait(left, std::memory_order_acquire);
  if (watched_) count_waiting();
}

}  // namespace invar
