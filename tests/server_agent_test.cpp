// A conversation of 20 turns as coding agents have them, over HTTP and two APIs: thoughts, forced calls with
// their results, answers in JSON, a header that changes with each request, thoughts that the template drops.
// From the second turn on only what is new is read, usage says so, and the texts are those of a server that
// keeps nothing.
#include <gtest/gtest.h>

#include "serving.h"
#include "tiny_chat_model.h"
#include "watched.h"

namespace invar {
namespace {

constexpr int kTurns = 20;
constexpr int kTurnsOfAQuestion = 5;  // calls, and the last time an answer
constexpr int kThought = 12;          // tokens
constexpr int64_t kLeastGap = 64;     // positions between two states that are kept, see docs/engine.md

// One conversation, whatever the API: {"question"}, {"said"} as serving.h reads it, {"results"}, in turn.
using Talk = std::vector<Json>;

const char* const kSystem =
    "You are a coding agent. Look before you change anything, call one tool at a time, and answer in JSON.";

std::string header(int turn) {
  return "x-anthropic-billing-header: cc_version=9.9.9; cc_entrypoint=cli; cch=" +
         std::to_string(turn * 7919) + ";";
}

std::string question(int turn) {
  return "Question " + std::to_string(turn) +
         ": what does this file say about that, and is it still true today?";
}

std::string result_of(int turn) {
  return "line " + std::to_string(turn) + ": the quick brown fox jumps over the lazy dog, again and again";
}

Json parameters() {
  return {{"type", "object"},
          {"properties",
           {{"path", {{"enum", {"src/main.cpp", "README.md", "docs/a.md"}}}},
            {"line", {{"type", "integer"}, {"minimum", 1}, {"maximum", 900}}},
            {"quiet", {{"type", "boolean"}}}}},
          {"required", {"path", "line"}},
          {"additionalProperties", false}};
}

Json answer_schema() {
  return {{"type", "object"},
          {"properties", {{"true", {{"type", "boolean"}}}, {"verdict", {{"enum", {"keep", "change"}}}}}},
          {"required", {"true", "verdict"}},
          {"additionalProperties", false}};
}

bool answers(int turn) { return turn % kTurnsOfAQuestion == 0; }

std::string call_id(int turn, size_t call) {
  return "call_" + std::to_string(turn) + "_" + std::to_string(call);
}

struct Api {
  const char* path;
  Json (*body)(const Talk& talk, int turn);
  Json (*said)(const Json& whole);
  Json (*assembled)(std::string_view stream);
  int64_t (*cached)(const Json& usage);
  int64_t (*prompt)(const Json& usage);
};

Json chat_body(const Talk& talk, int turn) {
  Json messages = Json::array(
      {{{"role", "system"}, {"content", header(turn)}}, {{"role", "system"}, {"content", kSystem}}});
  int at = 0;
  for (const Json& part : talk) {
    if (part.contains("question")) messages.push_back({{"role", "user"}, {"content", part["question"]}});
    if (part.contains("result"))
      for (size_t i = 0; i < part["calls"]; ++i)
        messages.push_back({{"role", "tool"}, {"tool_call_id", call_id(at, i)}, {"content", part["result"]}});
    if (!part.contains("said")) continue;
    const Json& said = part["said"];
    Json m = {{"role", "assistant"}, {"content", said["content"]}, {"reasoning_content", said["thought"]}};
    ++at;
    for (size_t i = 0; i < said["calls"].size(); ++i)
      m["tool_calls"].push_back(
          {{"id", call_id(at, i)},
           {"type", "function"},
           {"function",
            {{"name", said["calls"][i]["name"]}, {"arguments", json_text(said["calls"][i]["arguments"])}}}});
    messages.push_back(m);
  }
  Json body = {{"messages", messages}, {"thinking_token_budget", kThought}};
  for (const char* name : {"read_file", "edit_file"})
    body["tools"].push_back(
        {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters()}}}});
  body["tool_choice"] = answers(turn) ? "none" : "required";
  body["parallel_tool_calls"] = false;
  if (answers(turn))
    body["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "a"}, {"strict", true}, {"schema", answer_schema()}}}};
  return body;
}

Json messages_body(const Talk& talk, int turn) {
  Json messages = Json::array();
  auto block = [](const char* type, const Json& text) { return Json{{"type", type}, {"text", text}}; };
  int at = 0;
  for (const Json& part : talk) {
    if (part.contains("question")) messages.push_back({{"role", "user"}, {"content", part["question"]}});
    if (part.contains("result")) {
      Json blocks = Json::array();
      for (size_t i = 0; i < part["calls"]; ++i)
        blocks.push_back({{"type", "tool_result"},
                          {"tool_use_id", call_id(at, i)},
                          {"content", Json::array({block("text", part["result"])})}});
      messages.push_back({{"role", "user"}, {"content", blocks}});
    }
    if (!part.contains("said")) continue;
    const Json& said = part["said"];
    Json blocks = Json::array({{{"type", "thinking"}, {"thinking", said["thought"]}, {"signature", "s"}}});
    ++at;
    if (said["content"] != "") blocks.push_back(block("text", said["content"]));
    for (size_t i = 0; i < said["calls"].size(); ++i)
      blocks.push_back({{"type", "tool_use"},
                        {"id", call_id(at, i)},
                        {"name", said["calls"][i]["name"]},
                        {"input", said["calls"][i]["arguments"]}});
    messages.push_back({{"role", "assistant"}, {"content", blocks}});
  }
  Json body = {{"system", Json::array({block("text", header(turn)), block("text", kSystem)})},
               {"messages", messages},
               {"thinking", {{"type", "enabled"}, {"budget_tokens", kThought}}}};
  for (const char* name : {"read_file", "edit_file"})
    body["tools"].push_back({{"name", name}, {"input_schema", parameters()}});
  body["tool_choice"] =
      answers(turn) ? Json{{"type", "none"}} : Json{{"type", "any"}, {"disable_parallel_tool_use", true}};
  if (answers(turn))
    body["output_config"] = {{"format", {{"type", "json_schema"}, {"schema", answer_schema()}}}};
  return body;
}

