#include "state/store_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <zstd.h>

#include "base/check.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr char kStateMagic[] = "invstate", kBlobMagic[] = "invblob1", kNoteMagic[] = "invsaved";
constexpr uint32_t kFileVersion = 1;
constexpr size_t kBlobHead = 24, kSigned = 144, kModelDigits = 64, kNoteSigned = 88;
constexpr int kLevel = 1;  // the writer must keep up with prefill; higher levels gain little on numbers

template <class T>
T get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

template <class T>
void put(std::span<std::byte> bytes, size_t at, const T& value) {
  std::memcpy(bytes.subspan(at, sizeof value).data(), &value, sizeof value);
}

template <class T>
std::vector<T> list(std::span<const std::byte> bytes, size_t at, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  if (n > 0)
    std::memcpy(values.data(), bytes.subspan(at, values.size() * sizeof(T)).data(),
                values.size() * sizeof(T));
  return values;
}

bool starts_with(std::span<const std::byte> bytes, const char* magic) {
  return bytes.size() >= 8 && std::memcmp(bytes.data(), magic, 8) == 0;
}

Error damaged(const std::string& where, const std::string& message) {
  return {Code::BadFile, where, message};
}

}  // namespace

Result<StateHead> parse_head(std::span<const std::byte> bytes, const std::string& where) {
  if (!starts_with(bytes, kStateMagic))
    return Error{Code::Unsupported, where, "expected a stored state, found something else"};
  if (bytes.size() < kHeadBytes)
    return damaged(where, "expected a head of 176 bytes, found " + std::to_string(bytes.size()));
  if (const auto version = get<uint32_t>(bytes, 8); version != kFileVersion)
    return Error{Code::Unsupported, where,
                 "expected version " + std::to_string(kFileVersion) + " of the file, found " +
                     std::to_string(version)};
  if (sha256(bytes.first(kSigned)) != get<Digest>(bytes, kSigned))
    return damaged(where, "the digest of the head does not match");
  StateHead h;
  h.numerics = get<uint32_t>(bytes, 12);
  h.key = get<Digest>(bytes, 16);
  h.position = get<int64_t>(bytes, 48);
  h.page_bytes = get<int64_t>(bytes, 56);
  h.set_bytes = get<int64_t>(bytes, 64);
  h.path = get<uint64_t>(bytes, 72);
  h.set = get<Digest>(bytes, 80);
  h.body = get<Digest>(bytes, 112);
  auto within = [](int64_t n, int64_t least, int64_t most) { return n >= least && n <= most; };
  if (!within(h.position, 1, kMostPositions) || !within(h.page_bytes, 0, kMostBlobBytes) ||
      !within(h.set_bytes, 0, kMostBlobBytes))
    return damaged(where, "a size in the head is out of range");
  return h;
}

Result<StateBody> parse_body(const StateHead& head, std::span<const std::byte> bytes,
                             const std::string& where) {
  if (int64_t(bytes.size()) != head.body_bytes())
    return damaged(where, "expected a body of " + std::to_string(head.body_bytes()) + " bytes, found " +
                              std::to_string(bytes.size()));
  if (sha256(bytes) != head.body) return damaged(where, "the digest of the body does not match");
  const size_t pages = size_t(head.position) * 4, paths = pages + size_t(head.pages()) * sizeof(Digest);
  return StateBody{list<Token>(bytes, 0, head.position), list<Digest>(bytes, pages, head.pages()),
                   list<uint64_t>(bytes, paths, head.full_pages())};
}

std::vector<std::byte> head_file(StateHead head, std::span<const Token> tokens,
                                 std::span<const Digest> pages) {
  std::vector<std::byte> file(kHeadBytes + size_t(head.body_bytes()));
  const std::span<std::byte> out(file), body = out.subspan(kHeadBytes);
  size_t at = 0;
  for (Token token : tokens) put(body, at, token), at += sizeof token;
  for (const Digest& digest : pages) put(body, at, digest), at += sizeof digest;
  head.path = kPathStart;
  for (int64_t p = 0; p < head.position; ++p) {
    head.path = path_step(head.path, tokens[size_t(p)]);
    if ((p + 1) % kPagePositions == 0 && head.page_bytes > 0) put(body, at, head.path), at += 8;
  }
  std::memcpy(file.data(), kStateMagic, 8);
  put(out, 8, kFileVersion);
  put(out, 12, head.numerics);
  put(out, 16, head.key);
  put(out, 48, head.position);
  put(out, 56, head.page_bytes);
  put(out, 64, head.set_bytes);
  put(out, 72, head.path);
  put(out, 80, head.set);
  put(out, 112, sha256(body));
  put(out, kSigned, sha256(out.first(kSigned)));
  return file;
}

