#include "state/disk_store.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/file.h"
#include "state/store_format.h"

namespace invar {
namespace {

constexpr size_t kNameDigits = 32;
constexpr char kHead[] = ".state", kBlob[] = ".blob", kPart[] = ".part";
constexpr int64_t kMostDigests = 1 << 18;  // of pages whose digest is remembered
constexpr int kMostOfAPath = 4;            // snapshots that are remembered for one shared beginning

// About, with their places in the tables.
constexpr int64_t kEntryBytes = 240, kPathBytes = 120, kDigestBytes = 72;

std::string name_of(const Digest& digest) { return hex(digest).substr(0, kNameDigits); }

// The name and the extension of a file of ours; nothing else in the folder is touched.
std::optional<std::pair<std::string, std::string>> own_name(std::string_view file) {
  const auto digits = file.substr(0, kNameDigits);
  if (file.size() <= kNameDigits || digits.find_first_not_of("0123456789abcdef") != digits.npos) return {};
  const std::string_view extension = file.substr(kNameDigits);
  const bool ours = extension == kHead || extension == kBlob ||
                    (extension.ends_with(kPart) && (extension.starts_with(std::string(kHead) + '.') ||
                                                    extension.starts_with(std::string(kBlob) + '.')));
  if (!ours) return {};
  return std::pair(std::string(digits), std::string(extension));
}

struct OwnFile {
  std::string name, extension;
  int64_t bytes = 0;
  int64_t used = 0;  // nanoseconds; as far as clocks can be trusted
};

Result<std::vector<OwnFile>> files_of(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open) return Error{Code::Io, folder, std::string("cannot read the folder: ") + std::strerror(errno)};
  std::vector<OwnFile> files;
  while (const dirent* entry = readdir(open.get())) {
    const auto own = own_name(entry->d_name);
    struct stat status {};
    if (!own || fstatat(dirfd(open.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    const timespec& t = status.st_mtim;
    files.push_back({own->first, own->second, status.st_size,
                     std::clamp<int64_t>(t.tv_sec, 0, int64_t(1) << 33) * 1'000'000'000 + t.tv_nsec});
  }
  return files;
}

}  // namespace

struct DiskStore::Impl {
  struct Entry {
    int64_t position = 0;
    std::vector<uint64_t>
        paths;  // that lead to it: of all its tokens, and of its full pages if it can be cut
  };
  struct Job {
    std::string name;
    std::vector<Token> tokens;
    Snapshot snapshot;
    std::vector<uint64_t> versions;  // of its pages
    int64_t bytes = 0;
  };

  struct Errand {
    std::function<Status()> work;
    std::function<void(Status)> done;
    Status outcome = Ok{};
  };
  struct Load {
    Found found;
    std::vector<Token> tokens;
    Snapshot snapshot;  // of pages that wait for their bytes
    size_t shared = 0;  // but the first so many, which have them
  };

  Impl(StatePool& p, DiskStoreOptions o) : pool(p), options(std::move(o)) {
    if (pool.page_bytes() > 0) most_digests = std::min(kMostDigests, pool.budget_bytes() / pool.page_bytes());
  }

  StatePool& pool;
  const DiskStoreOptions options;

  mutable std::mutex mutex;  // of all below
  std::condition_variable changed;
  std::unordered_map<std::string, Entry> entries;
  std::unordered_multimap<uint64_t, std::string> by_path;
  std::deque<Job> queue;
  std::optional<Job> current;  // the writer reads it, without the mutex
  std::vector<Job> done;
  std::deque<Errand> errands;
  bool errand_runs = false;
  std::vector<Errand> errands_done;
  std::unordered_set<std::string> waiting;  // names in queue and current
  Use use;
  int64_t stamp = 0;
  bool stop = false, write_failed = false;

  std::unordered_map<uint64_t, Digest> digests;  // by version of the page; the writer's
  int64_t most_digests = 0;
  std::atomic<int64_t> digests_known = 0;  // as many as there are
  std::thread writer;

  std::string path(const std::string& name, const char* extension) const {
    return options.folder + "/" + name + extension;
  }
  void say(const std::string& line) const {
    if (options.log) options.log("cache: " + line);
  }
  void say(const Error& error) const { say(error.where + ": " + error.message); }

  void open_folder();
  Result<std::vector<OwnFile>> scan(bool first);
  struct Head {
    File file;
    StateHead head;
  };
  Result<Head> open_head(const std::string& name) const;
  Result<std::vector<uint64_t>> read_paths(const Head& head) const;
  bool fits(const StateHead& head) const;
  void add(const std::string& name, const StateHead& head, std::vector<uint64_t> paths);
  void forget(const std::string& name);
  int64_t next_stamp();
  bool touch(const std::string& path, int64_t stamp) const;

  void serve();
  void write_all();
  Status write(const Job& job);
  Status write_blob(std::span<const std::byte> bytes, const Digest& digest);
  Status write_file(const std::string& path, std::span<const std::byte> bytes);
  void make_room();

  Status read_blob(const Digest& digest, std::span<std::byte> out, int64_t stamp);
  Status read(const Load& load, std::string& bad);
  Status read_or_forget(const Load& load);
};

void DiskStore::Impl::open_folder() {
  std::error_code error;
  const std::filesystem::path folder(options.folder);
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  mkdir(options.folder.c_str(), 0700);  // conversations lie in it; whether it is there, the scan tells
  if (auto files = scan(true); !files) {
    say(files.error());
    write_failed = true;  // it has been said
  }
}

// Looks at all files: sizes, what others wrote or removed, and at the start what a killed process left.
Result<std::vector<OwnFile>> DiskStore::Impl::scan(bool first) {
  std::vector<OwnFile> files = TRY(files_of(options.folder));
  int64_t bytes = 0, latest = 0, damaged = 0, foreign = 0, others = 0;
  std::unordered_set<std::string> heads;
  for (const OwnFile& file : files) {
    if (first && remove_abandoned(options.folder + "/" + file.name + file.extension)) continue;
    bytes += file.bytes;
    latest = std::max(latest, file.used);
    if (file.extension != kHead) continue;
    heads.insert(file.name);
    {
      const std::lock_guard lock(mutex);
      if (entries.count(file.name)) continue;
    }
    const Result<Head> head = open_head(file.name);
    if (head) {
      if (!fits(head->head)) {
        others += 1;
        continue;
      }
      if (Result<std::vector<uint64_t>> paths = read_paths(*head)) add(file.name, head->head, paths.take());
    } else if (head.error().code == Code::BadFile) {
      damaged += 1;
      unlink(path(file.name, kHead).c_str());
    } else if (head.error().code == Code::Unsupported) {
      foreign += 1;
    }
  }
  {
    const std::lock_guard lock(mutex);
    use.bytes = bytes;
    stamp = std::max(stamp, latest);
    std::vector<std::string> gone;
    for (const auto& [name, entry] : entries)
      if (!heads.count(name)) gone.push_back(name);
    for (const std::string& name : gone) forget(name);
  }
  if (damaged > 0 || (first && foreign + others > 0))
    say(options.folder + ": " + std::to_string(damaged) + " damaged files removed, left alone are " +
        std::to_string(foreign) + " of another version of the file and " + std::to_string(others) +
        " of another model, format, drafter or version of the numbers");
  return files;
}

// Any thread.
Result<DiskStore::Impl::Head> DiskStore::Impl::open_head(const std::string& name) const {
  const std::string where = path(name, kHead);
  File file = TRY(File::open(where));
  std::vector<std::byte> bytes(std::min<uint64_t>(file.size(), kHeadBytes));
  TRY(file.read_at(0, bytes));
  const StateHead head = TRY(parse_head(bytes, where));
  const int64_t expected = int64_t(kHeadBytes) + head.body_bytes();
  if (int64_t(file.size()) != expected)
    return Error{Code::BadFile, where,
                 "expected " + std::to_string(expected) + " bytes, found " + std::to_string(file.size())};
  return Head{std::move(file), head};
}

// The paths of its full pages, unchecked: what they lead to is checked when it is loaded.
Result<std::vector<uint64_t>> DiskStore::Impl::read_paths(const Head& head) const {
  std::vector<uint64_t> paths(size_t(pool.set_bytes() == 0 ? head.head.full_pages() : 0));
  TRY(head.file.read_at(head.file.size() - paths.size() * 8, std::as_writable_bytes(std::span(paths))));
  return paths;
}

bool DiskStore::Impl::fits(const StateHead& head) const {
  return head.key == options.key && head.numerics == options.numerics &&
         head.page_bytes == pool.page_bytes() && head.set_bytes == pool.set_bytes();
}

void DiskStore::Impl::add(const std::string& name, const StateHead& head, std::vector<uint64_t> paths) {
  const std::lock_guard lock(mutex);
  forget(name);  // two processes may write the same state
  if (pool.set_bytes() > 0) paths.clear();
  if (paths.empty() || paths.back() != head.path) paths.push_back(head.path);
  std::vector<uint64_t> kept;
  for (uint64_t p : paths)
    if (p == head.path || by_path.count(p) < kMostOfAPath) {
      by_path.emplace(p, name);
      kept.push_back(p);
    }
  entries[name] = {head.position, std::move(kept)};
  use.snapshots = int64_t(entries.size());
}

// With the mutex.
void DiskStore::Impl::forget(const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end()) return;
  for (uint64_t p : found->second.paths) {
    const auto [first, last] = by_path.equal_range(p);
    const auto own = std::find_if(first, last, [&](const auto& each) { return each.second == name; });
    if (own != last) by_path.erase(own);
  }
  entries.erase(found);
  use.snapshots = int64_t(entries.size());
}

// Files are used in the order of their stamps, also when the clock goes back.  With room for a few behind it.
int64_t DiskStore::Impl::next_stamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::lock_guard lock(mutex);
  stamp = std::max(stamp + 1000, int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return stamp;
}

// False: there is no such file.
bool DiskStore::Impl::touch(const std::string& file, int64_t when) const {
  const timespec time{when / 1'000'000'000, when % 1'000'000'000};
  const timespec times[2] = {time, time};
  return utimensat(AT_FDCWD, file.c_str(), times, 0) == 0 || errno != ENOENT;
}

// The errands that wait.  Nothing of them is destroyed here: snapshots go on the pool's thread.
void DiskStore::Impl::serve() {
  std::unique_lock lock(mutex);
  while (!stop && !errands.empty()) {
    Errand errand = std::move(errands.front());
    errands.pop_front();
    errand_runs = true;
    lock.unlock();
    errand.outcome = errand.work();
    lock.lock();
    errands_done.push_back(std::move(errand));
    errand_runs = false;
    changed.notify_all();
    if (!options.on_done) continue;
    lock.unlock();
    options.on_done();
    lock.lock();
  }
}

void DiskStore::Impl::write_all() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stop || !queue.empty() || !errands.empty(); });
    if (stop) return;
    if (!errands.empty()) {
      lock.unlock();
      serve();
      lock.lock();
      continue;
    }
    current = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    const Status status = write(*current);
    make_room();
    lock.lock();
    use.written += bool(status);
    use.failed += !status;
    const bool news = !status && !write_failed;
    write_failed = !status;
    waiting.erase(current->name);
    done.push_back(*std::move(current));
    current.reset();
    changed.notify_all();
    if (!news) continue;
    lock.unlock();
    say(status.error());
    lock.lock();
  }
}

