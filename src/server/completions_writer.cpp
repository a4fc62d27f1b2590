#include "server/completions_writer.h"

#include <algorithm>

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

}  // namespace

std::string CompletionsWriter::whole(const Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    Sent nothing;
    choices.push_back(part(answer, i, answer.choices[i].joined(Block::Kind::Text), nothing));
  }
  Json j = frame(answer, names_.whole, std::move(choices));
  add_totals(j, answer);
  return json_text(j);
}

void CompletionsWriter::begin(const Answer& answer, const Write&) { sent_.resize(answer.choices.size()); }

void CompletionsWriter::chunk(const Answer& answer, size_t i, std::string_view text, const Write& write) {
  Json j = frame(answer, names_.chunk, Json::array({part(answer, i, text, sent_[i])}));
  if (form_.stream_usage) j["usage"] = form_.continuous_usage ? openai_usage(answer.usage()) : Json();
  write(sse_event({}, json_text(j)));
}

void CompletionsWriter::add(const Answer& answer, size_t i, const Block& block, std::string_view text,
                            const Write& write) {
  if (block.kind == Block::Kind::Text) chunk(answer, i, text, write);
}

void CompletionsWriter::end_choice(const Answer& answer, size_t i, const Write& write) {
  chunk(answer, i, {}, write);
}

std::string CompletionsWriter::prompt_text(const Answer& answer, size_t i) const {
  const size_t prompt = i / (answer.choices.size() / answer.prompts.size());
  const std::vector<Token>& tokens = answer.prompts[prompt].tokens;
  const auto* text = std::get_if<std::string>(&prompts_[prompt]);
  return text && int64_t(tokens.size()) < most_prompt_ ? *text : decode(form_.tokenizer, tokens);
}

// What of a choice was not sent before, with this text of it.
Json CompletionsWriter::part(const Answer& answer, size_t i, std::string_view text, Sent& sent) const {
  const Choice& choice = answer.choices[i];
  const Prompt& prompt = answer.prompt_of(i);
  const bool with_prompt = form_.echo && !sent.prompt;
  const std::string before = with_prompt ? prompt_text(answer, i) : std::string();
  Json j = {{"index", i}, {"text", before + std::string(text)}, {"logprobs", nullptr}};
  Json ids = Json::array();
  LogprobLists lists(form_, sent.offset);
  if (with_prompt && form_.logprobs >= 0)
    for (size_t t = 0; t < prompt.tokens.size(); ++t)
      lists.add(prompt.tokens[t], t > 0 && t <= prompt.logprobs.size() ? &prompt.logprobs[t - 1] : nullptr);
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

}  // namespace invar::server
