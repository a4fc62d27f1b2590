// Packed weights kept on disk, so that the next start reads them instead of packing.  A folder holds, for
// each model, one file named by the fingerprint of its content, and one small file for each place that a
// model was opened from: it tells the fingerprint without the pass over all weights that computing it costs.
// What is foreign, damaged, or packed by another version is never used, and costs time only.
//
// A pack is mapped, so that a start copies nothing and processes share it.  It is checked whole before it is
// used; it is replaced, never changed in place, and who changes one in place breaks the processes that use
// it.
//
//   FINGERPRINT.pack   tiles of each tensor, each from a multiple of 64 bytes on
//                      table, JSON: {"packing", "fingerprint", "tensors": {NAME: {"format", "rows", "cols",
//                             "offset", "bytes", "pieces": [XXH3 of each MiB]}}}
//                      "INVARPK1", offset of the table, its bytes, its XXH3; 8 bytes each, little-endian
//   DIGEST.place       the fingerprint; DIGEST is of what identifies the opened files: device, inode, size,
//                      times of change, and the model's keys
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "files/model_file.h"
#include "formats/format.h"

namespace invar {

class PackCache {
 public:
  struct Listener {
    std::function<void(double share)> progress = {};  // of the pack that is checked, 0..1
    std::function<void(const std::string& line)> note =
        {};  // what was kept; why something was not used or kept
  };

  // Looks for the model's pack, and checks all of it.  If there is none that can be used, one is written
  // while the weights come in.
  PackCache(const ModelFile& model, std::string folder, ThreadPool& pool, Listener listener);
  ~PackCache();
  PackCache(const PackCache&) = delete;
  PackCache& operator=(const PackCache&) = delete;

  // The packed tensor, if there is one of that name, format and shape; empty otherwise.  Lives as long as
  // this.
  std::span<const std::byte> find(const std::string& name, Format format, int64_t rows, int64_t cols) const;

  // Keeps a tensor while a pack is being written.
  void keep(const std::string& name, Format format, int64_t rows, int64_t cols,
            std::span<const std::byte> tiles);
  // All weights are in and fault-free: a pack that was being written gets its name, which takes one more pass
  // over the model.  That no pack can be written is noted alone; that the model changed meanwhile is BadFile,
  // as its weights are of two files.
  Status publish();

  const std::string& fingerprint() const { return fingerprint_; }  // empty while unknown

 private:
  struct Packed {  // what a pack holds of one tensor
    Format format;
    int64_t rows, cols;
    uint64_t offset, bytes;
    std::vector<uint64_t> pieces;
  };

  void unmap();
  Status open_pack();
  Status check_pieces();
  Status start_pack();
  Status finish_pack();
  Error changed() const;
  std::string place_path() const { return folder_ + "/" + place_ + ".place"; }
  std::string pack_path() const { return folder_ + "/" + fingerprint_ + ".pack"; }

  const ModelFile& model_;
  std::string folder_, place_, fingerprint_;
  ThreadPool& pool_;
  Listener listener_;
  std::map<std::string, Packed> tensors_;  // of the pack that is read or written
  std::span<const std::byte> mapped_;      // the pack that is read
  std::optional<NewFile> new_pack_;        // the one that is written
  uint64_t written_ = 0;
};

}  // namespace invar
