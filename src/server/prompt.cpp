#include "server/prompt.h"

#include <algorithm>

#include "server/dialect.h"
#include "text/normalize.h"

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

LateSystem late_system(const std::string& name) {
  return name == "hoist" ? LateSystem::Hoist : name == "reject" ? LateSystem::Reject : LateSystem::Inline;
}

std::string_view without_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

// The tools of the prompt, and the others that may be called.
Json callable(const Json& shown, const Json& deferred) {
  Json tools = shown.is_array() ? shown : Json::array();
  for (const Json& tool : deferred) tools.push_back(tool);
  return tools.empty() ? Json() : tools;
}

// The opening as it goes behind the prompt: where that opens a thought already, it is opened once.
Result<std::string> opening_behind(const Chat& chat, const ChatInput& input, const AnswerFormat& format,
                                   std::string opening) {
  const std::string prompt = TRY(chat.prompt_text(input));
  if (!opens_thought(format, prompt)) return opening;
  opening.erase(0, format.think_open.size());
  if (prompt.ends_with('\n') && opening.starts_with('\n')) opening.erase(0, 1);
  return opening;
}

std::optional<ApiError> tokenize_messages(const Served& served, const Question& q, Json asked,
                                          Tokenized& out) {
  const Conversation& c = *q.conversation;
  const AnswerFormat& format = served.dialect->format;
  if (asked.empty()) asked.push_back({{"role", "user"}, {"content", ""}});  // clients probe with nothing
  NormalizeOptions options;
  options.late_system = late_system(served.options.system_midway);
  options.merge_users = served.dialect->alternates;
  options.keep_headers = served.options.keep_headers;
  auto messages = normalize_messages(asked, options);
  if (!messages) return api_error(messages.error());
  auto tools = normalize_tools(c.tools), deferred = normalize_tools(c.deferred);
  if (!tools) return api_error(tools.error());
  if (!deferred) return api_error(deferred.error());
  ChatInput input;
  input.messages = messages.take();
  input.tools = *tools;
  input.documents = c.documents;
  input.options = c.variables;
  input.add_generation_prompt = c.add_generation_prompt;
  std::optional<bool> thinks = q.thinking.on;
  const auto opening = continues(input.messages);
  if (c.continue_final && !opening)
    return ApiError{400,
                    "continue_final_message: expected a last message of the assistant",
                    {},
                    "continue_final_message"};
  if (opening) {
    input.messages.erase(input.messages.size() - 1);
    input.add_generation_prompt = true;
    out.opening = *opening;
    thinks = format.thinks() && opening->starts_with(format.think_open);
  }
  if (thinks) input.options["enable_thinking"] = *thinks;
  if (!q.thinking.effort.empty() && !input.options.contains("reasoning_effort"))
    input.options["reasoning_effort"] = q.thinking.effort;
  const bool thought_begun = opening && *thinks;
  Result<std::string> behind = out.opening;
  if (thought_begun) behind = opening_behind(served.chat, input, format, out.opening);
  if (!behind) return api_error(behind.error());
  auto rendered = served.chat.rendered(input, *behind);
  if (!rendered) return api_error(rendered.error());
  out.tools = callable(*tools, *deferred);
  out.opens_thought = thought_begun ? out.opening.find(format.think_close) == std::string::npos
                                    : opens_thought(format, rendered->text);
  out.may_think = format.thinks() && !out.opens_thought && thinks.value_or(true) && out.opening.empty() &&
                  !without_space(rendered->text).ends_with(format.think_close);
  out.prompts.push_back(std::move(rendered->tokens));
  return {};
}

bool is_system(const Json& message) { return message["role"] == "system" || message["role"] == "developer"; }

// The messages from `start` on, and what the system said before.
Json without_older(const Json& messages, size_t start) {
  Json kept = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    if (i >= start || is_system(messages[i])) kept.push_back(messages[i]);
  return kept;
}

// As few of the oldest messages are dropped as it takes; results of calls are dropped with their calls.
std::optional<ApiError> tokenize_chat(const Served& served, const Question& q, Tokenized& out) {
  const Json& messages = q.conversation->messages;
  auto fault = tokenize_messages(served, q, messages, out);
  auto fits = [&](const Tokenized& t) { return int64_t(t.prompts[0].size()) < served.service.context(); };
  if (fault || !q.conversation->drop_oldest || fits(out)) return fault;
  std::vector<size_t> starts;
  for (size_t i = 0; i < messages.size(); ++i)
    if (!is_system(messages[i]) && messages[i]["role"] != "tool") starts.push_back(i);
  if (starts.size() < 2) return {};
  size_t first = 1, last = starts.size() - 1;
  while (first < last) {
    const size_t middle = (first + last) / 2;
    Tokenized shorter;
    if ((fault = tokenize_messages(served, q, without_older(messages, starts[middle]), shorter)))
      return fault;
    if (fits(shorter)) last = middle;
    else first = middle + 1;
  }
  out = {};
  return tokenize_messages(served, q, without_older(messages, starts[last]), out);
}

}  // namespace

std::optional<ApiError> tokenize(const Served& served, const Question& q, Tokenized& out) {
  return q.conversation ? tokenize_chat(served, q, out) : tokenize_raw(served, q, out);
}

std::optional<ApiError> check_length(const Served& served, Family family, int64_t prompt,
                                     std::optional<int64_t>& most) {
  const int64_t context = served.service.context();
  const int64_t wanted = std::min(most.value_or(1), int64_t(1) << 40);
  ApiError error;
  const std::string p = std::to_string(prompt), n = std::to_string(context), g = std::to_string(wanted);
  const bool alone = prompt + std::min<int64_t>(wanted, 1) > context;
  const int64_t longest = std::min(context, prompt - 1);  // one that leaves room for an answer
  if (!alone && prompt + wanted <= context) return {};
  if (!alone && served.options.clamp_max_tokens) {
    most.reset();  // ends where the context does
    return {};
  }
  if (family == Family::Anthropic) {
    error.message = alone ? "prompt is too long: " + p + " tokens > " + std::to_string(longest) + " maximum"
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
