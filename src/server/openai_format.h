// What completions and chat write alike: parts of answers, and the end of a stream.
#pragma once

#include <string>

#include "server/answer.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace invar::server {

// What a writer of either is told about the question.
struct OpenAiForm {
  const Tokenizer& tokenizer;
  std::string fingerprint;  // of the system
  int logprobs = -1, prompt_logprobs = -1;
  bool echo = false, return_token_ids = false, tokens_as_ids = false, timings = false;
  bool stream_usage = false, continuous_usage = false;
};
OpenAiForm openai_form(const Question& q, const Tokenizer& tokenizer, const std::string& version);

Json openai_usage(const Usage& usage);
Json timings_json(const TokenUsage& first);
const char* finish_reason(const Choice& choice);
Json stop_reason(const Choice& choice);  // vLLM's: the stop string, the id of the stop token, or null

// The bytes of a token as characters; with `as_ids` "token_id:N".
std::string token_text(const Tokenizer& tokenizer, Token token, bool as_ids);
Json bytes_of(const Tokenizer& tokenizer, Token token);

// vLLM's prompt_logprobs: null, then {id: {logprob, rank, decoded_token}} for each further token.
Json prompt_logprobs_json(const Prompt& prompt, int best, const Tokenizer& tokenizer);

class OpenAiWriter : public Writer {
 public:
  void end(const Answer& answer, const Write& write) override;
  void heartbeat(const Answer& answer, bool begun, const Write& write) override;
  bool fail(const Answer& answer, const ApiError& error, const Write& write) override;

 protected:
  struct Names {
    const char *id, *whole, *chunk;  // before the answer's own; `object` of an answer, and of a chunk
  };
  OpenAiWriter(OpenAiForm form, const Names& names) : form_(std::move(form)), names_(names) {}
  Json frame(const Answer& answer, const char* object, Json choices) const;
  void add_totals(Json& to, const Answer& answer) const;

  const OpenAiForm form_;
  const Names names_;
};

}  // namespace invar::server
