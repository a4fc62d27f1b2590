/* Invar from C: a model, many requests at once, nothing read twice.
 *
 * Open a model, submit requests, poll events.  The engine runs on a thread of its own; every function here
 * may be called from any thread.  What a request gets depends on the model, its tokens and its sampling, and
 * on nothing else.  Structs begin with their size, so that later versions can add members at their end; the
 * *_init functions set it.  Nothing here ends the program or writes to its streams.
 */
#ifndef INVAR_H
#define INVAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct invar_engine invar_engine;

typedef enum invar_code {
  INVAR_OK = -1,
  INVAR_USAGE = 0,
  INVAR_BAD_FILE,
  INVAR_BAD_REQUEST,
  INVAR_UNSUPPORTED,
  INVAR_NOT_FOUND,
  INVAR_NO_ROOM,
  INVAR_IO,
  INVAR_CANCELLED
} invar_code;

typedef struct invar_error { /* what was expected, what was found, where; cut to fit */
  invar_code code;
  char text[1020];
} invar_error;

typedef struct invar_options {
  size_t size;
  int32_t threads;          /* 0: the cores that may be used */
  int32_t chunk;            /* prompt rows per pass */
  int32_t parallel;         /* requests that run at once */
  int64_t memory_bytes;     /* 0: what is free, less 512 MiB */
  int64_t context;          /* 0: what fits, at most the model's */
  const char* isa;          /* auto, scalar, avx2, avx512 */
  const char* kv;           /* f16, bf16, f32 */
  const char* cache_folder; /* NULL: nothing is kept on disk */
  int64_t cache_disk_bytes;
  void (*log)(void* data, const char* line); /* NULL: nothing; called on threads of the engine */
  void* log_data;
} invar_options;

void invar_options_init(invar_options* options);

/* NULL: `error` says why.  Errors may be NULL in all functions. */
invar_engine* invar_open(const char* path, const invar_options* options, invar_error* error);
void invar_close(invar_engine* engine); /* what runs is cancelled without further events; NULL is nothing */

int64_t invar_vocab(const invar_engine* engine);
int64_t invar_context(const invar_engine* engine);

/* How many tokens the text or the chat has, and the first `room` of them; -1: `error` says why.  Control
 * tokens in a text stay text.  `messages` is a JSON array as chat APIs have it, `options` a JSON object of
 * further variables of the template, or NULL. */
int64_t invar_tokenize(invar_engine* engine, const char* text, size_t bytes, int32_t* tokens, int64_t room,
                       invar_error* error);
int64_t invar_tokenize_chat(invar_engine* engine, const char* messages, const char* options, int32_t* tokens,
                            int64_t room, invar_error* error);

typedef struct invar_request {
  size_t size;
  const int32_t* prompt;
  int64_t prompt_tokens;
  int64_t max_tokens; /* below 0: until the context is full */
  float temperature, top_p, min_p, repetition, presence, frequency;
  int32_t top_k;
  uint64_t seed;
  int32_t n;               /* choices */
  const char* const* stop; /* texts that end the answer, and are not part of it */
  int64_t stops;
  int32_t priority;
  double deadline_s; /* 0: none */
  /* Names are 1 to 100 letters, digits, '.', '_', '-', and do not begin with '.'. */
  const char* save_as; /* the state behind the prompt is kept by this name, or the request fails; NULL: not */
  const char* from;    /* starts from the state of this name, or fails; NULL: from whatever is known */
} invar_request;

void invar_request_init(const invar_engine* engine, invar_request* request); /* as the model recommends */

/* The number of the request; 0: refused.  All that the request points to is copied. */
uint64_t invar_submit(invar_engine* engine, const invar_request* request, invar_error* error);
void invar_cancel(invar_engine* engine, uint64_t id);

typedef enum invar_finish {
  INVAR_RUNNING,
  INVAR_STOP,
  INVAR_LENGTH,
  INVAR_STOP_STRING,
  INVAR_CANCEL,
  INVAR_DEADLINE,
  INVAR_FAILED
} invar_finish;

typedef struct invar_event {
  size_t size;
  uint64_t id;
  int32_t choice;
  int32_t token; /* -1: none with this event */
  char
      text[1000]; /* whole characters that may be shown now, zero-terminated; a NUL of the text is left out */
  invar_finish finish;
  invar_error error; /* if INVAR_FAILED */
  int64_t prompt_tokens, cached_tokens, prompt_rows, answer_tokens;
  uint8_t logits_sha256[32]; /* with the last event of a choice */
} invar_event;

void invar_event_init(invar_event* event);

/* 1: the next event; 0: none came in that time (below 0: waits for one). */
int invar_poll(invar_engine* engine, invar_event* event, double timeout_s);

/* Saved states: invar_request.save_as writes one, .from starts from one.  With a cache folder they are kept
 * there until they are released, and later engines and processes find them; else as long as the engine is. */
typedef struct invar_saved {
  size_t size;
  char name[104];
  char model[68]; /* fingerprint of the model it belongs to, 64 hexadecimal digits: zeros without a cache
                     folder */
  int64_t tokens, bytes;
  int64_t saved_at;  /* seconds since 1970; 0: not known */
  invar_error error; /* INVAR_OK; else the file is damaged, and only the name is known */
} invar_saved;

void invar_saved_init(invar_saved* saved);

/* How many there are, by name, and the first `room` of them; `list` has elements of the size that the first
 * says.  -1: `error` says why. */
int64_t invar_list_saved(invar_engine* engine, invar_saved* list, int64_t room, invar_error* error);
/* The text of one, which a prompt that starts from it has to begin with; as invar_tokenize. */
int64_t invar_saved_tokens(invar_engine* engine, const char* name, int32_t* tokens, int64_t room,
                           invar_error* error);
/* Forgets one.  1: done; 0: there is none of that name; -1: `error` says why. */
int invar_release(invar_engine* engine, const char* name, invar_error* error);

typedef struct invar_statistics {
  size_t size;
  int64_t running, queued, finished, cancelled, failed;
  int64_t prompt_tokens, cached_tokens, prompt_rows, answer_tokens, preemptions;
  int64_t weights_bytes, scratch_bytes, state_budget_bytes, state_used_bytes, disk_bytes;
  int64_t memory_allowed_bytes, memory_bytes;      /* the budget; all kinds together */
  int64_t beside_bytes, text_bytes, request_bytes; /* the vocabulary; texts that are known; what is asked */
} invar_statistics;

void invar_statistics_init(invar_statistics* statistics);
void invar_get_statistics(const invar_engine* engine, invar_statistics* statistics);

#ifdef __cplusplus
}
#endif
#endif
