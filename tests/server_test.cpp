// What clients of the four APIs get from the real server: equal answers, log-probabilities, errors, signs of
// life, history, reuse.
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "base/clock.h"
#include "decode/log_probability.h"
#include "engine/model_runner.h"
#include "server/responses_writer.h"
#include "serving.h"

namespace invar {
namespace {

std::string joined(const HttpAnswer& answer) { return std::to_string(answer.status) + " " + answer.body; }

using Serving = ServedModels;

TEST_F(Serving, EqualMeaningIsEqualTokensInEveryApi) {
  Site site(*plain_, Site::engine(*plain_));
  const std::string text = "hello there";
  const std::string prompt = "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n";
  const auto ids = plain_->chat().tokenizer().encode(prompt, AddedTokens::All);
  const Json sampled = {{"temperature", 0.9}, {"seed", 11}, {"model", "m"}};
  auto ask = [&](const char* path, Json body) {
    body.update(sampled);
    const HttpAnswer a = site.post(path, body);
    EXPECT_EQ(a.status, 200) << a.body;
    return a.json();
  };
  const Json completion = ask("/v1/completions", {{"prompt", *ids}, {"max_tokens", 12}});
  const std::string wanted = completion["choices"][0]["text"];
  EXPECT_EQ(completion["seed"], 11);
  const Json chat = ask("/v1/chat/completions", {{"messages", user(text)}, {"max_tokens", 12}});
  const Json messages = ask("/v1/messages", {{"messages", user(text)}, {"max_tokens", 12}});
  const Json responses = ask("/v1/responses", {{"input", text}, {"max_output_tokens", 12}});
  EXPECT_EQ(said_by_chat(chat)["content"], wanted);
  EXPECT_EQ(said_by_messages(messages)["content"], wanted);
  EXPECT_EQ(said_by_responses(responses)["content"], wanted);
  EXPECT_EQ(chat["usage"]["prompt_tokens"], ids->size());
  const Json counted =
      site.post("/v1/messages/count_tokens", {{"model", "m"}, {"messages", user(text)}}).json();
  EXPECT_EQ(counted["input_tokens"], ids->size());

  // Several texts are one, in each.
  Json parts = Json::array({{{"type", "text"}, {"text", "hello "}}, {{"type", "text"}, {"text", "there"}}});
  const Json asked = Json::array({{{"role", "user"}, {"content", parts}}});
  EXPECT_EQ(ask("/v1/chat/completions", {{"messages", asked}, {"max_tokens", 12}})["usage"]["prompt_tokens"],
            ids->size());
  EXPECT_EQ(ask("/v1/messages", {{"messages", asked}, {"max_tokens", 12}})["usage"], messages["usage"])
      << "of which as much is known";
  const Json in_parts = ask("/v1/messages", {{"messages", asked}, {"max_tokens", 12}});
  EXPECT_EQ(said_by_messages(in_parts)["content"], wanted);
  for (Json& part : parts) part["type"] = "input_text";
  const Json input = Json::array({{{"role", "user"}, {"content", parts}}});
  EXPECT_EQ(ask("/v1/responses", {{"input", input}, {"max_output_tokens", 12}})["usage"]["input_tokens"],
            ids->size());
}

TEST_F(Serving, ASeedIsDrawnAndToldAndRepeatsTheAnswer) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"model", "m"}, {"prompt", "?!"}, {"temperature", 3}, {"max_tokens", 20}};
  const HttpAnswer first = site.post("/v1/completions", body);
  body["seed"] = first.json()["seed"];
  EXPECT_EQ(first.header("x-seed"), json_text(first.json()["seed"]));
  const HttpAnswer again = site.post("/v1/completions", body);
  EXPECT_EQ(first.json()["choices"][0]["text"], again.json()["choices"][0]["text"]);
  body.erase("seed");
  EXPECT_NE(site.post("/v1/completions", body).json()["seed"], first.json()["seed"]);
}

TEST_F(Serving, MemoryIsToldByKind) {
  Site site(*plain_, Site::engine(*plain_));
  site.post("/v1/completions", {{"model", "m"}, {"prompt", "abc"}, {"max_tokens", 3}});
  while (site.service().statistics().finished == 0) std::this_thread::yield();  // until that step has ended
  const std::string text = site.get("/metrics").body;
  EXPECT_NE(text.find("invar_memory_allowed_bytes{model_name=\"m\",engine=\"0\"} 268435456\n"), text.npos);
  for (const MemoryKind& kind : memory_by_kind(site.service().statistics()))
    EXPECT_NE(text.find("invar_memory_bytes{model_name=\"m\",engine=\"0\",kind=\"" + std::string(kind.name) +
                        "\"} " + std::to_string(kind.bytes) + "\n"),
              text.npos)
        << kind.name << "\n"
        << text;
}