// Pages and set first: a head that is there has all its parts, unless they were removed since.
Status DiskStore::Impl::write(const Job& job) {
  const int64_t head_stamp = next_stamp();  // before its parts: it goes before them
  std::vector<Digest> pages;
  for (size_t i = 0; i < job.snapshot.pages.size(); ++i) {
    serve();  // who loads does not wait for all of this
    const std::span bytes(job.snapshot.pages[i].data(), size_t(pool.page_bytes()));
    // A page that is not full may be written on under the same name once nobody shares it.
    const bool full = int64_t(i + 1) * kPagePositions <= job.snapshot.position;
    const auto known = full ? digests.find(job.versions[i]) : digests.end();
    const Digest digest = known != digests.end() ? known->second : sha256(bytes);
    TRY(write_blob(bytes, digest));
    if (int64_t(digests.size()) >= most_digests) digests.clear();
    if (full) digests[job.versions[i]] = digest;
    digests_known = int64_t(digests.size());
    pages.push_back(digest);
  }
  StateHead head;
  head.numerics = options.numerics;
  head.key = options.key;
  head.position = job.snapshot.position;
  head.page_bytes = pool.page_bytes();
  head.set_bytes = pool.set_bytes();
  if (job.snapshot.fixed) {
    const std::span bytes(job.snapshot.fixed.data(), size_t(pool.set_bytes()));
    head.set = sha256(bytes);
    TRY(write_blob(bytes, head.set));
  }
  const std::string where = path(job.name, kHead);
  const std::vector<std::byte> file = head_file(head, job.tokens, pages);
  TRY(write_file(where, file));
  touch(where, head_stamp);
  head = TRY(parse_head(file, where));
  add(job.name, head, TRY(parse_body(head, std::span(file).subspan(kHeadBytes), where)).paths);
  return Ok{};
}

