#include "server/prompt.h"

namespace invar::server {
namespace {

std::optional<ApiError> tokenize_raw(const Served& served, const Question& q, Tokenized& out) {
  const Chat& chat = served.chat;
  for (const RawPrompt& prompt : q.prompts) {
    std::vector<Token> tokens;
    if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
      tokens = *ids;
    } else {
      const std::string& text = std::get<std::string>(prompt);
      auto encoded = q.add_bos ? chat.raw_prompt(text) : chat.tokenizer().encode(text, AddedTokens::User);
      if (!encoded) return api_error(encoded.error());
      tokens = encoded.take();
    }
    if (q.truncate_prompt && int64_t(tokens.size()) > *q.truncate_prompt)
      tokens.erase(tokens.begin(), tokens.end() - *q.truncate_prompt);
    if (tokens.empty()) {
      ApiError error{400, "prompt: expected at least one token, found none"};
      error.param = "prompt";
      return error;
    }
    out.prompts.push_back(std::move(tokens));
  }
  return {};
}

std::optional<ApiError> tokenize_chat(const Served& served, const Question& q, Tokenized& out) {
  const Conversation& c = *q.conversation;
  ChatInput input;
  input.messages = c.messages;
  input.tools = c.tools;
  input.documents = c.documents;
  input.options = c.variables;
  if (q.thinking.on) input.options["enable_thinking"] = *q.thinking.on;
  if (!q.thinking.effort.empty() && !input.options.contains("reasoning_effort"))
    input.options["reasoning_effort"] = q.thinking.effort;
  input.add_generation_prompt = c.add_generation_prompt;
  auto tokens = served.chat.prompt(input);
  if (!tokens) return api_error(tokens.error());
  out.prompts.push_back(tokens.take());
  return {};
}

}  // namespace

std::optional<ApiError> tokenize(const Served& served, const Question& q, Tokenized& out) {
  return q.conversation ? tokenize_chat(served, q, out) : tokenize_raw(served, q, out);
}

std::optional<ApiError> check_length(const Served& served, Family family, int64_t prompt,
                                     std::optional<int64_t>& most) {
  const int64_t context = served.service.context();
  const int64_t wanted = most.value_or(1);
  ApiError error;
  error.never_retry = true;
  const std::string p = std::to_string(prompt), n = std::to_string(context), g = std::to_string(wanted);
  const bool alone = prompt + std::min<int64_t>(wanted, 1) > context;
  if (!alone && prompt + wanted <= context) return {};
  if (!alone && served.options.clamp_max_tokens) {
    most.reset();  // ends where the context does
    return {};
  }
  if (family == Family::Anthropic) {
    error.message = alone ? "prompt is too long: " + p + " tokens > " + n + " maximum"
                          : "input length and `max_tokens` exceed context limit: " + p + " + " + g + " > " +
                                n + ", decrease input length or `max_tokens` and try again";
  } else {
    error.code = "context_length_exceeded";
    error.message = "This model's maximum context length is " + n + " tokens. However, you requested " +
                    std::to_string(prompt + wanted) + " tokens (" + p + " in the prompt, " + g +
                    " for the answer). Please reduce the length of either one.";
  }
  return error;
}

}  // namespace invar::server
