// A grammar of llama.cpp's form as a tree: what gbnf.cpp reads and gbnf_writer.cpp writes as Lark.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace invar {

using CharacterSet = std::vector<std::pair<uint32_t, uint32_t>>;  // ranges of code points

struct GbnfNode {
  enum class Kind { Characters, Token, Rule, Sequence, Choice, Repeat };
  Kind kind = Kind::Sequence;
  CharacterSet set = {};             // Characters: one of these
  std::string token = {};            // Token: <text> or <[id]>, as Lark writes it too
  int rule = -1;                     // Rule
  std::vector<GbnfNode> parts = {};  // of a sequence or choice; one of a repeat
  int least = 1, most = 1;           // Repeat; below 0: no bound
};

using GbnfRules = std::vector<GbnfNode>;  // the bodies; groups are rules of their own

std::string lark_of(const GbnfRules& rules, int root);

}  // namespace invar