// Each part of a step takes some time, all together no more than has passed.
TEST_F(Serving, TimeIsToldByPartOfAStep) {
  const double start = steady_seconds();
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"model", "m"}, {"prompt", "abc"}, {"max_tokens", 20}, {"ignore_eos", true}};
  body["structured_outputs"] = {{"regex", "[a-z]{30}"}};
  ASSERT_EQ(site.post("/v1/completions", body).status, 200);
  while (site.service().statistics().finished == 0) std::this_thread::yield();
  const StepSeconds s = site.service().statistics().step_s;
  for (double part : {s.schedule, s.forward, s.choose, s.deliver}) EXPECT_GT(part, 0);
  EXPECT_LE(s.schedule + s.forward + s.choose + s.deliver, steady_seconds() - start);
  const std::string text = site.get("/metrics").body, of = "{model_name=\"m\",engine=\"0\",";
  for (const char* line : {"invar_step_seconds_total", "invar_thread_seconds_total"})
    EXPECT_NE(text.find("# TYPE " + std::string(line) + " counter\n"), text.npos);
  for (const char* label : {"part=\"schedule\"", "part=\"forward\"", "part=\"choose\"", "part=\"deliver\""})
    EXPECT_NE(text.find("invar_step_seconds_total" + of + label + "} "), text.npos);
  for (const char* label : {"thread=\"text\"", "thread=\"masks\""}) {
    EXPECT_NE(text.find("invar_thread_seconds_total" + of + label + "} "), text.npos);
    EXPECT_EQ(text.find("invar_thread_seconds_total" + of + label + "} 0\n"), text.npos) << label;
  }
}

TEST_F(Serving, ChoicesAndPromptsComeInOrder) {
  Site site(*plain_, Site::engine(*plain_));
  const Json body = {{"model", "m"}, {"prompt", {"a", "f"}}, {"n", 2}, {"temperature", 0}, {"max_tokens", 3}};
  const Json whole = site.post("/v1/completions", body).json();
  ASSERT_EQ(whole["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], i < 2 ? "bcd" : "ghi");
  }
  EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 2);
  Json streamed = body;
  streamed["stream"] = true;
  const Json together = assembled_completion(site.post("/v1/completions", streamed).body);
  EXPECT_EQ(sorted(together["choices"]), sorted(whole["choices"]));
}

// The requests of lm-evaluation-harness: ids in, log-probabilities of prompt and one more token back.
TEST_F(Serving, LogProbabilitiesAreThoseOfADirectPass) {
  RunnerOptions options;
  options.threads = 1;
  options.memory_bytes = 256 << 20;
  options.context = 4096;
  auto open = ModelRunner::open(plain_->file(), options);
  ASSERT_TRUE(open) << open.error().message;
  ModelRunner& runner = **open;
  Site site(*plain_, Site::engine(*plain_));
  const std::vector<std::vector<Token>> prompts = {
      {'h', 'e', 'l', 'l', 'o'}, {'x', 'y'}, {'h', 'e', 'l', 'p'}, {'z'}};
  const Json body = {{"model", "m"},  {"prompt", prompts}, {"temperature", 0}, {"max_tokens", 1},
                     {"logprobs", 1}, {"seed", 1234},      {"echo", true}};
  for (int round = 0; round < 2; ++round) {  // the second time all of it is known
    const HttpAnswer answer = site.post("/v1/completions", body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choices = answer.json()["choices"];
    ASSERT_EQ(choices.size(), prompts.size());
    for (size_t p = 0; p < prompts.size(); ++p) {
      const Json& lists = choices[p]["logprobs"];
      std::vector<Token> text = prompts[p];
      auto state = runner.new_sequence();
      std::vector<TokenLogprob> rows;
      ASSERT_TRUE(runner.forward(
          *state, text, ModelRunner::Rows::All, [&](int64_t at, std::span<const float> logits) {
            const bool last = size_t(at) + 1 == text.size();
            const Token next = last ? Token(std::max_element(logits.begin(), logits.end()) - logits.begin())
                                    : text[size_t(at) + 1];
            rows.push_back(log_probabilities(logits, next, 1));
            return true;
          }));
      ASSERT_EQ(lists["token_logprobs"].size(), text.size() + 1) << "exactly one token more";
      EXPECT_TRUE(lists["token_logprobs"][0].is_null() && lists["top_logprobs"][0].is_null());
      for (size_t i = 1; i <= text.size(); ++i) {
        EXPECT_EQ(lists["token_logprobs"][i].get<double>(), double(rows[i - 1].value));
        double best = -INFINITY;
        for (const auto& [key, value] : lists["top_logprobs"][i].items())
          best = std::max(best, value.get<double>());
        EXPECT_EQ(best == lists["token_logprobs"][i].get<double>(), rows[i - 1].rank == 1)
            << "greedy by equal floats";
        EXPECT_TRUE(lists["top_logprobs"][i].contains(lists["tokens"][i].get<std::string>()));
      }
    }
    EXPECT_EQ(choices[3]["logprobs"]["tokens"][1], "<|im_end|>") << "an end at once is listed";
    EXPECT_EQ(choices[3]["text"], "z");
  }
}

TEST_F(Serving, LogProbabilitiesOfChat) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"model", "m"},    {"messages", user("x")}, {"temperature", 0},
               {"max_tokens", 4}, {"logprobs", true},      {"top_logprobs", 2}};
  const Json whole = site.post("/v1/chat/completions", body).json();
  const Json& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 4u);
  for (const Json& entry : content) {
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_EQ(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
    EXPECT_EQ(entry["bytes"].size(), 1u);
  }
  body["stream"] = true;
  const Json together = assembled_chat(site.post("/v1/chat/completions", body).body);
  EXPECT_EQ(sorted(together["choices"]), sorted(whole["choices"]));
}

