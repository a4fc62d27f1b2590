// clang-format off: the comment is laid out by hand
// What a weight format is.  A file of this folder holds a format, or a family of them, as structs; the others
// are what they share:
//
//   struct X {
//     using Activation = I8x32 or F32;            // how the other operand of a product is packed
//     static constexpr const char* name;          // as GGUF tools print it
//     static constexpr int gguf_id, block_values;
//     struct Block;                               // as the file has it, along one row
//     struct Tile;                                // the same block of 16 rows, as the kernels read it:
//     packed.h static void decode(const Block&, float* values); static void encode(const float* values,
//     Block&);    // finite values; never a scale that is not static void pack(const Block&, Tile&, int
//     lane);    // exact: unpack gives the bytes back static void unpack(const Tile&, int lane, Block&);
//     static bool finite(const Block&);                   // no NaN and no infinity in scales or values
//     // integer formats (Activation is I8x32): a weight is scale * (code - kOffset), and a minimum
//     static constexpr int kBits, kOffset, kParts;        // of a code; kParts: scales per 32 weights, 1 or 2
//     static constexpr Minimum kMinimum;
//     template <class V, int kGroup> static V::B codes(const Tile&, int s);   // of block s, k = 4 kGroup ..
//     template <class V, int kPart> static V::F scale(const Tile&, int s);    // exact, and `minimum` too
//     // float formats
//     template <class V> static V::F weights(const Tile&);
//   };
//
// formats/product.h makes the product of them.  The list of formats is in formats/all.h.
// clang-format on
#pragma once

#include <cstdint>

namespace invar {

constexpr int kLanes = 16;  // rows of a tile, lanes of a vector

enum class Format : uint8_t {};  // the place in the list of formats/all.h; 0 is F32

enum class Minimum { None, Added, Subtracted };  // times the sum of the activations

struct FormatInfo {
  const char* name;
  int gguf_id;  // files carry names and ids, never the place in the list; -1: never in a file
  int block_values;
  int block_bytes;
  int tile_bytes;     // of 16 rows x block_values
  Format activation;  // how the other operand is packed before the dot
};

}  // namespace invar
