// What the engine counts, and what it has in memory.
#pragma once

#include <array>
#include <cstdint>

#include "engine/model_runner.h"
#include "state/disk_store.h"
#include "state/prefix_tree.h"
#include "state/state_pool.h"

namespace invar {

// Where the engine's thread spent its time.
struct StepSeconds {
  double schedule = 0;  // taking requests and states, and the plan of the pass
  double forward = 0;   // the pass, without what follows
  double choose = 0;    // masks and sampling
  double deliver = 0;   // tokens to those who asked, snapshots
};

struct Statistics {
  int64_t submitted = 0, finished = 0, cancelled = 0, failed = 0;  // choices
  int64_t running = 0, queued = 0;
  int64_t request_bytes = 0;  // of both: their texts, and what was said of them
  int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, prompt_rows = 0, answer_tokens = 0,
          answer_rows = 0;
  int64_t preemptions = 0, snapshots = 0, evicted_bytes = 0, from_disk = 0;
  StepSeconds step_s;
  RunnerMemory memory;
  PoolUse state;
  PrefixTree::Use tree;
  DiskStore::Use disk;
};

struct MemoryKind {
  const char* name;
  int64_t bytes;
};

// All that grows on purpose, in physical memory.  The sum is what the process takes, about.
std::array<MemoryKind, 7> memory_by_kind(const Statistics& statistics);
int64_t memory_bytes(const Statistics& statistics);  // the sum

}  // namespace invar