TEST_F(Serving, ErrorsInTheWordsThatClientsKnow) {
  Site site(*plain_, script_line("ok"));
  const std::string longer(5000, 'x');
  HttpAnswer a = site.post("/v1/chat/completions", {{"messages", user(longer)}});
  EXPECT_EQ(a.status, 400);
  EXPECT_EQ(a.json()["error"]["code"], "context_length_exceeded");
  EXPECT_NE(a.body.find("maximum context length is 4096 tokens"), std::string::npos) << a.body;
  a = site.post("/v1/messages", {{"max_tokens", 5}, {"messages", user(longer)}});
  EXPECT_EQ(a.status, 400);
  const std::string says = a.json()["error"]["message"];
  EXPECT_TRUE(says.starts_with("prompt is too long: 50") && says.ends_with(" tokens > 4096 maximum")) << says;
  EXPECT_EQ(site.post("/v1/chat/completions", {{"messages", user("x")}, {"max_tokens", 1 << 30}}).status, 200)
      << "what does not fit is cut";
  a = site.post("/v1/chat/completions", {{"messages", user("x")}, {"temperature", -1}});
  EXPECT_EQ(a.json()["error"]["param"], "temperature") << a.body;
  server::ApiOptions strict;
  strict.clamp_max_tokens = false;
  strict.any_model = false;
  strict.names = {"m"};
  Site exact(*plain_, script_line("ok"), strict);
  a = exact.post("/v1/messages", {{"model", "m"}, {"max_tokens", 32000}, {"messages", user("x")}});
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(a.body.find("input length and `max_tokens` exceed context limit: 20 + 32000 > 4096"),
            std::string::npos)
      << a.body;
  a = exact.post("/v1/chat/completions", {{"model", "other"}, {"messages", user("x")}});
  EXPECT_EQ(a.status, 404);
  EXPECT_EQ(a.json()["error"]["code"], "model_not_found");
}

