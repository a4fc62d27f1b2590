// Text to token ids and back.  A thin layer over textkit/: what a model file says about its vocabulary
// goes in as plain data; who reads it from the file and who renders prompts is decided elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct tk_tokenizer;

namespace invar {

using Token = int32_t;

enum class TokenType { Undefined, Normal, Unknown, Control, UserDefined, Unused, Byte };  // numbers of GGUF

// The values of `tokenizer.ggml.*`, or the text of a tokenizer.json instead of the arrays.
struct TokenizerSpec {
  std::string model;                // gpt2 or llama
  std::string pre;                  // how gpt2 splits words
  std::vector<std::string> pieces;  // `tokens`
  std::vector<int32_t> types;       // `token_type`; empty: all normal
  std::vector<float> scores;        // llama only
  std::vector<std::string> merges;  // gpt2 only
  bool add_space_prefix = true;     // llama only
  std::string tokenizer_json;

  std::optional<bool> nfc;  // normalise text first; unset: as the family was trained
  std::optional<Token> bos;
  std::vector<Token> eos;  // every token that ends an answer
  bool add_bos = false;    // raw text begins with `bos`
};

// Which added tokens `encode` finds in a text.
enum class AddedTokens {
  All,   // control and user-defined
  User,  // user-defined; control tokens are text
  None,
};

class Tokenizer {  // immutable: any number of threads may use it
 public:
  // Checks everything; an error names the key of the file that is wrong.
  static Result<Tokenizer> make(const TokenizerSpec& spec);

  // Bytes that are not UTF-8 count as U+FFFD.  Does not add `bos`.
  Result<std::vector<Token>> encode(std::string_view text, AddedTokens added) const;

  // A rendered prompt: all added tokens, but none in text that `mark_control` marked.
  Result<std::vector<Token>> encode_marked(std::string_view prompt) const;

  // The text with marks around what would become a control token.
  Result<std::string> mark_control(std::string_view text) const;

  std::string_view piece(Token id) const;  // raw bytes; empty for an unknown id
  TokenType type(Token id) const;
  std::optional<Token> find(std::string_view text) const;  // by the text in the file
  int size() const;
  bool adds_space() const;  // encoding puts a space before the text

  std::optional<Token> bos() const { return bos_; }
  const std::vector<Token>& eos() const { return eos_; }
  bool is_eos(Token id) const;
  bool add_bos() const { return add_bos_; }

  const tk_tokenizer* kit() const { return kit_.get(); }  // for what else of textkit works on it

 private:
  struct Free {
    void operator()(tk_tokenizer* t) const;
  };

  Tokenizer() = default;
  Result<std::vector<Token>> encode_as(int mode, std::string_view text) const;

  std::unique_ptr<tk_tokenizer, Free> kit_;
  std::optional<Token> bos_;
  std::vector<Token> eos_;
  bool add_bos_ = false;
};

// Bytes in pieces to valid UTF-8: never splits a character; one U+FFFD for each maximal invalid part.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // every character that is complete by now
  std::string finish();                      // a cut character as one U+FFFD

 private:
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

// Tokens of an answer to the text a reader sees: control tokens are left out.
class TextStream {
 public:
  // `from_start`: the tokens begin a text, so a space that encoding added is taken away again.
  explicit TextStream(const Tokenizer& tokenizer, bool from_start = false)
      : tokenizer_(tokenizer), drop_space_(from_start && tokenizer.adds_space()) {}

  std::string push(Token id);
  std::string finish() { return bytes_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  Utf8Stream bytes_;
  bool drop_space_;
};

// The whole text of tokens that begin a text.
std::string decode(const Tokenizer& tokenizer, std::span<const Token> ids);

}  // namespace invar
