#include "state/saved_states.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <filesystem>
#include <memory>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace invar {
namespace {

constexpr std::string_view kEnd = ".saved";

std::string path_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + std::string(kEnd);
}

Error io_error(const std::string& path, const char* action) {
  return {Code::Io, path, std::string("cannot ") + action + ": " + std::strerror(errno)};
}

Result<std::vector<std::string>> file_names(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open && errno == ENOENT) return std::vector<std::string>();
  if (!open) return io_error(folder, "read the folder");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open.get())) names.push_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

// Makes the folder if it is missing, and removes what killed processes left in it.
Status prepare(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return io_error(folder, "make the folder");
  for (const std::string& file : TRY(file_names(folder)))
    if (file.find(std::string(kEnd) + ".") != std::string::npos) remove_abandoned(folder + "/" + file);
  return Ok{};
}

Status write_part(NewFile& file, std::span<const std::byte> bytes) {
  const std::vector<std::byte> blob = pack_blob(bytes);
  const uint64_t size = blob.size();
  TRY(file.write(std::as_bytes(std::span(&size, 1))));
  return file.write(blob);
}

}  // namespace

Status check_state_name(const std::string& name) {
  auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::strchr("._-", c) != nullptr;
  };
  constexpr size_t kMost = 100;
  if (!name.empty() && name.size() <= kMost && name[0] != '.' &&
      std::all_of(name.begin(), name.end(), [&](char c) { return c != 0 && plain((unsigned char)c); }))
    return Ok{};
  return Error{Code::BadRequest, name.substr(0, kMost),
               "expected a name of 1 to 100 letters, digits, '.', '_' and '-' that does not begin with '.', "
               "found " +
                   std::to_string(name.size()) + " bytes"};
}

Result<std::vector<SavedInfo>> list_saved(const std::string& folder) {
  std::vector<SavedInfo> list;
  for (const std::string& file : TRY(file_names(folder))) {
    if (!file.ends_with(kEnd)) continue;
    const std::string name = file.substr(0, file.size() - kEnd.size());
    if (!check_state_name(name)) continue;
    const Result<SavedState> state = SavedState::open(folder, name);
    if (state) list.push_back(state->info());
    else if (state.error().code != Code::NotFound) list.push_back({name, {}, 0, 0, 0, state.error()});
  }
  return list;
}

Status write_saved(const std::string& folder, const std::string& name, const StateKey& key,
                   std::span<const Token> tokens, const Snapshot& snapshot, const StatePool& pool) {
  TRY(check_state_name(name));
  TRY(prepare(folder));
  auto page = [&](size_t i) {
    return std::span<const std::byte>(snapshot.pages[i].data(), size_t(pool.page_bytes()));
  };
  auto set = [&] { return std::span<const std::byte>(snapshot.fixed.data(), size_t(pool.set_bytes())); };
  std::vector<Digest> pages;
  for (size_t i = 0; i < snapshot.pages.size(); ++i) pages.push_back(sha256(page(i)));
  StateHead head;
  head.numerics = key.numerics;
  head.key = key.key;
  head.position = snapshot.position;
  head.page_bytes = pool.page_bytes();
  head.set_bytes = pool.set_bytes();
  if (snapshot.fixed) head.set = sha256(set());
  NewFile file = TRY(NewFile::create(path_of(folder, name)));
  TRY(file.write(note_bytes({int64_t(std::time(nullptr)), key.model})));
  TRY(file.write(head_file(head, tokens, pages)));
  for (size_t i = 0; i < snapshot.pages.size(); ++i) TRY(write_part(file, page(i)));
  if (snapshot.fixed) TRY(write_part(file, set()));
  return file.finish();
}

Result<bool> forget_saved(const std::string& folder, const std::string& name) {
  TRY(check_state_name(name));
  if (unlink(path_of(folder, name).c_str()) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return io_error(path_of(folder, name), "remove the file");
}

Result<SavedState> SavedState::open(const std::string& folder, const std::string& name) {
  TRY(check_state_name(name));
  Result<File> file = File::open(path_of(folder, name));
  if (!file && file.error().code == Code::NotFound)
    return Error{Code::NotFound, name, "expected a saved state of this name in " + folder + ", found none"};
  if (!file) return file.error();
  SavedState state(file.take(), name);
  TRY(state.read_heads());
  return state;
}

Status SavedState::read_heads() {
  const uint64_t heads = kNoteBytes + kHeadBytes;
  std::vector<std::byte> bytes(std::min(file_.size(), heads));
  TRY(file_.read_at(0, bytes));
  note_ = TRY(parse_note(bytes, file_.path()));
  head_ = TRY(parse_head(std::span(bytes).subspan(kNoteBytes), file_.path()));
  if (file_.size() < heads + uint64_t(head_.body_bytes()))
    return Error{Code::BadFile, file_.path(),
                 "expected at least " + std::to_string(heads + uint64_t(head_.body_bytes())) +
                     " bytes, found " + std::to_string(file_.size())};
  std::vector<std::byte> body(size_t(head_.body_bytes()));
  TRY(file_.read_at(heads, body));
  body_ = TRY(parse_body(head_, body, file_.path()));
  return Ok{};
}

SavedInfo SavedState::info() const {
  return {name_, note_.model, head_.position, int64_t(file_.size()), note_.saved_at};
}

Status SavedState::check(const StateKey& key, const StatePool& pool) const {
  if (head_.numerics != key.numerics)
    return Error{Code::Unsupported, name_,
                 "expected a state of numerics version " + std::to_string(key.numerics) + ", found " +
                     std::to_string(head_.numerics)};
  if (note_.model != key.model)
    return Error{Code::Unsupported, name_,
                 "expected a state of this model, " + key.model + ", found one of " + note_.model};
  if (head_.key != key.key || head_.page_bytes != pool.page_bytes() || head_.set_bytes != pool.set_bytes())
    return Error{Code::Unsupported, name_,
                 "expected a state in the formats of this run, found others (--kv may differ)"};
  return Ok{};
}

// Moves behind the part.
Status SavedState::read_part(uint64_t& at, const Digest& digest, std::span<std::byte> out) const {
  uint64_t size = 0;
  const auto damaged = [&] {
    return Error{Code::BadFile, file_.path(), "expected a page or set that ends within the file"};
  };
  if (file_.size() - at < sizeof size) return damaged();
  TRY(file_.read_at(at, std::as_writable_bytes(std::span(&size, 1))));
  at += sizeof size;
  if (size > file_.size() - at || size > uint64_t(most_blob_file_bytes(int64_t(out.size()))))
    return damaged();
  std::vector<std::byte> blob(size);
  TRY(file_.read_at(at, blob));
  at += size;
  return unpack_blob(blob, digest, out, file_.path());
}

Status SavedState::read(const Snapshot& snapshot) const {
  uint64_t at = kNoteBytes + kHeadBytes + uint64_t(head_.body_bytes());
  for (size_t i = 0; i < body_.pages.size(); ++i)
    TRY(read_part(at, body_.pages[i], {snapshot.pages[i].data(), size_t(head_.page_bytes)}));
  if (head_.set_bytes == 0) return Ok{};
  return read_part(at, head_.set, {snapshot.fixed.data(), size_t(head_.set_bytes)});
}

}  // namespace invar
