// The bytes of the disk store's files: reading, writing and checking them in memory.  Whatever the input, the
// answer is a value that was checked or an Error.  Folders and threads are disk_store.h's.
//
// All numbers are little-endian.  A head file describes a snapshot:
//
//     0  8  "invstate"            48  8  position: the number of tokens
//     8  4  version of the file   56  8  bytes of a page, 0: none
//    12  4  version of numbers    64  8  bytes of a set, 0: none
//    16 32  key                   72  8  path of all tokens (path_step)
//    80 32  digest of the set     112 32  digest of the body     144 32  digest of bytes [0, 144)
//   176  -  body: 4 bytes each token; a digest for each page of 64 positions; 8 bytes for the path at the
//           end of each page that is full
//
// A blob file holds one page or one set.  Its digest, which is its name too, is of the bytes unpacked:
//
//     0  8  "invblob1"      8  8  codec: 0 as it is, 1 zstd      16  8  bytes unpacked      24  -  the bytes
//
// A saved state is one file: a note, the bytes of a head file, then each page and the set, if there is one,
// as 8 bytes for the length of a blob file and its bytes.  The note:
//
//     0  8  "invsaved"     12  4  0                               24 64  the model's fingerprint
//     8  4  version        16  8  when: seconds since 1970        88 32  digest of bytes [0, 88)
//
// Digests are SHA-256: a page is looked up by content in a folder that others may write to, so two pages of
// one name must not exist, and it is there for the model files already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "device/operands.h"

namespace invar {

constexpr size_t kHeadBytes = 176, kNoteBytes = 120;
constexpr int64_t kMostPositions = 1 << 24, kMostBlobBytes = int64_t(1) << 34;

// A number for a text, token by token.  Finds candidates; the tokens themselves decide.
constexpr uint64_t kPathStart = 0x243F6A8885A308D3;
constexpr uint64_t path_step(uint64_t path, Token token) {
  path = (path ^ uint32_t(token)) * 0x9E3779B97F4A7C15;
  return path ^ path >> 32;
}

struct StateHead {
  uint32_t numerics = 0;
  Digest key{};
  int64_t position = 0, page_bytes = 0, set_bytes = 0;
  uint64_t path = 0;
  Digest set{}, body{};

  int64_t pages() const { return page_bytes > 0 ? (position + kPagePositions - 1) / kPagePositions : 0; }
  int64_t full_pages() const { return page_bytes > 0 ? position / kPagePositions : 0; }
  int64_t body_bytes() const { return position * 4 + pages() * int64_t(sizeof(Digest)) + full_pages() * 8; }
};

struct StateBody {
  std::vector<Token> tokens;
  std::vector<Digest> pages;
  std::vector<uint64_t> paths;
};

struct SavedNote {
  int64_t saved_at = 0;
  std::string model;  // 64 hexadecimal digits
};

Result<SavedNote> parse_note(std::span<const std::byte> bytes, const std::string& where);
std::vector<std::byte> note_bytes(const SavedNote& note);

// BadFile: damaged.  Unsupported: of another version, or not of ours.
Result<StateHead> parse_head(std::span<const std::byte> bytes, const std::string& where);
Result<StateBody> parse_body(const StateHead& head, std::span<const std::byte> bytes,
                             const std::string& where);
// The whole file; path, paths and the digest of the body are worked out from tokens and pages.
std::vector<std::byte> head_file(StateHead head, std::span<const Token> tokens,
                                 std::span<const Digest> pages);

// Packed if that saves a tenth.
std::vector<std::byte> pack_blob(std::span<const std::byte> bytes);
// Fills `out` whole, and it has the digest; or an Error, and `out` holds anything.
Status unpack_blob(std::span<const std::byte> file, const Digest& digest, std::span<std::byte> out,
                   const std::string& where);
// The largest file that holds so many bytes.
int64_t most_blob_file_bytes(int64_t bytes);

}  // namespace invar
