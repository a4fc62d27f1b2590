// What a request means, whichever API it came by: the prompt, how to go on from it, and what to tell.  Each
// adapter fills one; ask.h answers it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "decode/sampler.h"
#include "server/body.h"
#include "text/json.h"

namespace invar::server {

using RawPrompt = std::variant<std::string, std::vector<Token>>;

struct Thinking {
  std::optional<bool> on;         // unset: as the template has it
  std::optional<int64_t> budget;  // most tokens of a thought; below 0: no bound
  std::string effort;             // for templates that take it
};

struct ToolChoice {
  enum class Kind { Auto, None, Required } kind = Kind::Auto;
  std::vector<std::string> names = {};  // none but these may be called; empty: all
  bool parallel = true;                 // more than one call in an answer
};

// What the text of the answer must be.
struct Structure {
  enum class Kind { None, JsonObject, Schema, Regex, Choice, Lark, Gbnf, Tags } kind = Kind::None;
  Json value = {};              // the schema, a list of choices, or structural tags
  std::string text = {};        // of a regex or grammar
  bool strict = false;          // a schema that cannot be honoured in whole is refused
  std::string whitespace = {};  // a regex of what may stand between the parts of JSON; empty: nothing may
  std::string field = {};       // that asked for it
};

struct Conversation {
  Json messages = Json::array();    // as the chat API writes them
  Json tools;                       // likewise; null: none
  Json deferred = Json::array();    // tools that may be called, but are not shown with the others
  Json documents;                   // null: none
  Json variables = Json::object();  // further ones of the template
  bool add_generation_prompt = true;
  bool continue_final = false;  // the last message is the beginning of the answer
  bool drop_oldest = false;     // messages, until the prompt fits
};

struct Question {
  std::string model;  // as it was asked for
  // One of the two.
  std::vector<RawPrompt> prompts;
  std::optional<Conversation> conversation;
  bool add_bos = true;                     // to a prompt that is text
  std::optional<int64_t> truncate_prompt;  // only so many of its last tokens

  ToolChoice tool_choice;
  Thinking thinking;
  Structure structure;

  SamplingParams sampling;  // its seed once one is drawn
  std::optional<uint64_t> seed;
  int n = 1;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stops;
  std::vector<Token> stop_tokens;
  bool include_stop = false;  // the stop string is part of the answer
  bool show_control = false;  // control tokens are part of the text

  bool echo = false;
  int logprobs = -1, prompt_logprobs = -1;  // alternatives; below 0: none are told
  bool return_token_ids = false, tokens_as_ids = false;
  bool timings = false;

  bool stream = false;
  bool stream_usage = false, continuous_usage = false;
  int priority = 0;
  bool reuse = true;                 // of what was read before
  std::string affinity;              // a hint of the client which requests belong together, for the log
  std::vector<std::string> skipped;  // types of tools, items and blocks that were left out, for the log
};

class Reply;
struct ApiOptions;

// Fields that several APIs have by the same name.
void read_sampling(Body& body, Question& q);                          // temperature ... logit_bias, seed
void read_stops(Body& body, Question& q, const ApiOptions& options);  // stop, stop_token_ids, ignore_eos ...
void read_choices(Body& body, Question& q, const ApiOptions& options);  // n, best_of, logprobs of prompts
void read_stream(Body& body, Question& q);                              // stream, stream_options
void read_structure(Body& body, Question& q);  // response_format, structured_outputs, guided_*, grammar ...
void read_hints(Body& body, Question& q);      // priority, cache_salt, cache_prompt, prompt_cache_key
void read_effort(Body& body, const char* field, Question& q);  // none, minimal, low, medium, high ...
void read_thinking(Body& body, Question& q);  // budgets, chat_template_kwargs; after the effort
void read_schema(Body& format, const char* field, Question& q);  // {schema, strict} into the structure

// Notes that something of this type, which only the vendor of the API can run, is left out.
void skip(Question& q, const std::string& type);
void log_skipped(const Question& q, Reply& reply);

// Sets the structure; a second one is a fault.
void set_structure(Body& body, const std::string& field, Structure structure, Question& q);

// Limits of tools, and whether the choice names some that are there; tools that are none become null.  Right
// behind both, since what follows looks tools up.
void check_tools(Body& body, Question& q, const ApiOptions& options);

// A tool as templates take it; without a description or parameters where there are none.
Json function_tool(const std::string& name, const Json* description, const Json* parameters);

}  // namespace invar::server