Status DiskStore::Impl::write_blob(std::span<const std::byte> bytes, const Digest& digest) {
  const std::string where = path(name_of(digest), kBlob);
  const int64_t when = next_stamp();
  if (touch(where, when)) return Ok{};
  TRY(write_file(where, pack_blob(bytes)));
  touch(where, when);
  return Ok{};
}

Status DiskStore::Impl::write_file(const std::string& where, std::span<const std::byte> bytes) {
  NewFile file = TRY(NewFile::create(where));
  TRY(file.write(bytes));
  TRY(file.finish());
  const std::lock_guard lock(mutex);
  use.bytes += int64_t(bytes.size());
  return Ok{};
}

// What was not used for longest goes.
void DiskStore::Impl::make_room() {
  {
    const std::lock_guard lock(mutex);
    if (use.bytes <= options.budget_bytes) return;
  }
  Result<std::vector<OwnFile>> files = scan(false);
  if (!files) return;
  auto order = [](const OwnFile& file) { return std::pair(file.used, file.extension != kHead); };
  std::sort(files->begin(), files->end(),
            [&](const OwnFile& a, const OwnFile& b) { return order(a) < order(b); });
  for (const OwnFile& file : *files) {
    if (file.extension.ends_with(kPart)) continue;
    {
      const std::lock_guard lock(mutex);
      if (use.bytes <= options.budget_bytes - options.budget_bytes / 16) break;
      if (file.extension == kHead) forget(file.name);  // before it goes, so that nobody finds it
    }
    // The engine waits for the mutex: the file system is asked without it.
    if (unlink((options.folder + "/" + file.name + file.extension).c_str()) != 0 && errno != ENOENT) continue;
    const std::lock_guard lock(mutex);
    use.bytes -= file.bytes;
  }
}