TEST_F(Serving, WhatBreaksAfterTheHeadIsToldInTheStream) {
  for (const bool visible : {false, true}) {
    Site site(*plain_, script_line(visible ? "some" : "", "fail"));
    for (const char* path : {"/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
      Json body = {{"stream", true}, {"max_tokens", 9}};
      if (std::string(path) == "/v1/responses") body["input"] = "x";
      else body["messages"] = user("x");
      const HttpAnswer a = site.post(path, body);
      if (!visible) {
        EXPECT_GE(a.status, 400) << path;
        continue;
      }
      EXPECT_EQ(a.status, 200) << path;
      const auto events = events_of(a.body);
      ASSERT_FALSE(events.empty());
      const SseEvent& last = events.back();
      const std::string name = last.data.contains("error") && last.name.empty() ? "error" : last.name;
      EXPECT_EQ(name, std::string(path) == "/v1/responses" ? "response.failed" : "error") << a.body;
    }
  }
}

TEST_F(Serving, SignsOfLifeBeforeTheFirstToken) {
  Site site(*plain_, script_line("ok", "eos", {1}, {{"prompt_ms", 400}}), {}, {0.05, 0.05});
  Json body = {{"stream", true}, {"max_tokens", 9}, {"messages", user("x")}};
  const HttpAnswer chat = site.post("/v1/chat/completions", body);
  EXPECT_TRUE(chat.body.starts_with(": ")) << chat.body.substr(0, 80);
  EXPECT_EQ(assembled_chat(chat.body)["choices"][0]["message"]["content"], "ok");
  const HttpAnswer messages = site.post("/v1/messages", body);
  EXPECT_TRUE(messages.body.starts_with("event: ping\n")) << messages.body.substr(0, 80);
  EXPECT_EQ(said_by_messages(assembled_message(messages.body))["content"], "ok");
  const HttpAnswer responses = site.post("/v1/responses", {{"stream", true}, {"input", "x"}});
  const auto events = events_of(responses.body);
  EXPECT_EQ(events[0].name, "response.created");
  EXPECT_EQ(events[1].name, "response.in_progress");
  EXPECT_EQ(events[2].name, "response.in_progress");
  EXPECT_EQ(said_by_responses(assembled_response(responses.body))["content"], "ok");
}

TEST_F(Serving, NoTokenNoChunk) {
  Site site(*plain_, script_line("ok"));
  const auto chunks =
      chunks_of(site.post("/v1/chat/completions", {{"stream", true}, {"messages", user("x")}}).body);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", "o"}}));
}

// What a coding agent sends to /v1/responses.
TEST_F(Serving, ResponsesOfACodingAgent) {
  const Json body = *parse_ordered_json(
      R"({"model":"m","stream":true,"store":false,"instructions":"You are a coding agent.",
    "max_output_tokens":200,"parallel_tool_calls":true,"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"},
    "tools":[{"type":"function","name":"shell","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"array"}}}},
      {"type":"web_search"},{"type":"image_generation"},{"type":"custom","name":"apply_patch","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}},
      {"type":"namespace","name":"mcp__notes","tools":[{"type":"function","name":"list","parameters":{"type":"object","properties":{}}}]}],
    "input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Sandbox: read only."}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"List files."}]},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"I should list."}],"encrypted_content":null},
      {"type":"function_call","call_id":"c1","name":"shell","arguments":"{\"command\":[\"ls\"]}"},
      {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"a.txt"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Found a.txt."}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}]})",
      "body");
  Site site(
      *xml_,
      script_line(
          "hm\n</think>\n\n<tool_call>\n<function=mcp__notes__list>\n</function>\n</tool_call>\n<tool_call>\n"
          "<function=apply_patch>\n<parameter=input>\n*** "
          "Begin\nx\n</parameter>\n</function>\n</tool_call>"));
  const HttpAnswer a = site.post("/v1/responses", body);
  ASSERT_EQ(a.status, 200) << joined(a);
  const Json whole = assembled_response(a.body);
  Json at_once = body;
  at_once["stream"] = false;
  Json output = site.post("/v1/responses", at_once).json()["output"], streamed = whole["output"];
  for (Json* items : {&output, &streamed})
    for (Json& item : *items) item.erase("id"), item.erase("call_id");
  EXPECT_EQ(sorted(output), sorted(streamed));
  ASSERT_EQ(whole["output"].size(), 3u) << whole;
  EXPECT_EQ(server::from_base64(whole["output"][0]["encrypted_content"].get<std::string>()),
            whole["output"][0]["content"][0]["text"]);
  EXPECT_EQ(whole["output"][1]["name"], "list");
  EXPECT_EQ(whole["output"][1]["namespace"], "mcp__notes");
  EXPECT_EQ(whole["output"][2]["type"], "custom_tool_call");
  EXPECT_EQ(whole["output"][2]["input"], "*** Begin\nx");
  for (const char* key : {"input_tokens", "output_tokens", "total_tokens"})
    EXPECT_TRUE(whole["usage"][key].is_number_integer());
  EXPECT_TRUE(whole["usage"]["input_tokens_details"]["cached_tokens"].is_number_integer());
  EXPECT_GT(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(Serving, AMessageOfTheAssistantAtTheEndIsGoneOnWith) {
  Site site(*plain_, Site::engine(*plain_));
  Json messages = user("x");
  messages.push_back({{"role", "assistant"}, {"content", "answer: pq"}});
  const Json body = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 3}};
  EXPECT_EQ(said_by_messages(site.post("/v1/messages", body).json())["content"], "rst");
  Json echoed = body;
  echoed["echo"] = true;
  EXPECT_EQ(said_by_chat(site.post("/v1/chat/completions", body).json())["content"], "rst");
  EXPECT_EQ(said_by_chat(site.post("/v1/chat/completions", echoed).json())["content"], "answer: pqrst");
}

