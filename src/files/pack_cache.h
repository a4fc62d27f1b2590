// Packed weights kept on disk, so that the next start reads them instead of packing.  A folder holds, for
// each model, one file named by the fingerprint of its content, and one small file for each place that a
// model was opened from: it tells the fingerprint without the pass over all weights that computing it costs.
// What is foreign, damaged, or packed by another version is never used, and costs time only.
//
//   FINGERPRINT.pack   tiles of each tensor, one tensor after the other
//                      table, JSON: {"packing", "fingerprint", "tensors": {NAME: {"format", "rows", "cols",
//                             "offset", "bytes", "pieces": [XXH3 of each MiB]}}}
//                      "INVARPK1", offset of the table, its bytes, its XXH3; 8 bytes each, little-endian
//   DIGEST.place       the fingerprint; DIGEST is of what identifies the opened files: device, inode, size,
//                      times of change, and the model's keys
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "files/model_file.h"
#include "formats/format.h"

namespace invar {

class PackCache {
 public:
  static constexpr int64_t kPieceBytes = 1 << 20;  // checked together

  struct Packed {  // what a pack holds of one tensor
    Format format;
    int64_t rows, cols;
    uint64_t offset, bytes;
    std::vector<uint64_t> pieces;
  };

  // Looks for the model's pack.  If there is none that can be used, one is written while the weights come in.
  // `note` hears in one line what was kept, and why something was not used or not kept.
  PackCache(const ModelFile& model, std::string folder, std::function<void(const std::string&)> note);

  // The packed tensor, if there is one of that name, format, shape and size; null otherwise.
  const Packed* find(const std::string& name, Format format, int64_t rows, int64_t cols,
                     uint64_t bytes) const;
  // The piece of it that starts at byte `first`, checked.  Several threads may call it.
  Status read(const Packed& packed, int64_t first, std::span<std::byte> to) const;
  // The pack turned out to be damaged: it is removed, and nothing more is found.
  void give_up(const Error& why);

  // Keeps a tensor while a pack is being written.
  void keep(const std::string& name, Format format, int64_t rows, int64_t cols,
            std::span<const std::byte> tiles);
  // All weights are in and fault-free: a pack that was being written gets its name, which takes one more pass
  // over the model.
  void publish(ThreadPool& pool);

  const std::string& fingerprint() const { return fingerprint_; }  // empty while unknown

 private:
  Status open_pack();
  Status start_pack();
  Status finish_pack(ThreadPool& pool);
  std::string place_path() const { return folder_ + "/" + place_ + ".place"; }
  std::string pack_path() const { return folder_ + "/" + fingerprint_ + ".pack"; }

  const ModelFile& model_;
  std::string folder_, place_, fingerprint_;
  std::function<void(const std::string&)> note_;
  std::map<std::string, Packed> tensors_;  // of the pack that is read or written
  std::optional<File> pack_;               // read
  std::optional<NewFile> new_pack_;        // written
  uint64_t written_ = 0;
};

}  // namespace invar