std::vector<std::byte> note_bytes(const SavedNote& note) {
  std::vector<std::byte> bytes(kNoteBytes);
  const std::span<std::byte> out(bytes);
  std::memcpy(bytes.data(), kNoteMagic, 8);
  put(out, 8, kFileVersion);
  put(out, 16, note.saved_at);
  CHECK(note.model.size() == kModelDigits);
  std::memcpy(&bytes[24], note.model.data(), kModelDigits);
  put(out, kNoteSigned, sha256(out.first(kNoteSigned)));
  return bytes;
}

Result<SavedNote> parse_note(std::span<const std::byte> bytes, const std::string& where) {
  if (!starts_with(bytes, kNoteMagic)) return damaged(where, "expected a saved state, found something else");
  if (bytes.size() < kNoteBytes)
    return damaged(where, "expected at least 120 bytes, found " + std::to_string(bytes.size()));
  if (const auto version = get<uint32_t>(bytes, 8); version != kFileVersion)
    return Error{Code::Unsupported, where,
                 "expected version " + std::to_string(kFileVersion) + " of the file, found " +
                     std::to_string(version)};
  if (sha256(bytes.first(kNoteSigned)) != get<Digest>(bytes, kNoteSigned))
    return damaged(where, "the digest of the note does not match");
  SavedNote note;
  note.saved_at = get<int64_t>(bytes, 16);
  note.model.assign(reinterpret_cast<const char*>(&bytes[24]), kModelDigits);
  if (note.model.find_first_not_of("0123456789abcdef") != note.model.npos)
    return damaged(where, "expected the fingerprint of a model, found something else");
  return note;
}

std::vector<std::byte> pack_blob(std::span<const std::byte> bytes) {
  std::vector<std::byte> file(kBlobHead + std::max(bytes.size(), ZSTD_compressBound(bytes.size())));
  const size_t packed =
      ZSTD_compress(&file[kBlobHead], file.size() - kBlobHead, bytes.data(), bytes.size(), kLevel);
  const bool pays = !ZSTD_isError(packed) && packed < bytes.size() - bytes.size() / 10;
  if (!pays && !bytes.empty()) std::memcpy(&file[kBlobHead], bytes.data(), bytes.size());
  file.resize(kBlobHead + (pays ? packed : bytes.size()));
  std::memcpy(file.data(), kBlobMagic, 8);
  put<uint64_t>(file, 8, pays);
  put<uint64_t>(file, 16, bytes.size());
  return file;
}

int64_t most_blob_file_bytes(int64_t bytes) { return int64_t(kBlobHead) + bytes; }

Status unpack_blob(std::span<const std::byte> file, const Digest& digest, std::span<std::byte> out,
                   const std::string& where) {
  if (!starts_with(file, kBlobMagic) || file.size() < kBlobHead)
    return damaged(where, "expected a stored page or set, found something else");
  const std::span<const std::byte> packed = file.subspan(kBlobHead);
  const auto codec = get<uint64_t>(file, 8), bytes = get<uint64_t>(file, 16);
  if (bytes != out.size() || codec > 1)
    return damaged(where, "expected " + std::to_string(out.size()) + " bytes unpacked, found " +
                              std::to_string(bytes) + ", codec " + std::to_string(codec));
  size_t n = packed.size();
  if (codec == 1) n = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  else if (n == out.size() && n > 0) std::memcpy(out.data(), packed.data(), n);
  if (n != out.size()) return damaged(where, "the bytes cannot be unpacked");
  if (sha256(out) != digest) return damaged(where, "the digest of the bytes does not match");
  return Ok{};
}

}  // namespace invar
