// /v1/completions: raw prompts, several at once, and log-probabilities of prompt and answer.
#include <algorithm>

#include "server/ask.h"
#include "server/openai_format.h"
#include "server/server.h"
#include "server/sse.h"

namespace invar::server {
namespace {

int64_t characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// The four lists of the completions API, token by token.
class LogprobLists {
 public:
  LogprobLists(const OpenAiForm& form, int64_t offset) : form_(form), offset_(offset) {}

  void add(Token token, const TokenLogprob* logprob) {
    const std::string text = token_text(form_.tokenizer, token, form_.tokens_as_ids);
    tokens_.push_back(text);
    offsets_.push_back(offset_);
    offset_ += characters(token_text(form_.tokenizer, token, false));
    values_.push_back(logprob ? Json(logprob->value) : Json());
    if (!logprob) return top_.push_back(nullptr);
    Json top = Json::object();
    for (size_t i = 0; i < logprob->best.size() && i < size_t(form_.logprobs); ++i)
      top[token_text(form_.tokenizer, logprob->best[i].first, form_.tokens_as_ids)] = logprob->best[i].second;
    top[text] = logprob->value;  // of tokens with one text the one that was said counts
    top_.push_back(std::move(top));
  }
  Json take() {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(values_)},
            {"top_logprobs", std::move(top_)},
            {"text_offset", std::move(offsets_)}};
  }
  int64_t offset() const { return offset_; }

 private:
  const OpenAiForm& form_;
  int64_t offset_;
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(), offsets_ = Json::array();
};

class CompletionsWriter : public Writer {
 public:
  CompletionsWriter(const Question& q, OpenAiForm form) : form_(std::move(form)), prompts_(q.prompts) {}

  std::string whole(const Answer& answer) override {
    Json choices = Json::array();
    for (size_t i = 0; i < answer.choices.size(); ++i) {
      Sent nothing;
      choices.push_back(part(answer, i, answer.choices[i].joined(Block::Kind::Text), nothing));
    }
    Json j = frame(answer, std::move(choices));
    j["seed"] = answer.seed;
    j["usage"] = openai_usage(answer.usage());
    if (form_.timings) j["timings"] = timings_json(answer.first);
    return json_text(j);
  }

  void begin(const Answer& answer, const Write&) override { sent_.resize(answer.choices.size()); }

  void add(const Answer& answer, size_t i, const Block& block, std::string_view text,
           const Write& write) override {
    if (block.kind != Block::Kind::Text) return;
    Json j = frame(answer, Json::array({part(answer, i, text, sent_[i])}));
    if (form_.stream_usage) j["usage"] = form_.continuous_usage ? openai_usage(answer.usage()) : Json();
    write(sse_event({}, json_text(j)));
  }

  void end_choice(const Answer& answer, size_t i, const Write& write) override {
    Json j = frame(answer, Json::array({part(answer, i, "", sent_[i])}));
    if (form_.stream_usage) j["usage"] = form_.continuous_usage ? openai_usage(answer.usage()) : Json();
    write(sse_event({}, json_text(j)));
  }

  void end(const Answer& answer, const Write& write) override {
    if (form_.stream_usage || form_.timings) {
      Json j = frame(answer, Json::array());
      j["seed"] = answer.seed;
      j["usage"] = openai_usage(answer.usage());
      if (form_.timings) j["timings"] = timings_json(answer.first);
      write(sse_event({}, json_text(j)));
    }
    write(kSseDone);
  }

  void heartbeat(const Answer&, bool, const Write& write) override { write(sse_comment("hb")); }

  bool fail(const Answer& answer, const ApiError& error, const Write& write) override {
    if (answer.usage().answer == 0) return false;
    write(openai_error_event(error));
    return true;
  }

 private:
  struct Sent {  // of one choice
    bool prompt = false, stopped = false;
    size_t tokens = 0;
    int64_t offset = 0;
  };

  Json frame(const Answer& answer, Json choices) const {
    return {{"id", "cmpl-" + answer.id},
            {"object", "text_completion"},
            {"created", answer.created},
            {"model", answer.model},
            {"system_fingerprint", form_.fingerprint},
            {"choices", std::move(choices)}};
  }

  std::string prompt_text(const Answer& answer, size_t i) const {
    const size_t prompt = i / (answer.choices.size() / answer.prompts.size());
    if (const auto* text = std::get_if<std::string>(&prompts_[prompt])) return *text;
    return decode(form_.tokenizer, answer.prompts[prompt].tokens);
  }

  // What of a choice was not sent before, with this text of it.
  Json part(const Answer& answer, size_t i, std::string_view text, Sent& sent) const {
    const Choice& choice = answer.choices[i];
    const Prompt& prompt = answer.prompt_of(i);
    const bool with_prompt = form_.echo && !sent.prompt;
    const std::string before = with_prompt ? prompt_text(answer, i) : std::string();
    Json j = {{"index", i}, {"text", before + std::string(text)}, {"logprobs", nullptr}};
    Json ids = Json::array();
    LogprobLists lists(form_, sent.offset);
    if (with_prompt && form_.logprobs >= 0)
      for (size_t t = 0; t < prompt.tokens.size(); ++t)
        lists.add(prompt.tokens[t], t > 0 ? &prompt.logprobs[t - 1] : nullptr);
    auto say = [&](const Said& said) {
      ids.push_back(said.token);
      if (form_.logprobs >= 0) lists.add(said.token, said.logprob ? &*said.logprob : nullptr);
    };
    for (; sent.tokens < choice.tokens.size(); ++sent.tokens) say(choice.tokens[sent.tokens]);
    if (choice.stopped && !std::exchange(sent.stopped, true)) say(*choice.stopped);
    sent.offset = lists.offset();
    if (form_.logprobs >= 0) j["logprobs"] = lists.take();
    j["finish_reason"] = choice.ending ? Json(finish_reason(choice)) : Json();
    j["stop_reason"] = choice.ending ? stop_reason(choice) : Json();
    if (form_.prompt_logprobs >= 0 && !sent.prompt)
      j["prompt_logprobs"] = prompt_logprobs_json(prompt, form_.prompt_logprobs, form_.tokenizer);
    if (form_.return_token_ids) {
      if (!sent.prompt) j["prompt_token_ids"] = prompt.tokens;
      j["token_ids"] = std::move(ids);
    }
    sent.prompt = true;
    return j;
  }

  const OpenAiForm form_;
  const std::vector<RawPrompt> prompts_;
  std::vector<Sent> sent_;
};

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
  read_prompts(body, q, served.options);
  read_suffix(body, q, served.chat.tokenizer());
  read_sampling(body, q);
  read_stops(body, q, served.options);
  read_choices(body, q, served.options);
  read_stream(body, q);
  read_structure(body, q);
  read_hints(body, q);
  q.add_bos = body.flag("add_special_tokens").value_or(true);
  q.echo = body.flag("echo").value_or(false);
  q.logprobs = int(body.integer("logprobs", 0, served.options.most_logprobs).value_or(-1));
  const auto most = body.integer("max_tokens", 0), predict = body.integer("n_predict", -1);
  q.max_tokens = most ? most : predict ? predict : kDefaultTokens;
  if (q.max_tokens == -1) q.max_tokens.reset();
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
                   q, openai_form(q, served.chat.tokenizer(), served.model.version));
               ask(served, request, reply, std::move(q), std::move(writer));
             });
}

}  // namespace invar::server
