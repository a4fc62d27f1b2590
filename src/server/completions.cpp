// /v1/completions: raw prompts, several at once, and log-probabilities of prompt and answer.
#include <algorithm>

#include "server/ask.h"
#include "server/completions_writer.h"
#include "server/parse.h"

namespace invar::server {
namespace {

// A text, ids, or a list of either.
void read_prompts(Body& body, Question& q, const ApiOptions& options) {
  const Json* prompt = body.any("prompt");
  if (!prompt) return body.wrong("prompt", "expected a prompt, found none");
  auto ids = [&](const Json& list) {
    std::vector<Token> tokens;
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
        body.wrong("prompt", "expected token ids, found " + kind_of(id));
        break;
      }
      tokens.push_back(id.get<Token>());
    }
    return tokens;
  };
  if (prompt->is_string()) q.prompts.push_back(prompt->get<std::string>());
  else if (!prompt->is_array() || prompt->empty())
    return body.wrong("prompt", "expected a text, token ids, or a list of either; found " + kind_of(*prompt));
  else if (prompt->front().is_number()) q.prompts.push_back(ids(*prompt));
  else
    for (const Json& one : *prompt) {
      if (one.is_string()) q.prompts.push_back(one.get<std::string>());
      else if (one.is_array()) q.prompts.push_back(ids(one));
      else return body.wrong("prompt", "expected texts or lists of token ids, found " + kind_of(one));
    }
  if (q.prompts.size() > size_t(options.most_prompts))
    body.wrong("prompt", "expected at most " + std::to_string(options.most_prompts) + " prompts, found " +
                             std::to_string(q.prompts.size()));
}

// Prefix and suffix in the order that models with these tokens were trained on.
void read_suffix(Body& body, Question& q, const Tokenizer& tokenizer) {
  const auto suffix = body.text("suffix");
  if (!suffix || suffix->empty()) return;
  const auto before = tokenizer.find("<|fim_prefix|>"), behind = tokenizer.find("<|fim_suffix|>"),
             middle = tokenizer.find("<|fim_middle|>");
  if (!before || !behind || !middle) return body.unsupported("suffix", "the model has no tokens for it");
  for (RawPrompt& prompt : q.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    if (!text) return body.unsupported("suffix", "expected a prompt that is text");
    const auto head = tokenizer.encode(*text, AddedTokens::User),
               tail = tokenizer.encode(*suffix, AddedTokens::User);
    if (!head || !tail) return body.wrong("suffix", "cannot be tokenized");
    std::vector<Token> ids = {*before};
    ids.insert(ids.end(), head->begin(), head->end());
    ids.push_back(*behind);
    ids.insert(ids.end(), tail->begin(), tail->end());
    ids.push_back(*middle);
    prompt = std::move(ids);
  }
}

}  // namespace

std::optional<ApiError> read_completions(const Json& json, const Served& served, Question& q) {
  std::optional<ApiError> fault;
  Body body(json, fault);
  constexpr int64_t kDefaultTokens = 16;  // OpenAI's
  q.model = body.text("model").value_or("");
  read_sampling(body, q);
  read_stops(body, q, served.options);
  read_choices(body, q, served.options);
  read_stream(body, q);
  read_structure(body, q);
  read_hints(body, q);
  q.add_bos = body.flag("add_special_tokens").value_or(true);
  q.truncate_prompt = body.integer("truncate_prompt_tokens", 1);
  q.echo = body.flag("echo").value_or(false);
  q.logprobs = int(body.integer("logprobs", 0, served.options.most_logprobs).value_or(-1));
  const auto most = body.integer("max_tokens", 0), predict = body.integer("n_predict", -1);
  q.max_tokens = most ? most : predict ? predict : kDefaultTokens;
  if (q.max_tokens == -1) q.max_tokens.reset();
  read_prompts(body, q, served.options);
  read_suffix(body, q, served.chat.tokenizer());
  if (q.max_tokens == 0 && !q.echo) body.wrong("max_tokens", "expected at least 1 without echo, found 0");
  return fault;
}

void add_completions(Router& router, Served& served) {
  router.add("POST", "/v1/completions", On::Text,
             [&served](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
               Question q = new_question(served);
               auto json = read_body(request, *reply);
               if (!json) return;
               if (auto fault = read_completions(*json, served, q))
                 return void(refuse(*reply, request, *fault));
               auto writer = std::make_unique<CompletionsWriter>(
                   q.prompts, openai_form(q, served.chat.tokenizer(), served.model.version),
                   q.truncate_prompt);
               ask(served, request, reply, std::move(q), std::move(writer));
             });
}

}  // namespace invar::server
