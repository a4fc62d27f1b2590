/* Answers a question from C: answer MODEL TEXT [MOST].  Prints the answer as it comes, then its cost. */
#include <invar.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const invar_error* error) {
  fprintf(stderr, "error: %s\n", error->text);
  return 1;
}

int main(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: answer MODEL TEXT [MOST]\n");
    return 2;
  }
  invar_error error;
  invar_options options;
  invar_options_init(&options);
  options.parallel = 1;
  options.memory_bytes = (int64_t)1 << 32;
  invar_engine* engine = invar_open(arguments[1], &options, &error);
  if (!engine) return fail(&error);

  const char* text = arguments[2];
  int64_t tokens = invar_tokenize(engine, text, strlen(text), NULL, 0, &error);
  if (tokens < 0) return fail(&error);
  int32_t* prompt = malloc(sizeof *prompt * (size_t)tokens);
  invar_tokenize(engine, text, strlen(text), prompt, tokens, &error);

  invar_request request;
  invar_request_init(engine, &request);
  request.prompt = prompt;
  request.prompt_tokens = tokens;
  request.max_tokens = count > 3 ? atol(arguments[3]) : 100;
  request.temperature = 0;
  if (!invar_submit(engine, &request, &error)) return fail(&error);
  free(prompt);

  invar_event event;
  invar_event_init(&event);
  do {
    invar_poll(engine, &event, -1);
    fputs(event.text, stdout);
    fflush(stdout);
  } while (event.finish == INVAR_RUNNING);
  printf("\n%lld prompt tokens, %lld answer tokens, finish %d\n", (long long)event.prompt_tokens,
         (long long)event.answer_tokens, (int)event.finish);
  int failed = event.finish == INVAR_FAILED;
  if (failed) fail(&event.error);
  invar_close(engine);
  return failed;
}