Status DiskStore::Impl::read_blob(const Digest& digest, std::span<std::byte> out, int64_t when) {
  const std::string where = path(name_of(digest), kBlob);
  const File file = TRY(File::open(where));
  if (int64_t(file.size()) > most_blob_file_bytes(int64_t(out.size())))
    return Error{Code::BadFile, where,
                 "expected at most " + std::to_string(most_blob_file_bytes(int64_t(out.size()))) +
                     " bytes, found " + std::to_string(file.size())};
  std::vector<std::byte> bytes(file.size());
  TRY(file.read_at(0, bytes));
  TRY(unpack_blob(bytes, digest, out, where));
  touch(where, when);
  return Ok{};
}

// `bad`: a file to be removed, since it holds what it should not.
Status DiskStore::Impl::read(const Load& load, std::string& bad) {
  const Found& found = load.found;
  const std::string where = path(found.name, kHead);
  const auto [file, head] = TRY(open_head(found.name));
  if (!fits(head)) return Error{Code::BadFile, where, "expected a state of this model"};
  std::vector<std::byte> bytes(size_t(head.body_bytes()));
  TRY(file.read_at(kHeadBytes, bytes));
  const StateBody body = TRY(parse_body(head, bytes, where));
  const bool whole = found.position == head.position;
  if (found.position > head.position || (!whole && head.set_bytes > 0) ||
      !std::equal(load.tokens.begin(), load.tokens.end(), body.tokens.begin()))
    return Error{Code::BadFile, where, "expected the state of another text"};
  const int64_t when = next_stamp();
  touch(where, when);
  for (size_t i = load.shared; i < load.snapshot.pages.size(); ++i) {
    bad = path(name_of(body.pages[i]), kBlob);
    TRY(read_blob(body.pages[i], {load.snapshot.pages[i].data(), size_t(head.page_bytes)}, when + 1));
  }
  if (head.set_bytes == 0) return Ok{};
  bad = path(name_of(head.set), kBlob);
  return read_blob(head.set, {load.snapshot.fixed.data(), size_t(head.set_bytes)}, when + 1);
}

