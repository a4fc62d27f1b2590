// For tests: grammars over vocabularies of bytes, and which texts they take.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "text/byte_vocabulary.h"
#include "text/grammar.h"

namespace invar {

// Tags of calls are tokens for one, text for the other.
struct World {
  Tokenizer tokenizer;
  GrammarCompiler compiler = GrammarCompiler::make(tokenizer, tokenizer.eos()).take();
};
inline const World& spelled() {
  static const World* const made = new World{byte_tokenizer()};
  return *made;
}
inline const World& tokens() {
  constexpr TokenType kTag = TokenType::UserDefined;
  static const World* const made = new World{byte_tokenizer({{"<|end|>"},
                                                             {"<tool_call>", kTag},
                                                             {"</tool_call>", kTag},
                                                             {"<arg_value>", kTag},
                                                             {"</arg_value>", kTag}})};
  return *made;
}

inline GrammarSpec written(GrammarSpec::Kind kind, std::string text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = std::move(text);
  return spec;
}
// Its added tokens, and bytes.
inline std::vector<Token> tokens_of(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<Token> out;
  while (!text.empty()) {
    Token next = uint8_t(text[0]);
    for (Token t = 257; t < tokenizer.size(); t++)
      if (text.starts_with(tokenizer.piece(t))) next = t;
    out.push_back(next);
    text.remove_prefix(tokenizer.piece(next).size());
  }
  return out;
}

// Whether the text is a whole answer.
inline bool accepts(const Grammar& grammar, const std::string& text, const World& world = spelled()) {
  const auto matcher = grammar.start();
  for (Token t : tokens_of(text, world.tokenizer)) {
    const Result<bool> taken = matcher->accept(t);
    if (!taken || !*taken) return false;
  }
  return matcher->may_end();
}

inline Grammar compiled(const GrammarSpec& spec, const World& world = spelled()) {
  Result<Grammar> grammar = world.compiler.compile(spec);
  if (!grammar) ADD_FAILURE() << grammar.error().where << ": " << grammar.error().message;
  return grammar.take();
}

}  // namespace invar
