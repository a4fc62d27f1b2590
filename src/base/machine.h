// What a measurement must know of the machine it ran on: the processor, its clock, how fast memory is read,
// and what else was running.  Linux; what the system does not tell is 0 or empty.
#pragma once

#include <cstdint>
#include <string>

#include "base/thread_pool.h"

namespace invar {

std::string processor_name();
double clock_ghz();     // measured on this thread, in about a millisecond
double load_average();  // of the last minute

// Seconds since some start.
struct Usage {
  double wall = 0;
  double own = 0;     // processor time of this process
  double busy = 0;    // of all processes, in steps of 10 ms for each processor
  double stolen = 0;  // wanted, but given to other guests of the host
  int processors = 0;

  static Usage now();
};

// What went on between two readings, as shares of the time of all processors.
struct Disturbance {
  double others = 0, stolen = 0;  // shares of the machine
  bool told = false;              // long enough for the clock's ticks to tell 5 %
  bool noticed() const { return told && others + stolen > 0.05; }
};
Disturbance between(const Usage& before, const Usage& after);

// Reads one large piece of memory, in huge pages if the system gives them, several times with all threads of
// the pool, in one place after the other and in several at once; the fastest time counts.  0 if there is no
// memory for it.
double read_gb_s(ThreadPool& pool);

// Memory that was never touched, written once by one thread; 0 if there is none.
double first_touch_gb_s(bool huge_pages);

// Physical memory of this process: now, and the most that it was since its start or since the peak was
// forgotten.  False: the system does not let it.
int64_t rss_bytes();
int64_t peak_rss_bytes();
bool forget_peak_memory();

}  // namespace invar