Status DiskStore::Impl::read_or_forget(const Load& load) {
  std::string bad;
  Status status = read(load, bad);
  if (!status) {
    // A disk that fails now, or a process without descriptors, says nothing of what is stored.
    const Code code = status.error().code;
    if (code == Code::BadFile || code == Code::NotFound) unlink(path(load.found.name, kHead).c_str());
    if (!bad.empty() && code == Code::BadFile) unlink(bad.c_str());
    say(status.error());
  }
  const std::lock_guard lock(mutex);
  if (status) use.loaded += 1;
  else forget(load.found.name);
  return status;
}

std::unique_ptr<DiskStore> DiskStore::open(StatePool& pool, DiskStoreOptions options) {
  auto impl = std::make_unique<Impl>(pool, std::move(options));
  impl->open_folder();
  try {
    impl->writer = std::thread([i = impl.get()] { i->write_all(); });
  } catch (const std::system_error& error) {
    impl->say(std::string("cannot start the writer: ") + error.what());
  }
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(impl)));
}

DiskStore::DiskStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DiskStore::~DiskStore() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    impl_->changed.notify_all();
  }
  if (impl_->writer.joinable()) impl_->writer.join();
}

DiskStore::Found DiskStore::find(std::span<const Token> tokens) const {
  Found found;
  const std::lock_guard lock(impl_->mutex);
  uint64_t path = kPathStart;
  for (size_t p = 1; p < tokens.size(); ++p) {
    path = path_step(path, tokens[p - 1]);
    const auto [first, last] = impl_->by_path.equal_range(path);
    for (auto each = first; each != last; ++each) {
      const int64_t position = impl_->entries.at(each->second).position;
      if (position == int64_t(p) || (impl_->pool.set_bytes() == 0 && position > int64_t(p)))
        found = {each->second, int64_t(p)};
    }
  }
  return found;
}

