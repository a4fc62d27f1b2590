// What a weight format is.  Each file of this folder holds one format as a struct:
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
//     template <class V, int M>                           // one tile times M activation rows
//     static void dot(typename V::F (&acc)[M], const Tile&, const typename Activation::Block* const (&x)[M]);
//   };
//
// `dot` keeps rule N1 of docs/numbers.md: integer inside a block, across blocks one fp32 fma chain per row in
// ascending order, whatever M and the tier.  The list of formats is in formats/all.h.
#pragma once

#include <cstdint>

namespace invar {

constexpr int kLanes = 16;  // rows of a tile, lanes of a vector

enum class Format : uint8_t {};  // the place in the list of formats/all.h; 0 is F32

struct FormatInfo {
  const char* name;
  int gguf_id;  // files carry names and ids, never the place in the list; -1: never in a file
  int block_values;
  int block_bytes;
  int tile_bytes;     // of 16 rows x block_values
  Format activation;  // how the other operand is packed before the dot
};

}  // namespace invar
