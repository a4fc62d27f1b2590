// What a Hugging Face checkpoint calls things, per architecture, as tables: config names to GGUF keys, tensor
// names to GGUF names with the change a converter makes to the values.  A new architecture is a line here
// and the rules it needs.  Sources: the published config.json files and the GGUF conventions of llama.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace invar {

// Which architectures a rule is for.
enum Family : uint8_t { kQwen35 = 1, kQwen35Moe = 2, kLlama = 4, kQwen2 = 8, kQwen3 = 16 };
constexpr uint8_t kAnyQwen35 = kQwen35 | kQwen35Moe, kDense = kLlama | kQwen2 | kQwen3;
constexpr uint8_t kAnyFamily = kAnyQwen35 | kDense;

struct HfArchitecture {
  const char* hf_class;
  const char* arch;  // general.architecture
  Family family;
};

struct HfKey {
  uint8_t families;
  const char* hf;    // in text_config, its rope_parameters, or the top level
  const char* gguf;  // below the architecture
  enum Kind : uint8_t { Integer, Real } kind;
  bool required;
};

// How the values of a tensor change on their way.
enum class HfChange : uint8_t {
  None,
  AddOne,      // a norm that is stored as gain - 1
  Flat,        // [1, n] to [n]
  QkvRows,     // value heads of the third part of the rows, from grouped to tiled
  ValueRows,   // value heads of all rows
  HeadRows,    // one row a value head
  HeadNegExp,  // the same, and -exp(x)
  Conv,        // [channels, 1, taps] to [channels, taps]; channels as QkvRows
  ValueCols,   // value heads of the columns
  QueryPairs,  // rows of each head: rotary halves to neighbours
  KeyPairs,
  GateUp,  // [E, 2 I, H]: the first half of each matrix to the named tensor, the second to ffn_up_exps
  Expert,  // one matrix an expert: stacked
};

struct HfName {
  uint8_t families;
  const char* hf;    // below the layer, or at the top
  const char* gguf;  // below blk.N, or at the top
  HfChange change = HfChange::None;
  bool wide = false;  // F32 whatever the file stores (vectors always are)
};

std::span<const HfArchitecture> hf_architectures();
std::span<const HfKey> hf_keys();

// Where a tensor of a checkpoint belongs.
struct HfPlace {
  enum Kind : uint8_t { Top, Layer, Mtp, Skipped, Unknown } kind = Unknown;
  const HfName* rule = nullptr;
  int layer = -1;   // Layer; of Mtp the block among the MTP blocks
  int expert = -1;  // change Expert
};

HfPlace place_hf_tensor(std::string_view name, Family family);

}  // namespace invar
