// The chat template of a model: messages, tools and options to the text of a prompt.  Turning that
// text into tokens is the tokenizer's part (Tokenizer::encode_marked).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"
#include "text/tokenizer.h"

struct tk_template;

namespace invar {

// What a request says; all strings in it come from outside.
struct ChatInput {
  Json messages = Json::array();
  Json tools;                     // null: none
  Json documents;                 // null: none
  Json options = Json::object();  // further variables, for example enable_thinking
  bool add_generation_prompt = true;
};

// Messages as `transformers` hands them to a template: keys without a value are dropped, the reasoning
// is found under both of its names, arguments of tool calls are objects and not JSON in a string.
Json prepare_messages(Json messages);

// `value` with every string in it, keys too, marked as text (Tokenizer::mark_control).
Result<Json> mark_control_text(const Json& value, const Tokenizer& tokenizer);

// All variables of a template.  With `mark` the input's strings are marked; the tokenizer gives
// bos_token and eos_token.
Result<Json> chat_variables(const ChatInput& input, const Tokenizer& tokenizer, bool mark = true);

class ChatTemplate {  // immutable: any number of threads may use it
 public:
  static Result<ChatTemplate> make(std::string_view source);

  // `variables` is an object; `now_unix` is what strftime_now tells, as local time.  An error of code
  // BadRequest is the request's fault: often the template's own words for what it refuses.
  Result<std::string> render(const Json& variables, int64_t now_unix) const;

  // The same for variables as JSON text, which keeps integers of up to 128 bits.
  Result<std::string> render_text(std::string_view variables, int64_t now_unix) const;

 private:
  struct Free {
    void operator()(tk_template* t) const;
  };

  ChatTemplate() = default;

  std::unique_ptr<tk_template, Free> kit_;
};

}  // namespace invar
