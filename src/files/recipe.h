// How the bytes of a named tensor come out of the files: as they stand, or (Hugging Face checkpoints, whose
// weights are floats) reordered, widened and shifted on the way, so that the reader sees the values that a
// converted GGUF file holds.  Any range of rows can be read without the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace invar {

enum class FloatType : uint8_t { F32, F16, BF16 };
enum class Change : uint8_t { None, AddOne, NegExp };  // computed in F32; NegExp is -exp(x)

// An order of rows or columns: place i of the tensor holds place source(i) of the file.
struct Order {
  enum Kind : uint8_t { Same, ValueHeads, RopePairs, Halves } kind = Same;
  int64_t first = 0;                 // ValueHeads: places below it stay
  int64_t head = 1;                  // ValueHeads, RopePairs: places of one head.  Halves: of one half
  int64_t key_heads = 1, ratio = 1;  // ValueHeads: value heads = key_heads * ratio
  int64_t half = 0;                  // Halves: which of the two that alternate in the file

  int64_t source(int64_t i) const;
};

struct Recipe {
  struct Source {
    size_t file;
    uint64_t offset;
  };
  std::vector<std::byte> made;  // not empty: the bytes themselves, in no file; all that follows is unused

  std::vector<Source> sources;  // more than one: equal shares of the rows, one after the other
  bool as_stored = true;        // sources[0] holds the bytes; all that follows is unused

  FloatType from = FloatType::F32, to = FloatType::F32;
  int64_t rows = 1, cols = 1;  // of the result; a vector that is reordered has one column
  Order row_order, col_order;
  Change change = Change::None;
};

int width_of(FloatType type);

Status read_recipe(std::span<const File> files, const Recipe& recipe, uint64_t offset,
                   std::span<std::byte> out);

}  // namespace invar