const Api kApis[] = {
    {"/v1/chat/completions", chat_body, said_by_chat, assembled_chat,
     [](const Json& u) { return u["prompt_tokens_details"]["cached_tokens"].get<int64_t>(); },
     [](const Json& u) { return u["prompt_tokens"].get<int64_t>(); }},
    {"/v1/messages", messages_body, said_by_messages, assembled_message,
     [](const Json& u) { return u["cache_read_input_tokens"].get<int64_t>(); },
     [](const Json& u) {
       return u["input_tokens"].get<int64_t>() + u["cache_read_input_tokens"].get<int64_t>();
     }},
};

size_t common(const std::vector<Token>& a, const std::vector<Token>& b, size_t most) {
  const size_t n = std::min({a.size(), b.size(), most});
  return size_t(std::mismatch(a.begin(), a.begin() + long(n), b.begin()).first - a.begin());
}

struct Pair {
  const char* shape;
  const Api& api;
};
class Agent : public testing::TestWithParam<Pair> {};

TEST_P(Agent, ReadsOnlyWhatIsNewAndSaysWhatAColdServerSays) {
  const std::string path = tiny_chat_model(GetParam().shape, ServedModel::template_of("qwen_xml"), 8192);
  const ServedModel model({}, path);
  const Api& api = GetParam().api;
  // What makes a thought end or read otherwise when it comes back is never chosen, but where it is forced.
  Json bias;
  for (const char* text : {"<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>"})
    if (const auto token = model.chat().tokenizer().find(text)) bias[std::to_string(*token)] = -100;
  auto watched = std::make_unique<Watched>(Site::engine(model, 8192));
  const Watched& service = *watched;
  Site warm(model, std::move(watched)), cold(model, Site::engine(model, 8192, false));
  Talk talk;
  int appended = 0, calls = 0;
  int64_t read = 0, all = 0;
  for (int turn = 1; turn <= kTurns; ++turn) {
    SCOPED_TRACE(std::string(api.path) + ", turn " + std::to_string(turn));
    if (turn % kTurnsOfAQuestion == 1) talk.push_back({{"question", question(turn)}});
    Json body = api.body(talk, turn);
    body.update(
        {{"model", "m"}, {"max_tokens", 400}, {"temperature", 1}, {"seed", turn}, {"logit_bias", bias}});
    Json streamed = body;
    streamed["stream"] = true;
    if (api.body == chat_body) streamed["stream_options"] = {{"include_usage", true}};
    const bool stream = turn % 2 == 0;
    const HttpAnswer got = warm.post(api.path, stream ? streamed : body),
                     plain = cold.post(api.path, stream ? body : streamed);
    ASSERT_EQ(got.status, 200) << got.body;
    ASSERT_EQ(plain.status, 200) << plain.body;
    const Json whole = stream ? api.assembled(got.body) : got.json(),
               wanted = stream ? plain.json() : api.assembled(plain.body);
    const Json said = api.said(whole);
    EXPECT_EQ(said, api.said(wanted));
    EXPECT_NE(said["thought"], "");
    EXPECT_EQ(said["finish"], answers(turn) ? "stop" : "tool_calls") << said;
    EXPECT_EQ(api.cached(wanted["usage"]), 0);
    EXPECT_EQ(api.prompt(whole["usage"]), api.prompt(wanted["usage"]));

    const auto heard = service.heard();
    const Watched::Heard& now = heard.back();
    const int64_t cached = api.cached(whole["usage"]);
    EXPECT_EQ(api.prompt(whole["usage"]), int64_t(now.prompt));
    EXPECT_EQ(cached + now.usage.prompt_rows, int64_t(now.prompt)) << "told truthfully";
    size_t known = 0;
    for (size_t i = 0; i + 1 < heard.size(); ++i)
      known = std::max(known, common(heard[i].tokens, now.tokens, now.prompt));
    const bool append = turn > 1 && known == heard[heard.size() - 2].tokens.size();
    appended += append;
    if (append) EXPECT_GE(cached, int64_t(known) - 1) << "all but the last token, which no pass has read";
    else EXPECT_GE(cached, int64_t(known) - kLeastGap);
    if (turn > 1) { EXPECT_GT(cached, 0); }
    read += now.usage.prompt_rows;
    all += int64_t(now.prompt);

    const Json& made = said["calls"];
    calls += int(made.size());
    talk.push_back({{"said", said}});
    if (!answers(turn)) talk.push_back({{"result", result_of(turn)}, {"calls", made.size()}});
    if (HasFailure()) return;
  }
  EXPECT_EQ(appended, kTurns - kTurns / kTurnsOfAQuestion) << "a new question drops the thoughts before it";
  EXPECT_EQ(calls, kTurns - kTurns / kTurnsOfAQuestion);
  EXPECT_LT(4 * read, all) << read << " of " << all;
  std::remove(path.c_str());
}

INSTANTIATE_TEST_SUITE_P(Models, Agent,
                         testing::Values(Pair{"qwen35:tiny", kApis[1]}, Pair{"llama:tiny", kApis[0]}),
                         [](const auto& p) {
                           return std::string(p.param.shape).substr(0, std::string(p.param.shape).find(':'));
                         });

}  // namespace
}  // namespace invar