bool DiskStore::load(const Found& found, std::span<const Token> tokens, const Snapshot& base, OnLoaded done) {
  CHECK(found.position > 0 && found.position <= int64_t(tokens.size()));
  StatePool& pool = impl_->pool;
  auto load = std::make_shared<Impl::Load>();
  load->found = found;
  load->tokens.assign(tokens.begin(), tokens.begin() + found.position);
  Snapshot& snapshot = load->snapshot;
  snapshot.position = found.position;
  if (!base.pages.empty()) load->shared = size_t(std::min(base.position, found.position) / kPagePositions);
  for (size_t i = 0; i < load->shared; ++i) snapshot.pages.push_back(base.pages[i].kept());
  if (!snapshot.take_rest(pool)) return false;
  run([i = impl_.get(), load] { return i->read_or_forget(*load); },
      [load, done = std::move(done)](Status status) {
        done(status ? Result<Snapshot>(std::move(load->snapshot)) : status.error());
      });
  return true;
}

void DiskStore::run(std::function<Status()> work, std::function<void(Status)> done) {
  Impl& i = *impl_;
  Impl::Errand errand{std::move(work), std::move(done)};
  if (!i.writer.joinable()) errand.outcome = errand.work();
  const std::lock_guard lock(i.mutex);
  if (i.writer.joinable()) i.errands.push_back(std::move(errand));
  else i.errands_done.push_back(std::move(errand));
  i.changed.notify_all();
}

bool DiskStore::put(std::span<const Token> tokens, Snapshot snapshot) {
  CHECK(int64_t(tokens.size()) == snapshot.position && snapshot);
  Impl& i = *impl_;
  const int64_t bytes = snapshot.bytes(i.pool);
  if (!i.writer.joinable() || bytes > i.options.budget_bytes || snapshot.position > kMostPositions)
    return false;
  Sha256 digest;
  digest.update(std::as_bytes(std::span(i.options.key)));
  digest.update(std::as_bytes(std::span(&i.options.numerics, 1)));
  digest.update(std::as_bytes(tokens));
  Impl::Job job{name_of(digest.finish()), {tokens.begin(), tokens.end()}, std::move(snapshot), {}, bytes};
  for (const PageRef& page : job.snapshot.pages) job.versions.push_back(i.pool.version(page));
  const std::lock_guard lock(i.mutex);
  if (i.entries.count(job.name) || i.waiting.count(job.name)) return true;
  if (!i.waiting.empty() && i.use.queued_bytes + bytes > i.options.queue_bytes) return false;
  i.use.queued_bytes += bytes;
  i.waiting.insert(job.name);
  i.queue.push_back(std::move(job));
  i.changed.notify_all();
  return true;
}

void DiskStore::collect() {
  std::vector<Impl::Job> done;  // let go on this thread, the pool's
  std::vector<Impl::Errand> errands;
  {
    const std::lock_guard lock(impl_->mutex);
    done.swap(impl_->done);
    errands.swap(impl_->errands_done);
    for (const Impl::Job& job : done) impl_->use.queued_bytes -= job.bytes;
  }
  for (Impl::Errand& errand : errands) errand.done(std::move(errand.outcome));
}

void DiskStore::drop_queued() {
  {
    const std::lock_guard lock(impl_->mutex);
    for (Impl::Job& job : impl_->queue) {
      impl_->waiting.erase(job.name);
      impl_->done.push_back(std::move(job));
    }
    impl_->queue.clear();
  }
  collect();
}

void DiskStore::drain() {
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(
        lock, [&] { return impl_->waiting.empty() && impl_->errands.empty() && !impl_->errand_runs; });
  }
  collect();
}

bool DiskStore::busy() const {
  const Impl& i = *impl_;
  const std::lock_guard lock(i.mutex);
  return i.use.queued_bytes > 0 || i.errand_runs || !i.errands.empty() || !i.errands_done.empty();
}

DiskStore::Use DiskStore::use() const {
  const std::lock_guard lock(impl_->mutex);
  Use use = impl_->use;
  use.index_bytes = int64_t(impl_->entries.size()) * kEntryBytes +
                    int64_t(impl_->by_path.size()) * kPathBytes + impl_->digests_known * kDigestBytes;
  return use;
}

}  // namespace invar
