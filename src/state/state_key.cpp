#include "state/state_key.h"

namespace invar {

StateKey key_of(const StateOrigin& origin) {
  Sha256 key;
  auto number = [&](int64_t n) { key.update(std::as_bytes(std::span(&n, 1))); };
  for (const std::string* text : {&origin.model, &origin.kv, &origin.drafter}) {
    number(int64_t(text->size()));
    key.update(*text);
  }
  for (const StateSpec& s : origin.layout)
    for (int64_t n : {int64_t(s.kind), s.bytes, s.journal_bytes}) number(n);
  return {key.finish(), origin.model, origin.numerics};
}

}  // namespace invar
