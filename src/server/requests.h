// The requests that are on their way: how many each key has, how far each is and a hand to stop it, by the id
// that its client knows; and what became of the last that ended.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "text/json.h"

namespace invar::server {

class Tracked {  // one of them; any thread may ask
 public:
  virtual ~Tracked() = default;
  virtual Json state() const = 0;
  virtual void stop() = 0;  // its answer ends with stopped() of errors.h, unless it has ended
};

class Requests {
 public:
  // `key`: which of the server's it came with, and may have `most` at once if that is not 0; below 0:
  // none.  The number to leave with; 0: the key has as many as it may.
  uint64_t enter(const std::string& id, int key, int64_t most, std::weak_ptr<Tracked> request);
  // One that does not count as yet: it waits to be read.
  uint64_t announce(const std::string& id, int key, std::weak_ptr<Tracked> request);
  void leave(uint64_t number, Json state);  // null: nobody will ask how it ended

  // The latest of this id, if it came with the key; without a key here: with any.
  std::shared_ptr<Tracked> find(const std::string& id, std::optional<int> key) const;  // null: none is there
  Json ended(const std::string& id, std::optional<int> key) const;  // null: none has ended, or long ago

 private:
  struct Name {
    std::string id;
    int key;
    bool is(const std::string& other, std::optional<int> with) const {
      return id == other && (!with || key == *with);
    }
  };
  struct Entry {
    Name name;
    std::weak_ptr<Tracked> request;
    bool counts;  // among those of its key
  };

  mutable std::mutex mutex_;  // of what follows
  uint64_t last_ = 0;
  std::map<int, int64_t> of_key_;
  std::map<uint64_t, Entry> running_;
  std::deque<std::pair<Name, Json>> ended_;  // the latest first
};

}  // namespace invar::server