TEST_F(Serving, ForcedAnswers) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = choosing(60);
  EXPECT_EQ(said_by_chat(site.post("/v1/chat/completions", body).json())["content"], "azx")
      << "the lowest of equal tokens";
  body.erase("structured_outputs");
  body["response_format"] = by_schema({{"type", "object"},
                                       {"properties", {{"ok", {{"type", "boolean"}}}}},
                                       {"required", {"ok"}},
                                       {"additionalProperties", false}});
  body["n"] = 2;
  const Json whole = site.post("/v1/chat/completions", body).json();
  for (const Json& choice : whole["choices"]) {
    const auto answer = parse_ordered_json(choice["message"]["content"].get<std::string>(), "answer");
    ASSERT_TRUE(answer) << choice;
    EXPECT_TRUE((*answer)["ok"].is_boolean());
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  body["response_format"]["json_schema"]["strict"] = true;
  body["response_format"]["json_schema"]["schema"]["not"] = {{"type", "null"}};
  const HttpAnswer refused = site.post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_schema");
  EXPECT_NE(refused.body.find("not"), std::string::npos);
}

TEST_F(Serving, ForcedCalls) {
  Site site(*xml_, Site::engine(*xml_));
  Json body = {{"messages", user("x")},
               {"temperature", 0},
               {"max_tokens", 300},
               {"chat_template_kwargs", {{"enable_thinking", false}}},
               {"tools", Json::array({{{"type", "function"},
                                       {"function",
                                        {{"name", "say"},
                                         {"parameters",
                                          {{"type", "object"},
                                           {"properties", {{"loud", {{"type", "boolean"}}}}},
                                           {"required", {"loud"}},
                                           {"additionalProperties", false}}}}}}})},
               {"tool_choice", "required"},
               {"parallel_tool_calls", false}};
  const Json said = said_by_chat(site.post("/v1/chat/completions", body).json());
  ASSERT_EQ(said["calls"].size(), 1u) << said;
  EXPECT_EQ(said["calls"][0]["name"], "say");
  EXPECT_TRUE(said["calls"][0]["arguments"]["loud"].is_boolean());
  EXPECT_EQ(said["finish"], "tool_calls");
  EXPECT_EQ(said["content"], "");
}

TEST_F(Serving, AThoughtEndsWithItsBudget) {
  Site site(*xml_, Site::engine(*xml_));
  const Json body = {
      {"messages", user("x")}, {"temperature", 0}, {"max_tokens", 200}, {"thinking_token_budget", 20}};
  const Json whole = site.post("/v1/chat/completions", body).json();
  const int64_t thought = whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GE(thought, 5);
  EXPECT_LE(thought, 20 + 12) << whole;
  EXPECT_NE(said_by_chat(whole)["content"], "") << whole;
  EXPECT_EQ(said_by_chat(whole)["content"].get<std::string>().find("think>"), std::string::npos);
}

TEST_F(Serving, AStopInAThoughtEndsTheThoughtAlone) {
  Site site(*xml_, Site::engine(*xml_));
  const Json body = {{"messages", user("x")}, {"temperature", 0}, {"max_tokens", 200}};
  const Json said = said_by_messages(site.post("/v1/messages", body).json());
  EXPECT_EQ(said["thought"], "bcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(said["content"], "bcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(said["finish"], "stop");
}

TEST_F(Serving, AtLeastSoManyTokens) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"prompt", "y"}, {"temperature", 0}, {"max_tokens", 10}};
  EXPECT_EQ(site.post("/v1/completions", body).json()["usage"]["completion_tokens"], 2) << "z, and the end";
  body["min_tokens"] = 6;
  EXPECT_GE(site.post("/v1/completions", body).json()["usage"]["completion_tokens"], 6);
  body["min_tokens"] = nullptr;
  body["ignore_eos"] = true;
  const Json whole = site.post("/v1/completions", body).json();
  EXPECT_EQ(whole["usage"]["completion_tokens"], 10);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
}

TEST_F(Serving, ASaltedRequestSharesNothing) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"prompt", std::string(600, 'a')}, {"temperature", 0}, {"max_tokens", 2}, {"cache_salt", "s"}};
  auto cached = [&] { return cached_tokens(site.post("/v1/completions", body)); };
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(cached(), 0);
  body.erase("cache_salt");
  EXPECT_EQ(cached(), 0) << "nothing of it was kept";
  EXPECT_GT(cached(), 0);
}

}  // namespace
}  // namespace invar
