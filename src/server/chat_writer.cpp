#include "server/chat_writer.h"

#include <algorithm>

#include "server/sse.h"

namespace invar::server {
namespace {

Json call_json(const Block& call) {
  return {{"id", "call_" + call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.text}}}};
}

Json ids_of(std::span<const Said> said) {
  Json ids = Json::array();
  for (const Said& s : said) ids.push_back(s.token);
  return ids;
}

}  // namespace

void ChatWriter::add_reasoning(Json& to, std::string_view text) const {
  const std::string& field = options_.reasoning_field;
  if (field != "reasoning") to["reasoning_content"] = text;
  if (field != "reasoning_content") to["reasoning"] = text;
}

const char* ChatWriter::reason(const Choice& choice) const {
  const char* reason = finish_reason(choice);
  return options_.legacy_call && reason == std::string_view("tool_calls") ? "function_call" : reason;
}

Json ChatWriter::logprobs(std::span<const Said> said) const {
  auto entry = [&](Token token, float value) -> Json {
    return {{"token", token_text(form_.tokenizer, token, form_.tokens_as_ids)},
            {"logprob", value},
            {"bytes", bytes_of(form_.tokenizer, token)}};
  };
  Json content = Json::array();
  for (const Said& s : said) {
    if (!s.logprob) continue;
    Json one = entry(s.token, s.logprob->value);
    one["top_logprobs"] = Json::array();
    for (size_t i = 0; i < s.logprob->best.size() && i < size_t(form_.logprobs); ++i)
      one["top_logprobs"].push_back(entry(s.logprob->best[i].first, s.logprob->best[i].second));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json ChatWriter::message(const Choice& choice) const {
  Json calls = Json::array();
  std::string text;
  const bool merged = options_.reasoning_field == "content";
  for (const Block& b : choice.blocks) {
    if (b.kind == Block::Kind::Call && b.complete) calls.push_back(call_json(b));
    if (b.kind == Block::Kind::Text || (merged && b.kind == Block::Kind::Thought)) text += b.text;
  }
  const std::string thought = merged ? std::string() : choice.joined(Block::Kind::Thought);
  Json m = {{"role", "assistant"}, {"content", text.empty() && !calls.empty() ? Json() : Json(text)}};
  if (!thought.empty()) add_reasoning(m, thought);
  if (!calls.empty() && options_.legacy_call) m["function_call"] = calls[0]["function"];
  else if (!calls.empty()) m["tool_calls"] = std::move(calls);
  m["refusal"] = nullptr;
  m["annotations"] = Json::array();
  return m;
}

std::string ChatWriter::whole(const Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& c = answer.choices[i];
    Json one = {{"index", i},
                {"message", message(c)},
                {"logprobs", form_.logprobs >= 0 ? logprobs(c.tokens) : Json()},
                {"finish_reason", reason(c)},
                {"stop_reason", stop_reason(c)}};
    if (form_.return_token_ids) one["token_ids"] = ids_of(c.tokens);
    choices.push_back(std::move(one));
  }
  Json j = frame(answer, names_.whole, std::move(choices));
  add_totals(j, answer);
  const Prompt& prompt = answer.prompts[0];
  if (form_.prompt_logprobs >= 0)
    j["prompt_logprobs"] = prompt_logprobs_json(prompt, form_.prompt_logprobs, form_.tokenizer);
  if (form_.return_token_ids) j["prompt_token_ids"] = prompt.tokens;
  return json_text(j);
}

void ChatWriter::begin(const Answer& answer, const Write&) { sent_.resize(answer.choices.size()); }

// One chunk: the delta, and what was not sent before of the choice's tokens; at its end also how it ended.
void ChatWriter::chunk(const Answer& answer, size_t i, Json delta, const Write& write) {
  const Choice& c = answer.choices[i];
  Sent& sent = sent_[i];
  Json j_delta = Json::object();
  const bool first = !std::exchange(sent.any, true);
  if (first) j_delta["role"] = "assistant";
  if (first && c.ending && delta.empty()) j_delta["content"] = "";
  j_delta.update(delta);
  const std::span<const Said> said = std::span(c.tokens).subspan(sent.tokens);
  sent.tokens = c.tokens.size();
  Json one = {{"index", i},
              {"delta", std::move(j_delta)},
              {"logprobs", form_.logprobs >= 0 ? logprobs(said) : Json()},
              {"finish_reason", c.ending ? Json(reason(c)) : Json()}};
  if (c.ending) one["stop_reason"] = stop_reason(c);
  if (form_.return_token_ids) one["token_ids"] = ids_of(said);
  Json j = frame(answer, names_.chunk, Json::array({std::move(one)}));
  if (first && i == 0 && form_.return_token_ids) j["prompt_token_ids"] = answer.prompts[0].tokens;
  if (first && i == 0 && form_.prompt_logprobs >= 0)
    j["prompt_logprobs"] = prompt_logprobs_json(answer.prompts[0], form_.prompt_logprobs, form_.tokenizer);
  if (form_.stream_usage) j["usage"] = form_.continuous_usage ? openai_usage(answer.usage()) : Json();
  write(sse_event({}, json_text(j)));
}

void ChatWriter::open(const Answer& answer, size_t i, const Block& block, const Write& write) {
  if (block.kind != Block::Kind::Call) return;
  Json call = call_json(block);
  call["function"]["arguments"] = "";
  if (options_.legacy_call) return chunk(answer, i, {{"function_call", call["function"]}}, write);
  Json indexed = {{"index", sent_[i].calls++}};
  indexed.update(call);
  chunk(answer, i, {{"tool_calls", Json::array({std::move(indexed)})}}, write);
}

void ChatWriter::add(const Answer& answer, size_t i, const Block& block, std::string_view text,
                     const Write& write) {
  Json delta = Json::object();
  if (block.kind == Block::Kind::Call && options_.legacy_call) {
    delta["function_call"] = {{"arguments", text}};
  } else if (block.kind == Block::Kind::Call) {
    delta["tool_calls"] = Json::array({{{"index", sent_[i].calls - 1}, {"function", {{"arguments", text}}}}});
  } else if (block.kind == Block::Kind::Thought && options_.reasoning_field != "content") {
    add_reasoning(delta, text);
  } else {
    delta["content"] = text;
  }
  chunk(answer, i, std::move(delta), write);
}

void ChatWriter::end_choice(const Answer& answer, size_t i, const Write& write) {
  chunk(answer, i, Json::object(), write);
}

}  // namespace invar::server
