#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "engine/active.h"
#include "files/fingerprint.h"

namespace invar {
namespace {

SchedulerLimits limits_of(ModelRunner& runner, const EngineOptions& options) {
  SchedulerLimits limits;
  limits.running = runner.settings().sequences;
  limits.prompt_rows = runner.settings().chunk;
  limits.step_s = options.step_s;
  limits.growth = options.growth;
  limits.page_positions = kPagePositions;
  limits.page_bytes = runner.pool().page_bytes();
  limits.fixed_bytes = runner.pool().set_bytes();
  return limits;
}

Result<StateKey> key_of(const ModelFile& file, const ModelRunner& runner) {
  StateOrigin origin;
  origin.model = runner.fingerprint().empty() ? TRY(fingerprint_of(file)) : runner.fingerprint();
  origin.kv = runner.settings().kv;
  origin.layout = runner.layout();
  origin.numerics = kNumericsVersion;
  return key_of(origin);
}

Status check_begins(std::span<const Token> prompt, std::span<const Token> saved, const std::string& name) {
  if (saved.size() < prompt.size() && std::equal(saved.begin(), saved.end(), prompt.begin())) return Ok{};
  return Error{Code::BadRequest, name,
               "expected a prompt that begins with the " + std::to_string(saved.size()) +
                   " tokens of the saved state and goes on, found another"};
}

int64_t common(std::span<const Token> a, std::span<const Token> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

Error no_state(const std::string& name) {
  return {Code::NotFound, name, "expected a saved state of this name, found none"};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const ModelFile& file, const EngineOptions& options,
                                             const OpenListener& listener) {
  auto runner = TRY(ModelRunner::open(file, options, listener));
  StateKey key;
  if (!options.cache_folder.empty()) key = TRY(key_of(file, *runner));
  auto engine = std::make_unique<Engine>(*runner, options, key);
  engine->own_runner_ = std::move(runner);
  return engine;
}

Engine::Engine(ModelRunner& runner, const EngineOptions& options, const StateKey& key)
    : runner_(runner),
      options_(options),
      key_(key),
      scheduler_(limits_of(runner, options)),
      tree_(runner.pool(), std::max(runner.memory().text_bytes, kLeastTextBytes)) {
  batch_.reserve(size_t(runner.most_rows()), size_t(runner.settings().sequences));
  wanted_.reserve(size_t(runner.most_rows()));
  sampling_.reserve(runner.vocab(), runner.context());
  if (!options_.cache_folder.empty()) {
    saved_folder_ = saved_folder(options_.cache_folder);
    DiskStoreOptions disk;
    disk.folder = options_.cache_folder;
    disk.budget_bytes = options_.cache_disk_bytes;
    disk.key = key.key;
    disk.numerics = key.numerics;
    disk.log = options_.log;
    disk.on_done = [this] {
      std::lock_guard lock(mutex_);
      disk_done_ = true;
      inbox_filled_.notify_all();
    };
    store_ = DiskStore::open(runner.pool(), disk);
  }
  end_step();
}

Engine::~Engine() {
  drain();
  store_.reset();  // its thread tells this one
}

void Engine::drain() {
  if (store_) store_->drain();
}

void Engine::forget() {
  while (tree_.evict(runner_.pool().budget_bytes()) > 0) {}
}

// --- the engine's thread ---

bool Engine::step() {
  const double began = steady_seconds();
  take_inbox();
  if (active_.empty()) {
    end_step();
    return false;
  }
  for (uint64_t id : scheduler_.expired(steady_seconds())) finish(id, Finish::Deadline);
  settle_arrived();
  admit();
  share();
  auto running = [&](uint64_t id) {
    auto at = active_.find(id);
    return at != active_.end() && at->second->state ? at->second.get() : nullptr;
  };
  plan_ = scheduler_.plan(std::move(plan_));
  for (const Planned& p : plan_)
    if (Active* a = running(p.id)) reserve(*a, p.rows);

  batch_.clear(), in_pass_.clear(), wanted_.clear();
  for (const Planned& p : plan_)
    if (Active* a = running(p.id)) {  // else it was pushed out
      batch_.add(a->state.get(), a->position(),
                 std::span(a->tokens).subspan(size_t(a->position()), size_t(p.rows)));
      in_pass_.push_back(a);
      const int64_t first = int64_t(batch_.tokens.size()) - p.rows;
      for (int64_t i = 0; i < p.rows; ++i) {
        const int64_t position = a->position() + i;
        if (position + 1 < int64_t(a->tokens.size()) && !scores(*a, position)) continue;
        batch_.logit_rows.push_back(int(first + i));
        wanted_.push_back({a, position});
      }
    }
  if (!in_pass_.empty()) {
    const double start = steady_seconds();
    double choosing = 0;
    runner_.pass(batch_, [&](size_t i, std::span<const float> logits) {
      const double before = steady_seconds();
      const auto [request, position] = wanted_[i];
      if (scores(*request, position)) score_prompt(*request, position, logits);
      else choose_token(*request, logits);
      choosing += steady_seconds() - before;
      return true;
    });
    const double took = steady_seconds() - start;
    scheduler_.learn(int64_t(batch_.tokens.size()), took);
    if (options_.on_pass) options_.on_pass(int64_t(batch_.tokens.size()), took);
    for (size_t i = 0; i < in_pass_.size(); ++i) after_pass(*in_pass_[i], batch_.slices[i].span.position);
    StepSeconds& s = counts_.step_s;
    s.schedule += start - began;
    s.forward += took - choosing;
    s.choose += choosing;
    s.deliver += steady_seconds() - start - took;
  } else {
    wait_for_disk();
  }
  end_step();
  return true;
}

void Engine::take_inbox() {
  std::vector<Submitted> submitted;
  std::vector<uint64_t> cancelled;
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
    posted.swap(posted_);
  }
  for (auto& work : posted) work();
  for (Submitted& s : submitted) begin(s);
  for (uint64_t id : cancelled)
    for (uint64_t last = id;;) {  // its choices have neighbouring ids
      auto at = active_.lower_bound(last);
      if (at == active_.end() || at->second->request_id != id) break;
      last = at->first + 1;
      finish(at->first, Finish::Cancelled);
    }
}

void Engine::begin(Submitted& s) {
  Request& asked = s.request;
  std::vector<std::unique_ptr<Active>> choices;
  for (int i = 0; i < asked.n; ++i) {
    auto a = std::make_unique<Active>();
    a->id = s.id + uint64_t(i);
    a->request_id = s.id;
    a->submitted_at = s.at;
    a->tokens = asked.prompt;
    a->prompt_tokens = a->usage.prompt_tokens = int64_t(a->tokens.size());
    a->limit = runner_.context() - a->prompt_tokens;
    if (asked.max_tokens >= 0) a->limit = std::min(a->limit, asked.max_tokens);
    Request& own = a->request;
    own.sampling = asked.sampling;
    own.sampling.choice += i;
    own.stop = asked.stop;
    own.allowed = asked.allowed;
    if (asked.constraint) own.constraint = asked.constraint->copy();
    own.marks = asked.marks;
    own.priority = asked.priority;
    own.deadline_s = asked.deadline_s;
    own.start_s = asked.start_s;
    own.digest = asked.digest;
    own.reuse = asked.reuse;
    own.logprobs = asked.logprobs;
    own.prompt_logprobs = i == 0 ? asked.prompt_logprobs : -1;
    own.on_event = asked.on_event;
    choices.push_back(std::move(a));
  }
  counts_.submitted += asked.n;
  Active& first = *choices[0];
  first.request.save_as = std::move(asked.save_as);
  first.request.from = std::move(asked.from);
  first.followers.assign(std::make_move_iterator(choices.begin() + 1),
                         std::make_move_iterator(choices.end()));
  scheduler_.add(first.ticket());
  active_[first.id] = std::move(choices[0]);
}

void Engine::admit() {
  for (;;) {
    const PoolUse use = runner_.pool().use();
    const int64_t free_bytes = use.budget_bytes - use.used_bytes + use.pages.kept * use.pages.each_bytes +
                               use.sets.kept * use.sets.each_bytes;
    const auto id = scheduler_.admit(free_bytes);
    if (!id) return;
    Active& a = *active_[*id];
    if (!try_start(a)) return;
  }
}

// False: there is no room for one more.
bool Engine::try_start(Active& a) {
  const Status started = a.wants == Active::Opening ? load_named(a) : start(a);
  if (started) return true;
  if (started.error().code == Code::NoRoom && scheduler_.running() > 1) {
    a.forget_disk();
    scheduler_.preempt(a.id);
    return false;
  }
  finish(a.id, Finish::Failed, started.error());
  return true;
}

// Gives it a state, at the longest prefix that is known; or has it wait for the disk.  NoRoom: there is none
// now.
Status Engine::start(Active& a) {
  a.wants = Active::Nothing;
  PrefixTree::Match match;
  const bool scoring = scores(a, a.scored);  // the rows from there on are wanted
  if (!scoring && reuses(a)) match = tree_.match(a.tokens);
  if (!a.request.from.empty() && !a.began) {
    if (saved_folder_.empty()) {
      const auto pin = tree_.pinned(a.request.from);
      if (!pin) return no_state(a.request.from);
      TRY(check_begins(a.tokens, pin->tokens, a.request.from));
      a.loaded = pin->snapshot;
    } else if (!std::exchange(a.asked_named, true)) {
      request_named(a);
      return Ok{};
    }
  }
  const Snapshot saved = TRY(std::exchange(a.loaded, Snapshot{}));
  if (saved.position > match.snapshot.position) match.snapshot = saved;
  if (store_ && reuses(a) && !scoring && !std::exchange(a.asked_disk, true) &&
      request_from_disk(a, match.snapshot)) {
    a.loaded = saved;
    return Ok{};
  }
  auto make = [&] {
    do
      a.state = match.snapshot ? SequenceState::make(runner_.pool(), match.snapshot) : runner_.new_sequence();
    while (!a.state && make_room(runner_.pool().set_bytes()));
    return a.state != nullptr;
  };
  if (!make()) {
    const Error no_room{Code::NoRoom, "state", "expected room for a sequence, found none"};
    if (scheduler_.running() > 1) return no_room;
    match.snapshot = saved;  // its own prefix may hold the room
    if (!make()) return no_room;
  }
  if (!a.began) {
    a.began = true;
    a.began_at = steady_seconds();
    a.usage.queue_s = a.began_at - a.submitted_at;
    a.usage.cached_tokens = a.position();
    a.known = std::min(match.known, a.prompt_tokens);
    counts_.prompt_tokens += a.prompt_tokens;
    counts_.cached_tokens += a.usage.cached_tokens;
    if (reuses(a)) tree_.learn(a.tokens);
  }
  const int64_t most = a.prompt_tokens + a.limit;
  a.tokens.reserve(size_t(most));
  a.state->expect(most);
  a.last_snapshot = a.last_stored = a.taken = a.position();
  scheduler_.update(a.id, int64_t(a.tokens.size()), a.position(), next_cut(a), a.answer_tokens() > 0);
  return Ok{};
}

// Requests that have read nothing since they got their state: what became known in the meantime they need not
// read, and what one before them is about to read they may wait for.
void Engine::share() {
  if (!options_.reuse || scheduler_.running() < 2) return;
  const bool cuttable = runner_.pool().set_bytes() == 0;
  order_ = scheduler_.order(std::move(order_));
  for (size_t i = 1; i < order_.size(); ++i) {
    Active& a = *active_[order_[i]];
    const auto tokens = int64_t(a.tokens.size());
    if (!a.state || a.position() != a.taken || tokens - a.position() <= kLeastGap) continue;
    if (!reuses(a) || scores(a, a.scored)) continue;
    take_known(a);
    scheduler_.await(a.id, 0, 0);
    for (size_t j = 0; j < i; ++j) {
      Active& reader = *active_[order_[j]];
      if (!reader.state || !reuses(reader)) continue;
      const int64_t until = std::min(common(reader.tokens, a.tokens), tokens - 1);
      if (until < std::max(a.position(), cuttable ? 0 : reader.last_snapshot) + kLeastGap) continue;
      if (reader.position() < until) {
        scheduler_.await(a.id, reader.id, until);
        if (reader.awaited <= reader.position() || until < reader.awaited) reader.awaited = until;
        scheduler_.update(reader.id, int64_t(reader.tokens.size()), reader.position(), next_cut(reader),
                          reader.answer_tokens() > 0);
        break;
      }
      if (!cuttable) continue;
      keep(reader, false);
      take_known(a);
    }
  }
}

void Engine::take_known(Active& a) {
  const PrefixTree::Match match = tree_.match(a.tokens);
  if (match.snapshot.position <= a.position()) return;
  a.state->restore(match.snapshot);
  a.last_snapshot = a.last_stored = a.taken = a.position();
  if (a.usage.prompt_rows == 0 && a.usage.preemptions == 0) {
    counts_.cached_tokens += a.position() - a.usage.cached_tokens;
    a.usage.cached_tokens = a.position();
  }
  scheduler_.update(a.id, int64_t(a.tokens.size()), a.position(), next_cut(a), a.answer_tokens() > 0);
}

// False: the disk has nothing better than `base`, or there is no room for it.
bool Engine::request_from_disk(Active& a, const Snapshot& base) {
  const DiskStore::Found found = store_->find(a.tokens);
  if (found.position < base.position + kLeastGap) return false;
  auto waits = [file = found.name](const Active& each) {
    return each.wants == Active::Loading && each.file == file;
  };
  const bool comes =
      std::any_of(active_.begin(), active_.end(), [&](auto& each) { return waits(*each.second); });
  const std::vector<Token> text(a.tokens.begin(), a.tokens.begin() + found.position);
  auto loaded = [this, text, waits](Result<Snapshot> snapshot) {
    if (snapshot) tree_.insert(text, snapshot.take());
    counts_.from_disk += bool(snapshot);
    for (auto& [id, each] : active_)
      if (waits(*each)) {
        arrived_.push_back(id);
        each->file.clear();  // who asks from now on must not wait for what has come
      }
  };
  const StatePool& pool = runner_.pool();
  const int64_t shared = std::min(base.position, found.position) / kPagePositions;
  const int64_t bytes =
      ((found.position + kPagePositions - 1) / kPagePositions - shared) * pool.page_bytes() +
      pool.set_bytes();
  while (!comes && !store_->load(found, a.tokens, base, loaded))
    if (!make_room(bytes)) return false;
  a.wants = Active::Loading;
  a.file = found.name;
  scheduler_.hold(a.id);
  return true;
}

// The state that the request names: first what it is of.
void Engine::request_named(Active& a) {
  a.wants = Active::Opening;
  a.named = std::make_shared<Result<SavedState>>(no_state(a.request.from));
  scheduler_.hold(a.id);
  store_->run(
      [folder = saved_folder_, name = a.request.from, named = a.named]() -> Status {
        *named = SavedState::open(folder, name);
        return Ok{};
      },
      [this, id = a.id, named = a.named](Status) {
        auto at = active_.find(id);
        if (at != active_.end() && at->second->wants == Active::Opening && at->second->named == named)
          arrived_.push_back(id);
      });
}

// Then its bytes, unless as much is known without them.
Status Engine::load_named(Active& a) {
  const auto state = std::make_shared<SavedState>(TRY(std::move(*a.named)));
  TRY(state->check(key_, runner_.pool()));
  TRY(check_begins(a.tokens, state->tokens(), a.request.from));
  const auto snapshot = std::make_shared<Snapshot>();
  snapshot->position = int64_t(state->tokens().size());
  if (Snapshot known = tree_.match(a.tokens).snapshot;
      options_.reuse && known.position >= snapshot->position) {
    a.loaded = std::move(known);
    return start(a);
  }
  while (!snapshot->take_rest(runner_.pool()))
    if (!make_room(state->state_bytes()))
      return Error{Code::NoRoom, a.request.from,
                   "expected room for the saved state, " + std::to_string(state->state_bytes()) +
                       " bytes, found " + std::to_string(runner_.pool().room_bytes())};
  a.wants = Active::Loading;
  a.file.clear();
  store_->run([state, snapshot] { return state->read(*snapshot); },
              [this, id = a.id, state, snapshot](Status read) {
                if (read && options_.reuse) tree_.insert(state->tokens(), *snapshot);
                counts_.from_disk += bool(read);
                auto at = active_.find(id);
                if (at == active_.end() || at->second->wants != Active::Loading) return;
                at->second->loaded = read ? Result<Snapshot>(std::move(*snapshot)) : read.error();
                arrived_.push_back(id);
              });
  return Ok{};
}

void Engine::settle_arrived() {
  for (uint64_t id : std::exchange(arrived_, {})) {
    auto at = active_.find(id);
    if (at == active_.end()) continue;
    Active& a = *at->second;
    if (a.wants == Active::Saving) settle_saved(a);
    else if (a.wants != Active::Nothing) try_start(a);
  }
}

void Engine::settle_saved(Active& a) {
  a.wants = Active::Nothing;
  if (!a.saved) a.fail(a.saved.error());
  go_on(a);
}

// Nobody has rows.  If somebody waits for the disk, until there is news.
void Engine::wait_for_disk() {
  if (std::all_of(active_.begin(), active_.end(),
                  [](auto& each) { return each.second->wants == Active::Nothing; }))
    return;
  constexpr std::chrono::milliseconds kMost(50);  // then deadlines are looked at
  std::unique_lock lock(mutex_);
  inbox_filled_.wait_for(lock, kMost, [&] {
    return disk_done_ || !submitted_.empty() || !cancelled_.empty() || !posted_.empty();
  });
  disk_done_ = false;
}

// Where the piece that begins at its position has to end.  States without a fixed part can be cut anywhere
// later.
int64_t Engine::next_cut(const Active& a) const {
  if (runner_.pool().set_bytes() == 0) return INT64_MAX;
  int64_t cut = a.last_snapshot + kSpacing;
  const int64_t least = std::max(a.last_snapshot + kLeastGap, a.position() + 1);
  for (int64_t place : {a.known, a.awaited})
    if (place >= least) cut = std::min(cut, place);
  auto mark = std::lower_bound(a.request.marks.begin(), a.request.marks.end(), least);
  if (mark != a.request.marks.end()) cut = std::min(cut, *mark);
  return std::max(cut, a.position() + 1);
}

// Room for the rows, at the cost of what is kept for reuse, then of those that come last in the order.
// Without success the request waits, or failed.
bool Engine::reserve(Active& a, int64_t rows) {
  while (!a.state->reserve(rows)) {
    if (make_room(a.state->wanted_pages(rows) * runner_.pool().page_bytes())) continue;
    const uint64_t victim = *scheduler_.victim();
    if (victim != a.id) {
      preempt(victim);
      continue;
    }
    if (scheduler_.running() > 1) preempt(a.id);
    else
      finish(a.id, Finish::Failed,
             Error{Code::NoRoom, "state", "expected room for one more page, found none"});
    return false;
  }
  return true;
}

// More room, for a need of so many bytes, at the cost of what is kept for reuse.  False: nothing more can be
// had, or all of it would not be enough.
bool Engine::make_room(int64_t bytes) {
  const PoolUse use = runner_.pool().use();
  const int64_t room = use.budget_bytes - use.used_bytes;
  if (room + use.pages.kept * use.pages.each_bytes + use.sets.kept * use.sets.each_bytes < bytes)
    return false;
  auto evict = [&] {
    const int64_t freed = tree_.evict(std::max<int64_t>(1, bytes - room));
    counts_.evicted_bytes += freed;
    return freed > 0;
  };
  if (evict()) return true;
  for (auto& [id, a] : active_)  // what choices of one request were to begin with, they can read
    if (!a->state && a->wants == Active::Nothing) a->loaded = Snapshot{};
  const int64_t before = runner_.pool().room_bytes();
  if (!store_ || !store_->busy()) return false;
  store_->drop_queued();
  if (runner_.pool().room_bytes() == before) store_->drain();
  return runner_.pool().room_bytes() > before || evict();  // what was being loaded is kept now
}

void Engine::preempt(uint64_t id) {
  if (active_[id]->wants == Active::Saving) {  // its next token is chosen: it takes that first
    store_->drain();
    settle_saved(*active_[id]);
    if (!active_.count(id)) return;
  }
  Active& a = *active_[id];
  a.forget_disk();
  ++a.usage.preemptions;
  ++counts_.preemptions;
  keep_frozen(a, false);
  scheduler_.preempt(id);
}

bool Engine::reuses(const Active& a) const { return options_.reuse && a.request.reuse; }

// Whether the row at this position is wanted for the log-probability of the prompt's next token.
bool Engine::scores(const Active& a, int64_t position) const {
  return a.request.prompt_logprobs >= 0 && position >= a.scored && position + 1 < a.prompt_tokens;
}

// This and the next are called during the pass, while the logits are there.
void Engine::score_prompt(Active& a, int64_t position, std::span<const float> logits) {
  if (Status finite = check_finite(logits, position + 1); !finite) return a.fail(finite.error());
  a.of_prompt.push_back(log_probabilities(logits, a.tokens[size_t(position) + 1], a.request.prompt_logprobs));
}

void Engine::choose_token(Active& a, std::span<const float> logits) {
  for (auto& f : a.followers) choose_token(*f, logits);
  if (a.request.digest) a.digest.update(std::as_bytes(logits));
  if (a.limit == 0) {
    a.outcome = Finish::Length;
    return;
  }
  std::span<const uint64_t> allowed = a.request.allowed;
  if (a.request.constraint && a.request.constraint->masks()) {
    mask_.assign(a.request.allowed.begin(), a.request.allowed.end());
    mask_.resize(logits.size() / 64 + 1, mask_.empty() ? ~uint64_t(0) : 0);
    a.request.constraint->mask(mask_);
    allowed = mask_;
  }
  const auto token = choose(logits, allowed, a.request.sampling, a.tokens, a.prompt_tokens, sampling_);
  if (!token) {
    a.outcome = Finish::Failed;
    a.failure = token.error();
    return;
  }
  a.chosen = a.stops(*token) && a.request.constraint ? a.request.constraint->in_place_of(*token) : *token;
  a.logprobs.clear();
  if (a.request.logprobs >= 0) a.logprobs.push_back(log_probabilities(logits, *a.chosen, a.request.logprobs));
}

// A token of the answer, or the stop behind it.
void Engine::take_token(Active& a, Token token) {
  if (a.stops(token)) {
    a.outcome = Finish::Stop;
    a.stopped_by = token;
    return;
  }
  a.tokens.push_back(token);
  a.usage.answer_tokens = a.answer_tokens();
  ++counts_.answer_tokens;
  const bool more = !a.request.constraint || a.request.constraint->accept(token);
  if (!tell(a, std::span(&token, 1), Finish::Running)) a.outcome = Finish::StopString;
  else if (!more) a.outcome = Finish::Stop;
  else if (a.answer_tokens() >= a.limit) a.outcome = Finish::Length;
}

// `before`: its position before the pass.
void Engine::after_pass(Active& a, int64_t before) {
  const int64_t now = a.position(), of_prompt = std::max<int64_t>(0, std::min(now, a.prompt_tokens) - before);
  a.usage.prompt_rows += of_prompt;
  a.usage.answer_rows += now - before - of_prompt;
  counts_.prompt_rows += of_prompt;
  counts_.answer_rows += now - before - of_prompt;
  const bool read = now == a.prompt_tokens && a.read_at == 0;  // not again, after it was pushed out
  if (read) a.usage.prompt_s = (a.read_at = steady_seconds()) - a.began_at;
  if (of_prompt > 0) tell(a, {}, Finish::Running);
  a.scored += int64_t(a.of_prompt.size());
  a.of_prompt.clear();
  if (read && !a.request.save_as.empty())
    if (Status saved = save(a); !saved) a.fail(saved.error());
  if (a.wants == Active::Nothing) go_on(a);
}

// With the token that was chosen, if it was.
void Engine::go_on(Active& a) {
  const int64_t now = a.position();
  const bool border = now == a.known || now == a.awaited ||
                      std::binary_search(a.request.marks.begin(), a.request.marks.end(), now);
  const bool spaced = runner_.pool().set_bytes() > 0 && now - a.last_snapshot >= kSpacing;
  const bool cut = border && now - a.last_snapshot >= kLeastGap;
  // The next prompt may leave this one at a border, or where the answer began.
  const bool stores = (cut || now == a.prompt_tokens) && now - a.last_stored >= kLeastGap;
  std::vector<std::unique_ptr<Active>> followers;
  if (a.chosen || a.outcome != Finish::Running) followers.swap(a.followers);
  if (auto token = std::exchange(a.chosen, {}); token && a.outcome == Finish::Running) take_token(a, *token);
  // The token goes out first.  A state that ends here is kept without a copy; followers need theirs now.
  const bool keeps = now == a.prompt_tokens || spaced || cut;
  if (keeps && reuses(a) && (!followers.empty() || a.outcome == Finish::Running)) keep(a, stores);
  if (!followers.empty() && !reuses(a))
    if (const auto snapshot = snapshot_of(a))
      for (auto& f : followers) f->loaded = *snapshot;
  const uint64_t id = a.id;
  if (a.outcome != Finish::Running) finish(id, a.outcome, a.failure);
  else scheduler_.update(id, int64_t(a.tokens.size()), now, next_cut(a), a.answer_tokens() > 0);

  for (auto& f : followers) {
    f->began = true;
    f->began_at = f->read_at = steady_seconds();
    f->usage.cached_tokens = f->prompt_tokens;
    if (auto token = std::exchange(f->chosen, {}); token && f->outcome == Finish::Running)
      take_token(*f, *token);
    Active& follower = *f;
    scheduler_.add(follower.ticket());
    active_[follower.id] = std::move(f);
    if (follower.outcome != Finish::Running) finish(follower.id, follower.outcome, follower.failure);
  }
}

// Of the state that goes on; none without room.
std::optional<Snapshot> Engine::snapshot_of(const Active& a) {
  auto snapshot = a.state->snapshot();
  if (!snapshot && make_room(runner_.pool().set_bytes())) snapshot = a.state->snapshot();
  return snapshot;
}

// Keeps the state that goes on.
void Engine::keep(Active& a, bool on_disk) {
  a.last_snapshot = a.position();
  if (tree_.has(a.settled())) return;
  auto snapshot = snapshot_of(a);
  if (!snapshot) return;
  ++counts_.snapshots;
  if (store_ && on_disk && store_->put(a.settled(), *snapshot)) a.last_stored = a.position();
  tree_.insert(a.settled(), std::move(*snapshot));
}

// Under its name: at once in memory; on the disk when a.wants is Nothing again.
Status Engine::save(Active& a) {
  const std::string& name = a.request.save_as;
  if (saved_folder_.empty()) {
    auto snapshot = snapshot_of(a);
    if (!snapshot) return Error{Code::NoRoom, name, "expected room for the state to save, found none"};
    tree_.pin(name, a.settled(), std::move(*snapshot));
    return Ok{};
  }
  a.wants = Active::Saving;
  scheduler_.hold(a.id);
  const std::vector<Token> text(a.settled().begin(), a.settled().end());
  store_->run(
      [this, name, text, kept = std::make_shared<Snapshot>(a.state->as_it_is())] {
        return write_saved(saved_folder_, name, key_, text, *kept, runner_.pool());
      },
      [this, id = a.id](Status written) {
        auto at = active_.find(id);
        if (at == active_.end() || at->second->wants != Active::Saving) return;
        at->second->saved = std::move(written);
        arrived_.push_back(id);
      });
  return Ok{};
}

Result<std::vector<SavedInfo>> Engine::saved() const {
  if (!saved_folder_.empty()) return list_saved(saved_folder_);
  std::vector<SavedInfo> list;
  for (const std::string& name : tree_.pins()) {
    const Snapshot snapshot = tree_.pinned(name)->snapshot;
    list.push_back({name, key_.model, snapshot.position, snapshot.bytes(runner_.pool())});
  }
  return list;
}

Result<std::vector<Token>> Engine::saved_tokens(const std::string& name) const {
  TRY(check_state_name(name));
  if (!saved_folder_.empty()) return TRY(SavedState::open(saved_folder_, name)).tokens();
  auto pin = tree_.pinned(name);
  if (!pin) return no_state(name);
  return std::move(pin->tokens);
}

Result<bool> Engine::release(const std::string& name) {
  if (!saved_folder_.empty()) return forget_saved(saved_folder_, name);
  return tree_.unpin(name);
}

// Keeps the state that ends here, if anything of it may be kept.
void Engine::keep_frozen(Active& a, bool on_disk) {
  const std::vector<Token> text(a.settled().begin(), a.settled().end());
  if (text.empty() || !reuses(a)) return a.state.reset();
  Snapshot snapshot = SequenceState::freeze(std::move(a.state));
  if (store_ && on_disk) store_->put(text, snapshot);
  tree_.insert(text, std::move(snapshot));
}

bool Engine::tell(Active& a, std::span<const Token> tokens, Finish finish, std::optional<Error> error) {
  if (!a.request.on_event) return true;
  Event event{a.request_id, int(a.id - a.request_id), tokens, finish, std::move(error), a.usage};
  event.stopped_by = a.stopped_by;
  if (!tokens.empty() || a.stopped_by >= 0) event.logprobs = a.logprobs;
  event.prompt_logprobs = a.of_prompt;
  if (finish != Finish::Running && a.request.digest) event.logits = a.digest.finish();
  return a.request.on_event(event);
}

void Engine::finish(uint64_t id, Finish how, std::optional<Error> error) {
  auto node = active_.extract(id);
  CHECK(!node.empty() && scheduler_.remove(id));
  Active& a = *node.mapped();
  if (how == Finish::Failed) a.state.reset();
  keep_frozen(a, how == Finish::Stop || how == Finish::Length || how == Finish::StopString);
  auto end = [&](Active& one) {
    if (one.read_at > 0) one.usage.answer_s = steady_seconds() - one.read_at;
    ++(how == Finish::Failed      ? counts_.failed
       : how == Finish::Cancelled ? counts_.cancelled
                                  : counts_.finished);
    tell(one, {}, how, error);
  };
  end(a);
  for (auto& f : a.followers) end(*f);
}

void Engine::end_step() {
  if (store_) store_->collect();
  ++counts_.steps;
  counts_.running = int64_t(scheduler_.running());
  counts_.queued = int64_t(scheduler_.queued());
  counts_.request_bytes = 0;
  for (const auto& [id, active] : active_) counts_.request_bytes += active->bytes();
  counts_.memory = runner_.memory();
  counts_.state = runner_.pool().use();
  counts_.tree = tree_.use();
  if (store_) counts_.disk = store_->use();
  std::lock_guard lock(mutex_);
  shown_ = counts_;
}

}  // namespace invar
