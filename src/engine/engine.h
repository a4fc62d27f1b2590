// The loop over requests: inbox, plan, pass, choose, commit, events.  One thread owns the engine and calls
// step(); submit() and cancel() may be called from any.  What was read once is kept in the prefix tree, and
// on disk if a folder is given, as long as there is room: an answer is the same bits with and without it.
// Files are read and written on the disk store's thread; who wants them waits while others step on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/statistics.h"
#include "state/disk_store.h"
#include "state/prefix_tree.h"
#include "state/saved_states.h"

namespace invar {

struct EngineOptions : RunnerOptions {
  EngineOptions() { sequences = 16; }

  double step_s = 0.25;      // what a step may take while answers run
  int64_t growth = 256;      // positions that each running answer is kept room for
  bool reuse = true;         // keep what was read; false: for measurements
  std::string cache_folder;  // empty: nothing is kept on disk
  int64_t cache_disk_bytes = int64_t(20) << 30;
  std::function<void(const std::string&)> log = {};  // what became of the disk; called on any thread
  std::function<void(int64_t rows, double seconds)> on_pass = {};  // after each; on the engine's thread
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const ModelFile& file, const EngineOptions& options,
                                              const OpenListener& listener = {});
  // Over a runner that outlives it, and whose state it has for itself.  `key`: what files know the model by.
  Engine(ModelRunner& runner, const EngineOptions& options, const StateKey& key = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  ModelRunner& runner() { return runner_; }

  // From any thread.  A request that cannot be served is refused here; else all comes through on_event.
  Result<uint64_t> submit(Request request);
  void cancel(uint64_t id);       // all of its choices; nothing if they have ended
  Statistics statistics() const;  // as of the last step
  void wait();                    // until there is something to do, or wake() was called
  void wake();
  void post(std::function<void()> work);  // done on the engine's thread before its next step

  // On the engine's thread.
  bool step();  // false: nothing to do
  void run_until_idle() {
    while (step()) {}
  }
  void forget();  // all that is kept in memory for reuse
  PrefixTree& tree() { return tree_; }
  void drain();  // until all that is kept on disk is written

  // Saved states, see Request: files in the cache folder if there is one, which any thread may ask for; else
  // in memory until the engine ends.
  bool saves_files() const { return !saved_folder_.empty(); }
  Result<std::vector<SavedInfo>> saved() const;                            // by name
  Result<std::vector<Token>> saved_tokens(const std::string& name) const;  // NotFound: none of that name
  Result<bool> release(const std::string& name);                           // false: none of that name

 private:
  struct Active;
  struct WantedRow {
    Active* request;
    int64_t position;
  };
  struct Submitted {
    uint64_t id;
    Request request;
    double at;
  };

  static constexpr int64_t kSpacing = 512;             // positions between snapshots, at most
  static constexpr int64_t kLeastGap = 64;             // and at least: a piece for a snapshot costs a pass
  static constexpr int64_t kLeastTextBytes = 1 << 20;  // for texts that are known, however small the budget

  void take_inbox();
  void begin(Submitted& submitted);
  void admit();
  bool try_start(Active& a);
  Status start(Active& a);
  bool request_from_disk(Active& a, const Snapshot& base);
  void request_named(Active& a);
  Status load_named(Active& a);
  void settle_arrived();
  void settle_saved(Active& a);
  void wait_for_disk();
  void share();
  void take_known(Active& a);
  int64_t next_cut(const Active& a) const;
  bool reserve(Active& a, int64_t rows);
  bool make_room(int64_t bytes);
  void preempt(uint64_t id);
  void score_prompt(Active& a, int64_t position, std::span<const float> logits);
  void choose_token(Active& a, std::span<const float> logits);
  void after_pass(Active& a, int64_t before);
  void take_token(Active& a, Token token);
  bool reuses(const Active& a) const;
  bool scores(const Active& a, int64_t position) const;
  void go_on(Active& a);
  Status save(Active& a);
  std::optional<Snapshot> snapshot_of(const Active& a);
  void keep(Active& a, bool on_disk);
  void keep_frozen(Active& a, bool on_disk);
  bool tell(Active& a, std::span<const Token> tokens, Finish finish, std::optional<Error> error = {});
  void finish(uint64_t id, Finish finish, std::optional<Error> error = {});
  void end_step();

  std::unique_ptr<ModelRunner> own_runner_;
  ModelRunner& runner_;
  EngineOptions options_;
  StateKey key_;
  std::string saved_folder_;  // empty: saved states are in the tree
  Scheduler scheduler_;
  PrefixTree tree_;
  std::unique_ptr<DiskStore> store_;
  std::map<uint64_t, std::unique_ptr<Active>> active_;
  std::vector<uint64_t> arrived_;  // those whose files are read or written
  // Of one step; kept so that the next one need not allocate.
  Batch batch_;
  std::vector<Planned> plan_;
  std::vector<uint64_t> order_, mask_;
  std::vector<Active*> in_pass_;
  std::vector<WantedRow> wanted_;  // one per row of logits
  SamplingBuffers sampling_;
  Statistics counts_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable inbox_filled_;
  std::vector<Submitted> submitted_;
  std::vector<uint64_t> cancelled_;
  std::vector<std::function<void()>> posted_;
  bool woken_ = false, disk_done_ = false;
  uint64_t next_id_ = 1;
  Statistics shown_;
};

}  // namespace invar
