// For tests: vocabularies of the 256 bytes, so that every text has its tokens and token b is byte b.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace invar {

// The letter of a byte in vocabularies of the GPT-2 kind: printable ones stand for themselves, the others
// follow from U+0100 on.
inline std::string byte_letter(int byte) {
  const auto plain = [](int b) { return (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173; };
  int code = byte;
  if (!plain(byte)) {
    code = 256;
    for (int b = 0; b < byte; b++) code += plain(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, char(code));
  return {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
}

struct AddedPiece {
  std::string text;
  TokenType type = TokenType::Control;
};

// Bytes as SentencePiece has them, and `added` behind them, the first of which ends an answer.
inline Tokenizer byte_tokenizer(const std::vector<AddedPiece>& added = {{"<|end|>"}}) {
  TokenizerSpec spec;
  spec.model = "llama";
  spec.add_space_prefix = false;
  for (int b = 0; b < 256; b++) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "<0x%02X>", b);
    spec.pieces.push_back(hex);
    spec.types.push_back(int(TokenType::Byte));
  }
  for (const AddedPiece& piece : added) {
    spec.pieces.push_back(piece.text);
    spec.types.push_back(int(piece.type));
  }
  spec.scores.assign(spec.pieces.size(), 0);
  spec.eos = {256};
  return Tokenizer::make(spec).take();
}

}  // namespace invar
