// Grammars that answers must obey, and how far an answer has come in one.  llguidance does the work, through
// textkit/; this adds limits, places in errors, and one way to ask.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"
#include "text/tokenizer.h"

struct tk_grammar_env;
struct tk_matcher;

namespace invar {

// What an answer must be.  JSON comes out compact: no white space between its parts.
struct GrammarSpec {
  enum class Kind { JsonSchema, JsonObject, Regex, Choice, Lark, Gbnf, Tags };
  Kind kind = Kind::JsonObject;
  Json schema;                      // JsonSchema; Tags: see structural_tag.h
  bool strict = false;              // a keyword that cannot be enforced is an error; else it is ignored
  std::string text;                 // Regex, Lark, Gbnf
  std::vector<std::string> choice;  // Choice: one of these
  std::string whitespace;  // JsonSchema: a regex of what may stand between the parts; empty: nothing may

  // Schemas within a Lark text and where the request has them, for errors.
  struct Part {
    std::string where;
    Json schema;
    bool strict = false;
  };
  std::vector<Part> parts;
  std::vector<std::string> ignored;  // places that are known not to be enforced
};

// The state of one answer in its grammar.  Used by one thread at a time, any thread.
class Matcher {
 public:
  // Clears the bits of tokens that may not come next; an end token may where the grammar may end.  Bits
  // beyond the vocabulary are cleared.  An error (too much work) is final.
  Status mask(std::span<uint64_t> allowed);
  // False: it may not come next, and nothing changed.
  Result<bool> accept(Token token);
  bool complete() const;  // nothing can follow
  bool may_end();         // an end token may come next
  // It shares memory with this one: what is too much work for one may be the end of both.
  std::unique_ptr<Matcher> copy() const { return copied(false); }

 private:
  friend class Grammar;
  friend class GrammarCompiler;
  struct Free {
    void operator()(tk_matcher* m) const;
  };
  explicit Matcher(tk_matcher* kit) : kit_(kit) {}
  std::unique_ptr<Matcher> copied(bool alone) const;
  std::unique_ptr<tk_matcher, Free> kit_;
  bool may_end_ = false;
};

class Grammar {  // immutable: any number of threads may use it
 public:
  std::unique_ptr<Matcher> start() const;  // shares nothing with others
  // For answers that begin with these tokens, what may follow them.  BadRequest: none begins so.
  Result<Grammar> behind(std::span<const Token> tokens) const;
  const std::vector<std::string>& ignored() const { return ignored_; }  // "/properties/a/not", ...

 private:
  friend class GrammarCompiler;
  std::shared_ptr<const Matcher> first_;
  std::vector<std::string> ignored_;
};

// One per model: the vocabulary as a tree, and the grammars compiled last.  Any number of threads may use it.
class GrammarCompiler {
 public:
  GrammarCompiler(GrammarCompiler&&) noexcept;
  GrammarCompiler& operator=(GrammarCompiler&&) noexcept;
  ~GrammarCompiler();

  // `ends`: every token that ends an answer.  Takes some 0.1 to 0.5 s and 10 to 25 MB for a large vocabulary.
  static Result<GrammarCompiler> make(const Tokenizer& tokenizer, std::span<const Token> ends);

  // Errors are BadRequest; `where` is a JSON pointer into the schema, or "regex", "choice", "grammar".
  Result<Grammar> compile(const GrammarSpec& spec) const;

 private:
  struct Free {
    void operator()(tk_grammar_env* e) const;
  };
  struct Kept;

  GrammarCompiler();
  Result<std::unique_ptr<Matcher>> matcher(int kind, std::string_view text, bool strict, const char* where,
                                           std::string* warnings) const;
  Result<Grammar> compile_new(const GrammarSpec& spec) const;
  Result<Grammar> compile_schema(Json schema, bool strict, const std::string& whitespace = {}) const;
  Result<Grammar> compile_text(int kind, const std::string& text, const GrammarSpec& spec,
                               const char* where) const;
  std::string place_of_fault(const Json& root, bool strict) const;

  std::unique_ptr<tk_grammar_env, Free> kit_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace invar
