/* Tokenizers, chat templates and grammars, written in Rust (src/ffi.rs), as C functions.

   A function that can fail returns tk_code, gives its result through `out`, and on failure stores at
   `err` (which may be null) a text to be freed with tk_string_free.  Text is pointer and length, UTF-8,
   not NUL-terminated.  What a `new` gives is taken back by its `free`; free(NULL) is fine.  Nothing
   keeps a pointer to an argument.  Tokenizers, templates and grammar environments do not change once made:
   any number of threads may use them.  A matcher is used by one thread at a time, but for tk_matcher_copy. */
#ifndef TEXTKIT_H
#define TEXTKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tk_code {
  TK_OK,
  TK_BAD_ARGUMENT,
  TK_BAD_VOCAB,   /* err begins with the key concerned: "tokenizer.ggml.merges: ..." */
  TK_UNSUPPORTED, /* also begins with the key */
  TK_TEMPLATE_SYNTAX,
  TK_TEMPLATE_RAISED, /* the template refused the conversation: err is its own message */
  TK_TEMPLATE_RUNTIME,
  TK_LIMIT, /* too much work, text or nesting */
  TK_INTERNAL,
} tk_code;

typedef struct tk_str {
  const char* data;
  size_t len;
} tk_str;

typedef struct tk_buf {
  char* data;
  size_t len, cap;
} tk_buf;

void tk_buf_free(tk_buf buf);
void tk_string_free(char* text);

/* The arrays of a GGUF file; unused ones are empty. */
typedef struct tk_vocab {
  tk_str model, pre;
  const tk_str* pieces;
  size_t n_pieces;
  const int32_t* types;
  size_t n_types;
  const float* scores;
  size_t n_scores;
  const tk_str* merges;
  size_t n_merges;
  int32_t nfc; /* normalise text first: 1 yes, 0 no, -1 as the family was trained */
  bool add_space_prefix;
} tk_vocab;

typedef struct tk_tokenizer tk_tokenizer;

tk_code tk_tokenizer_new(const tk_vocab* vocab, tk_tokenizer** out, char** err);
tk_code tk_tokenizer_from_json(const char* data, size_t len, int32_t nfc, tk_tokenizer** out, char** err);
void tk_tokenizer_free(tk_tokenizer* t);

/* Which added tokens are found in a text.  TK_MARKED: all, but none in text between the marks that
   tk_mark_control sets; the marks themselves are dropped. */
typedef enum tk_mode { TK_ALL, TK_USER, TK_NONE, TK_MARKED } tk_mode;

/* Bytes that are not UTF-8 count as U+FFFD.  Writes at most `cap` ids; `count` is how many there are. */
tk_code tk_encode(const tk_tokenizer* t, const char* text, size_t len, int32_t mode, uint32_t* ids,
                  size_t cap, size_t* count, char** err);
/* The text with marks around each control token's text. */
tk_code tk_mark_control(const tk_tokenizer* t, const char* text, size_t len, tk_buf* out, char** err);

/* These cannot fail; `t` must not be null.  The bytes of a piece live as long as `t`. */
void tk_piece(const tk_tokenizer* t, uint32_t id, const char** data, size_t* len);
int32_t tk_token_type(const tk_tokenizer* t, uint32_t id);            /* 0 for an unknown id */
int64_t tk_find(const tk_tokenizer* t, const char* text, size_t len); /* -1: no such token */
size_t tk_size(const tk_tokenizer* t);
bool tk_adds_space(const tk_tokenizer* t); /* encoding puts a space before the text */

typedef struct tk_template tk_template;

tk_code tk_template_new(const char* source, size_t len, tk_template** out, char** err);
void tk_template_free(tk_template* t);
/* `json` is an object with all variables; `now_unix` is what strftime_now tells. */
tk_code tk_template_render(const tk_template* t, const char* json, size_t len, int64_t now_unix, tk_buf* out,
                           char** err);

/* The vocabulary of a tokenizer (which it keeps alive) as a tree that grammars share. */
typedef struct tk_grammar_env tk_grammar_env;
typedef struct tk_matcher tk_matcher;
typedef enum tk_grammar_kind { TK_JSON_SCHEMA, TK_REGEX, TK_LARK } tk_grammar_kind;

/* `ends`: at least one, the tokens that end an answer. */
tk_code tk_grammar_env_new(const tk_tokenizer* t, const uint32_t* ends, size_t n_ends, tk_grammar_env** out,
                           char** err);
void tk_grammar_env_free(tk_grammar_env* e);

/* A fault of the grammar is TK_BAD_ARGUMENT.  Without `strict` a keyword of a schema that is not supported is
   ignored and told in `ignored` (may be null), one line for each. */
tk_code tk_matcher_new(const tk_grammar_env* e, int32_t kind, const char* text, size_t len, bool strict,
                       tk_buf* ignored, tk_matcher** out, char** err);
/* `alone`: shares nothing.  Else too much work in one, which is final, may be the end of the other, too. */
tk_code tk_matcher_copy(const tk_matcher* m, bool alone, tk_matcher** out, char** err);
void tk_matcher_free(tk_matcher* m);
/* Clears the bits of tokens that may not come next, and all beyond the vocabulary.  `may_end`: an end token
   may.  TK_LIMIT, too much work, is final. */
tk_code tk_matcher_mask(tk_matcher* m, uint64_t* words, size_t n_words, bool* may_end, char** err);
tk_code tk_matcher_accept(tk_matcher* m, uint32_t token, bool* fits, char** err);
bool tk_matcher_complete(const tk_matcher* m); /* nothing can follow */

#ifdef __cplusplus
}
#endif
#endif
