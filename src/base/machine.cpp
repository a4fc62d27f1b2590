#include "base/machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

namespace invar {
namespace {

using Vector = uint64_t __attribute__((vector_size(16)));

constexpr int64_t kReadBytes = int64_t(512) << 20, kPieceBytes = int64_t(1) << 20;

// A piece in kPlaces parts, whose lines are read in turn: cores read several places at once faster than one
// after the other.  kAhead: bytes that are fetched in advance; 0 leaves it to the processor.
template <int kPlaces, int64_t kAhead>
uint64_t read_piece(const std::byte* from) {
  constexpr int64_t kPart = kPieceBytes / kPlaces / 256 * 256;
  Vector sum[16] = {};
  for (int64_t offset = 0; offset < kPart; offset += sizeof sum)
    for (int place = 0; place < kPlaces; ++place) {
      const std::byte* at = from + place * kPart + offset;
      if (kAhead > 0)
        for (int64_t line = 0; line < int64_t(sizeof sum); line += 64) __builtin_prefetch(at + kAhead + line);
      for (int i = 0; i < 16; ++i) sum[i] ^= reinterpret_cast<const Vector*>(at)[i];
    }
  for (int i = 1; i < 16; ++i) sum[0] ^= sum[i];
  return sum[0][0] ^ sum[0][1];
}

// Bytes per second.
template <int kPlaces, int64_t kAhead>
double pass(ThreadPool& pool, const std::byte* memory) {
  constexpr int64_t kPieces = kReadBytes / kPieceBytes;
  std::atomic<uint64_t> all = 0;
  const double start = steady_seconds();
  pool.run(kPieces, [&](int64_t i) { all ^= read_piece<kPlaces, kAhead>(memory + i * kPieceBytes); });
  const double time = steady_seconds() - start;
  CHECK(all == 0);  // asking keeps the reads alive
  return double(kPieces * (kPieceBytes / kPlaces / 256 * 256 * kPlaces)) / time;
}

}  // namespace

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return {};
}

double clock_ghz() {
  constexpr int kProducts = 1 << 18,
                kLatency = 3;  // cycles from one product to the next, on all x86-64 of the last decade
  double best = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    uint64_t x = 3;
    const double start = steady_seconds();
    for (int i = 0; i < kProducts; i += 8)
      for (int j = 0; j < 8; ++j) {
        x *= x;
        __asm__ volatile("" : "+r"(x));
      }
    best = std::min(best, steady_seconds() - start);
  }
  return double(kProducts) * kLatency / best / 1e9;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

Usage Usage::now() {
  Usage u;
  u.wall = steady_seconds();
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  u.own = double(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
          1e-6 * double(own.ru_utime.tv_usec + own.ru_stime.tv_usec);
  const double tick = 1 / double(sysconf(_SC_CLK_TCK));
  std::ifstream stat("/proc/stat");
  // cpu user nice system idle iowait irq softirq steal ...; guests are part of user.
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    if (line[3] != ' ') {
      ++u.processors;
      continue;
    }
    double field[8] = {};
    const char* at = line.c_str() + 4;
    for (double& f : field) {
      char* end = nullptr;
      f = std::strtod(at, &end);
      at = end;
    }
    u.busy = tick * (field[0] + field[1] + field[2] + field[5] + field[6]);
    u.stolen = tick * field[7];
  }
  return u;
}

Disturbance between(const Usage& before, const Usage& after) {
  const double all = (after.wall - before.wall) * std::max(1, after.processors);
  const double ticks = 0.01 * (1 + after.processors);  // what busy and own together can be wrong by
  if (all <= 0) return {};
  const double others = after.busy - before.busy - (after.own - before.own),
               stolen = after.stolen - before.stolen;
  return {std::clamp(others / all, 0.0, 1.0), std::clamp(stolen / all, 0.0, 1.0), ticks <= 0.05 * all};
}

double read_gb_s(ThreadPool& pool) {
  if (available_memory() < 2 * kReadBytes) return 0;
  void* memory =
      mmap(nullptr, size_t(kReadBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, size_t(kReadBytes), MADV_HUGEPAGE);
  std::byte* bytes = static_cast<std::byte*>(memory);
  // Pages that were never written are all the same page of zeros.
  pool.run(kReadBytes / kPieceBytes,
           [&](int64_t i) { std::memset(bytes + i * kPieceBytes, 0, size_t(kPieceBytes)); });
  double best = 0;
  for (int turn = 0; turn < 4; ++turn)
    for (auto read : {pass<1, 0>, pass<1, 2048>, pass<3, 2048>, pass<12, 2048>})
      best = std::max(best, read(pool, bytes));
  munmap(memory, size_t(kReadBytes));
  return best / 1e9;
}

double first_touch_gb_s(bool huge_pages) {
  constexpr int64_t kBytes = int64_t(256) << 20, kPage = 4096;
  void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 0;
  madvise(p, kBytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  auto* bytes = static_cast<volatile std::byte*>(p);
  const double start = steady_seconds();
  for (int64_t at = 0; at < kBytes; at += kPage) bytes[at] = std::byte{1};
  const double time = steady_seconds() - start;
  munmap(p, kBytes);
  return double(kBytes) / time / 1e9;
}

int64_t rss_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

bool forget_peak_memory() {
  const int file = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool done = ::write(file, "5", 1) == 1;
  ::close(file);
  return done;
}

}  // namespace invar
