// Snapshots as files, so that a text read once is not read again after a restart.  A folder holds a head file
// for each snapshot and one file for each distinct page or set, named by its content; store_format.h has the
// bytes.  Nothing here can fail a request: what is damaged, foreign or gone costs speed and one line of log.
// One thread reads and writes; all calls come from the thread that owns the pool, and wait for no file but
// open() and drain().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/sha256.h"
#include "device/operands.h"
#include "state/state.h"

namespace invar {

struct DiskStoreOptions {
  std::string folder;             // made if missing
  int64_t budget_bytes = 0;       // of all files in the folder, whoever wrote them
  int64_t queue_bytes = 1 << 30;  // of snapshots that wait to be written; one may always wait
  // What must be equal for a state to mean the same: model, formats, layout and drafter in one digest, and
  // the version of the numbers.
  Digest key{};
  uint32_t numerics = 0;
  std::function<void(const std::string&)> log;  // one line; called on both threads
  std::function<void()> on_done;                // collect() has news; called on the store's thread
};

class DiskStore {
 public:
  // Reads the heads of all files.  A folder that cannot be read or written makes a store that finds nothing
  // or keeps nothing, and a line of log.
  static std::unique_ptr<DiskStore> open(StatePool& pool, DiskStoreOptions options);
  ~DiskStore();  // what still waits is not written; see drain
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // The longest stored prefix, shorter than the tokens.  Position 0: none.
  struct Found {
    std::string name;
    int64_t position = 0;
  };
  Found find(std::span<const Token> tokens) const;

  // Reads it into the pool, before what waits to be written.  Full pages of `base`, a snapshot of a prefix of
  // the same tokens, are shared instead of read.  collect() calls `done`: an error says that the files were
  // not good and are forgotten; the log has said so.  False: the pool is full, nothing changed.
  using OnLoaded = std::function<void(Result<Snapshot>)>;
  bool load(const Found& found, std::span<const Token> tokens, const Snapshot& base, OnLoaded done);

  // Other work for the store's thread, in the same order as loads.  Both functions live until collect() has
  // called the second with what the first gave, and go on this thread.
  void run(std::function<Status()> work, std::function<void(Status)> done);

  // Gives a snapshot of these tokens to the writer, which holds its pages until collect().  False: too much
  // waits already, or the snapshot is larger than the budget.
  bool put(std::span<const Token> tokens, Snapshot snapshot);
  void collect();      // lets go of what was written, tells what was read; call it now and then
  void drop_queued();  // lets go of those not begun: the pool wants room
  void drain();        // waits until all that was asked is done, and collects

  bool busy() const;  // something holds pages: is to be read or written, or collected

  struct Use {
    int64_t snapshots = 0;     // known to find()
    int64_t bytes = 0;         // of all files in the folder, as last seen
    int64_t queued_bytes = 0;  // of the pool, held for the writer
    int64_t index_bytes = 0;   // of memory: what find() and the writer know of the files, about
    int64_t written = 0, loaded = 0, failed = 0;
  };
  Use use() const;

 private:
  struct Impl;
  explicit DiskStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar
