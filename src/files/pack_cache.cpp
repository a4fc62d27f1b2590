#include "files/pack_cache.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/rng.h"
#include "files/fingerprint.h"
#include "files/json_text.h"
#include "formats/all.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little,
              "packs are little-endian, as the kernels read them");

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'I', 'N', 'V', 'A', 'R', 'P', 'K', '1'};
constexpr size_t kPieceBytes = 1 << 20;  // checked together
constexpr uint64_t kAlign = 64;
constexpr uint64_t kMostTable = 256 << 20;
constexpr uint64_t kReserve = uint64_t(1) << 30;  // of the disk, left to others

struct Tail {
  char magic[8];
  uint64_t table_offset, table_bytes, table_sum;
};

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Changes with the layout of any tile: the digest of what the formats make of the same blocks.
const std::string& packing() {
  static const std::string digest = [] {
    Sha256 hash;
    AllFormats::each([&]<class F>() {
      if constexpr (F::gguf_id >= 0) {
        typename F::Tile tile{};
        for (int lane = 0; lane < kLanes; ++lane) {
          typename F::Block block;
          auto* bytes = reinterpret_cast<uint8_t*>(&block);
          for (size_t i = 0; i < sizeof block; ++i)
            bytes[i] = uint8_t(philox({uint32_t(i), uint32_t(lane), 0, 0}, {0, 0})[0]);
          F::pack(block, tile, lane);
        }
        hash.update(F::name);
        hash.update(std::as_bytes(std::span(&tile, 1)));
      }
    });
    return hex(hash.finish());
  }();
  return digest;
}

std::string text_of(const Error& e) { return e.where.empty() ? e.message : e.where + ": " + e.message; }

Error damaged(const std::string& path, const std::string& what) { return {Code::BadFile, path, what}; }

std::string place_of(const ModelFile& model) {
  Sha256 hash;
  hash.update(model.identity());
  hash.update(Fingerprint().finish(model.keys(), model.architecture()));
  return hex(hash.finish());
}

// Packs that a killed process left unfinished.
void remove_leftovers(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) remove_abandoned(entry.path());
}

}  // namespace

PackCache::PackCache(const ModelFile& model, std::string folder, ThreadPool& pool, Listener listener)
    : model_(model),
      folder_(std::move(folder)),
      place_(place_of(model)),
      pool_(pool),
      listener_(std::move(listener)) {
  if (!listener_.note) listener_.note = [](const std::string&) {};
  const Status found = open_pack();
  if (found) return;
  if (found.error().code != Code::NotFound) listener_.note("pack cache: " + text_of(found.error()));
  unmap();
  fingerprint_.clear();
  if (Status started = start_pack(); !started) listener_.note("pack cache: " + text_of(started.error()));
}

PackCache::~PackCache() { unmap(); }

void PackCache::unmap() {
  if (mapped_.data()) munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
  mapped_ = {};
  tensors_.clear();
}

Status PackCache::open_pack() {
  fingerprint_ = TRY(read_file(place_path(), 64));
  if (!is_digest(fingerprint_)) return damaged(place_path(), "expected a fingerprint, found something else");
  const File pack = TRY(File::open(pack_path()));
  const uint64_t size = pack.size();
  Tail tail;
  if (size < sizeof tail)
    return damaged(pack_path(), "expected a pack, found a file of " + std::to_string(size) + " bytes");
  TRY(pack.read_at(size - sizeof tail, std::as_writable_bytes(std::span(&tail, 1))));
  if (std::memcmp(tail.magic, kMagic, sizeof kMagic) != 0)
    return damaged(pack_path(), "expected a pack, found none: its end is missing");
  if (tail.table_bytes > kMostTable || tail.table_offset > size ||
      tail.table_bytes != size - sizeof tail - tail.table_offset)
    return damaged(pack_path(), "expected the table before the end of the pack, found another place");
  std::string text(tail.table_bytes, '\0');
  TRY(pack.read_at(tail.table_offset, std::as_writable_bytes(std::span(text))));
  if (checksum(std::as_bytes(std::span(text))) != tail.table_sum)
    return damaged(pack_path(), "the checksum of the table is wrong");
  const nlohmann::json table = TRY(parse_json(text, pack_path()));
  try {
    if (table.at("fingerprint") != fingerprint_)
      return damaged(pack_path(), "expected the pack of this model, found another's");
    if (table.at("packing") != packing()) return damaged(pack_path(), "packed by another version");
    for (const auto& [name, t] : table.at("tensors").items()) {
      auto format = format_by_name(t.at("format").get<std::string>());
      if (!format) return damaged(pack_path(), "unknown format of " + name);
      Packed packed{*format, t.at("rows"), t.at("cols"), t.at("offset"), t.at("bytes"), t.at("pieces")};
      if (packed.offset % kAlign != 0 || packed.offset > tail.table_offset ||
          packed.bytes > tail.table_offset - packed.offset ||
          packed.pieces.size() != (packed.bytes + kPieceBytes - 1) / kPieceBytes)
        return damaged(pack_path(), "expected " + name + " inside the pack, found it outside");
      tensors_.emplace(name, std::move(packed));
    }
  } catch (const nlohmann::json::exception& e) { return damaged(pack_path(), e.what()); }
  mapped_ = TRY(pack.map());
  return check_pieces();
}

Status PackCache::check_pieces() {
  struct Piece {
    uint64_t offset, bytes, sum;
  };
  std::vector<Piece> pieces;
  for (const auto& [name, p] : tensors_)
    for (size_t i = 0; i < p.pieces.size(); ++i)
      pieces.push_back({p.offset + i * kPieceBytes,
                        std::min<uint64_t>(kPieceBytes, p.bytes - i * kPieceBytes), p.pieces[i]});
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  std::atomic<uint64_t> bad = UINT64_MAX;
  constexpr size_t kTogether = 64;  // between two words of progress
  for (size_t at = 0; at < pieces.size() && bad == UINT64_MAX; at += kTogether) {
    pool_.run(int64_t(std::min(kTogether, pieces.size() - at)), [&](int64_t i) {
      const Piece& p = pieces[at + size_t(i)];
      if (checksum(mapped_.subspan(p.offset, p.bytes)) != p.sum) bad = p.offset;
    });
    if (listener_.progress) listener_.progress(double(at) / double(pieces.size()));
  }
  if (bad == UINT64_MAX) return Ok{};
  return damaged(pack_path(), "a checksum is wrong: from byte " + std::to_string(bad) + " on");
}

std::span<const std::byte> PackCache::find(const std::string& name, Format format, int64_t rows,
                                           int64_t cols) const {
  auto it = mapped_.data() ? tensors_.find(name) : tensors_.end();
  if (it == tensors_.end()) return {};
  const Packed& p = it->second;
  if (p.format != format || p.rows != rows || p.cols != cols) return {};
  return mapped_.subspan(p.offset, p.bytes);
}

Status PackCache::start_pack() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return Error{Code::Io, folder_, "cannot make the folder: " + error.message()};
  remove_leftovers(folder_);
  uint64_t bytes = kReserve;
  for (const TensorEntry& t : model_.tensors()) bytes += t.bytes;
  const fs::space_info space = fs::space(folder_, error);
  if (!error && space.available < bytes)
    return Error{Code::NoRoom, folder_,
                 "expected " + std::to_string(bytes) + " bytes of free disk, found " +
                     std::to_string(space.available) + ": no pack is kept"};
  new_pack_.emplace(TRY(NewFile::create(place_path())));
  return Ok{};
}

void PackCache::keep(const std::string& name, Format format, int64_t rows, int64_t cols,
                     std::span<const std::byte> tiles) {
  if (!new_pack_) return;
  const std::vector<std::byte> padding((kAlign - written_ % kAlign) % kAlign);
  Status written = new_pack_->write(padding);
  written_ += padding.size();
  Packed packed{format, rows, cols, written_, tiles.size(), {}};
  for (size_t at = 0; at < tiles.size(); at += kPieceBytes)
    packed.pieces.push_back(checksum(tiles.subspan(at, std::min(kPieceBytes, tiles.size() - at))));
  written_ += tiles.size();
  tensors_.emplace(name, std::move(packed));
  if (written) written = new_pack_->write(tiles);
  if (written) return;
  listener_.note("pack cache: " + text_of(written.error()) + "; no pack is kept");
  new_pack_.reset();
}

Status PackCache::publish() {
  if (!new_pack_) return Ok{};
  Status s = finish_pack();
  new_pack_.reset();
  if (s) listener_.note("pack cache: kept " + std::to_string(written_) + " bytes in " + pack_path());
  else listener_.note("pack cache: " + text_of(s.error()) + "; no pack is kept");
  if (place_of(model_) != place_) return changed();
  return Ok{};
}

Error PackCache::changed() const { return damaged(model_.path(), "the model changed while it was read"); }

Status PackCache::finish_pack() {
  const std::span<const TensorEntry> all = model_.tensors();
  std::vector<std::optional<Result<Digest>>> digests(all.size());
  pool_.run(int64_t(all.size()), [&](int64_t i) { digests[size_t(i)] = digest_of(model_, all[size_t(i)]); });
  Fingerprint fingerprint;
  for (size_t i = 0; i < all.size(); ++i) fingerprint.add(all[i], TRY(std::move(*digests[i])));
  fingerprint_ = fingerprint.finish(model_.keys(), model_.architecture());
  if (place_of(model_) != place_) return changed();

  nlohmann::json tensors = nlohmann::json::object();
  for (const auto& [name, p] : tensors_)
    tensors[name] = {{"format", info(p.format).name},
                     {"rows", p.rows},
                     {"cols", p.cols},
                     {"offset", p.offset},
                     {"bytes", p.bytes},
                     {"pieces", p.pieces}};
  const std::string table =
      nlohmann::json{{"packing", packing()}, {"fingerprint", fingerprint_}, {"tensors", std::move(tensors)}}
          .dump();
  Tail tail{{}, written_, table.size(), checksum(std::as_bytes(std::span(table)))};
  std::memcpy(tail.magic, kMagic, sizeof kMagic);
  TRY(new_pack_->write(std::as_bytes(std::span(table))));
  TRY(new_pack_->write(std::as_bytes(std::span(&tail, 1))));
  TRY(new_pack_->finish_as(pack_path()));
  NewFile place = TRY(NewFile::create(place_path()));
  TRY(place.write(std::as_bytes(std::span(fingerprint_))));
  return place.finish();
}

}  // namespace invar
