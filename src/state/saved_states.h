// States that a user saved by name: one file each, NAME.saved, whole or not there, and never removed but by
// name.  A file holds the text, the state behind it and what it belongs to, so it needs no other; the bytes
// are store_format.h's.  Unlike the disk store's, a fault here is an Error: who names a state gets it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "state/state.h"
#include "state/state_key.h"
#include "state/store_format.h"

namespace invar {

// Where the saved states of a cache folder are.
inline std::string saved_folder(const std::string& cache_folder) { return cache_folder + "/saved"; }

// Letters, digits, '.', '_', '-'; 1 to 100 of them, the first no '.'.
Status check_state_name(const std::string& name);

struct SavedInfo {
  std::string name, model;
  int64_t tokens = 0, bytes = 0;
  int64_t saved_at = 0;              // seconds since 1970
  std::optional<Error> damage = {};  // then the rest is not known
};
Result<std::vector<SavedInfo>> list_saved(const std::string& folder);  // by name; none without the folder

// On the disk when it returns.  The same name again replaces.
Status write_saved(const std::string& folder, const std::string& name, const StateKey& key,
                   std::span<const Token> tokens, const Snapshot& snapshot, const StatePool& pool);
Result<bool> forget_saved(const std::string& folder, const std::string& name);  // false: none of that name

class SavedState {
 public:
  // NotFound: there is none of that name.
  static Result<SavedState> open(const std::string& folder, const std::string& name);

  const std::vector<Token>& tokens() const { return body_.tokens; }
  SavedInfo info() const;
  int64_t state_bytes() const { return head_.pages() * head_.page_bytes + head_.set_bytes; }
  Status check(const StateKey& key, const StatePool& pool) const;  // it is of this model
  // Of a state that was checked: the bytes of a snapshot of its position that has all its pages and set.
  Status read(const Snapshot& snapshot) const;

 private:
  SavedState(File file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  Status read_heads();
  Status read_part(uint64_t& at, const Digest& digest, std::span<std::byte> out) const;

  File file_;
  std::string name_;
  SavedNote note_;
  StateHead head_;
  StateBody body_;
};

}  // namespace invar
