#include "engine/statistics.h"

namespace invar {

std::array<MemoryKind, 7> memory_by_kind(const Statistics& s) {
  return {{{"beside", s.memory.beside_bytes},
           {"weights", s.memory.weights_bytes},
           {"scratch", s.memory.scratch_bytes},
           {"states", s.state.resident_bytes},
           {"texts", s.tree.bytes},
           {"requests", s.request_bytes},
           {"disk_index", s.disk.index_bytes}}};
}

int64_t memory_bytes(const Statistics& s) {
  int64_t sum = 0;
  for (const MemoryKind& kind : memory_by_kind(s)) sum += kind.bytes;
  return sum;
}

}  // namespace invar
