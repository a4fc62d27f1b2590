// What must be equal for a state on disk to mean the same, beside its text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/sha256.h"
#include "state/state_pool.h"

namespace invar {

struct StateOrigin {
  std::string model;                       // its fingerprint, 64 hexadecimal digits
  std::string kv;                          // how keys and values are stored
  std::string drafter;                     // who drafts rows, whose state is kept beside; empty: nobody
  std::span<const StateSpec> layout = {};  // what each layer keeps
  uint32_t numerics = 0;                   // version
};

struct StateKey {
  Digest key{};                              // of the origin, without the version
  std::string model = std::string(64, '0');  // as above, for people
  uint32_t numerics = 0;
};

StateKey key_of(const StateOrigin& origin);

}  // namespace invar
