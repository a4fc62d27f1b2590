#include "server/openai_format.h"

#include <algorithm>

#include "server/sse.h"

namespace invar::server {

OpenAiForm openai_form(const Question& q, const Tokenizer& tokenizer, const std::string& version) {
  return {tokenizer,          "invar-" + version, q.logprobs, q.prompt_logprobs, q.echo,
          q.return_token_ids, q.tokens_as_ids,    q.timings,  q.stream_usage,    q.continuous_usage};
}

Json openai_usage(const Usage& u) {
  return {{"prompt_tokens", u.prompt},
          {"completion_tokens", u.answer},
          {"total_tokens", u.prompt + u.answer},
          {"prompt_tokens_details", {{"cached_tokens", u.cached}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", u.thought},
            {"accepted_prediction_tokens", 0},
            {"rejected_prediction_tokens", 0}}}};
}

Json timings_json(const TokenUsage& u) {
  auto rate = [](int64_t n, double s) { return s > 0 ? double(n) / s : 0; };
  return {{"cache_n", u.cached_tokens},
          {"prompt_n", u.prompt_rows},
          {"prompt_ms", u.prompt_s * 1e3},
          {"prompt_per_second", rate(u.prompt_rows, u.prompt_s)},
          {"predicted_n", u.answer_tokens},
          {"predicted_ms", u.answer_s * 1e3},
          {"predicted_per_second", rate(u.answer_tokens, u.answer_s)}};
}

const char* finish_reason(const Choice& choice) {
  switch (*choice.ending) {
    case Ending::Length:
    case Ending::Window:
      return "length";
    default:
      return choice.has_calls() ? "tool_calls" : "stop";
  }
}

Json stop_reason(const Choice& choice) {
  if (choice.ending == Ending::StopString) return choice.stop_string;
  if (choice.ending == Ending::StopToken) return choice.stop_token;
  return nullptr;
}

std::string token_text(const Tokenizer& tokenizer, Token token, bool as_ids) {
  if (as_ids) return "token_id:" + std::to_string(token);
  Utf8Stream bytes;
  std::string text = bytes.push(tokenizer.piece(token));
  return text + bytes.finish();
}

Json bytes_of(const Tokenizer& tokenizer, Token token) {
  Json bytes = Json::array();
  for (char c : tokenizer.piece(token)) bytes.push_back(uint8_t(c));
  return bytes;
}

Json prompt_logprobs_json(const Prompt& prompt, int best, const Tokenizer& tokenizer) {
  Json list = Json::array();
  if (!prompt.tokens.empty()) list.push_back(nullptr);
  for (const TokenLogprob& said : prompt.logprobs) {
    Json tokens = Json::object();
    auto add = [&](Token token, float value, int64_t rank) {
      tokens[std::to_string(token)] = {
          {"logprob", value}, {"rank", rank}, {"decoded_token", token_text(tokenizer, token, false)}};
    };
    for (size_t i = 0; i < said.best.size() && i < size_t(best); ++i)
      add(said.best[i].first, said.best[i].second, int64_t(i) + 1);
    add(said.token, said.value, said.rank);
    list.push_back(std::move(tokens));
  }
  return list;
}

Json OpenAiWriter::frame(const Answer& answer, const char* object, Json choices) const {
  return {{"id", names_.id + answer.id},
          {"object", object},
          {"created", answer.created},
          {"model", answer.model},
          {"system_fingerprint", form_.fingerprint},
          {"choices", std::move(choices)}};
}

void OpenAiWriter::add_totals(Json& to, const Answer& answer) const {
  to["seed"] = answer.seed;
  to["usage"] = openai_usage(answer.usage());
  if (form_.timings) to["timings"] = timings_json(answer.first);
}

void OpenAiWriter::end(const Answer& answer, const Write& write) {
  if (form_.stream_usage || form_.timings) {
    Json last = frame(answer, names_.chunk, Json::array());
    add_totals(last, answer);
    write(sse_event({}, json_text(last)));
  }
  write(kSseDone);
}

void OpenAiWriter::heartbeat(const Answer&, bool, const Write& write) { write(sse_comment("hb")); }

// Before the first token the connection is cut instead: clients then ask again.
bool OpenAiWriter::fail(const Answer& answer, const ApiError& error, const Write& write) {
  if (answer.usage().answer == 0) return false;
  write(sse_event({}, error_body(Family::OpenAi, error, {})));
  return true;
}

}  // namespace invar::server
