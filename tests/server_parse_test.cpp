// Bodies of the four APIs as questions: what they mean, and what is refused by which name.
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "../fuzz/adapter_targets.h"
#include "alphabet_model.h"
#include "base/clock.h"
#include "engine/chat.h"
#include "server/intake.h"
#include "server/parse.h"
#include "streams.h"
#include "text/normalize.h"

namespace invar::server {
namespace {

class Silent : public Service {  // takes nothing: bodies are read before anything is asked
 public:
  Result<uint64_t> submit(Request) override { return Error{Code::Cancelled, "", "nothing is taken"}; }
  void cancel(uint64_t) override {}
  Statistics statistics() const override { return {}; }
  int64_t context() const override { return 4096; }
  int64_t vocab() const override { return kAlphabetTokens; }
};

class Parse : public testing::Test {
 protected:
  static void SetUpTestSuite() { chat_ = new Chat(alphabet_chat()); }
  static void TearDownTestSuite() { delete chat_; }

  enum Api { Completions, ChatApi, Responses, Messages };
  struct Parsed {
    Question q;
    ResponsesForm form;
    std::optional<ApiError> fault;
  };
  Parsed parse(Api api, const std::string& text) {
    auto json = parse_ordered_json(text, "body");
    EXPECT_TRUE(json) << text;
    Parsed p;
    p.q.sampling = served_.options.sampling;
    p.fault = api == Completions ? read_completions(*json, served_, p.q)
              : api == ChatApi   ? read_chat(*json, served_, p.q)
              : api == Responses ? read_responses(*json, served_, p.q, p.form)
                                 : read_messages(*json, served_, p.q);
    return p;
  }
  Parsed good(Api api, const std::string& text) {
    Parsed p = parse(api, text);
    EXPECT_FALSE(p.fault) << text << ": " << (p.fault ? p.fault->message : "");
    return p;
  }
  void refused(Api api, const std::string& text, const std::string& param, const std::string& code = "") {
    const Parsed p = parse(api, text);
    ASSERT_TRUE(p.fault) << text;
    EXPECT_EQ(p.fault->status, 400);
    EXPECT_EQ(p.fault->param, param) << text;
    EXPECT_NE(p.fault->message.find(param), std::string::npos);
    EXPECT_EQ(p.fault->code, code) << text;
  }

  static Chat* chat_;
  Silent silent_;
  Metrics metrics_;
  Intake intake_{silent_, metrics_, {}};
  WorkThread text_;
  Served served_{*chat_, intake_, text_, metrics_, {}, {}};
};
Chat* Parse::chat_ = nullptr;

const std::string kHello = R"("messages":[{"role":"user","content":"hello"}])";

TEST_F(Parse, WrongTypesAreRefusedByName) {
  refused(Completions, R"({"prompt":"x","temperature":"warm"})", "temperature");
  refused(ChatApi, "{" + kHello + R"(,"temperature":"warm"})", "temperature");
  refused(ChatApi, "{" + kHello + R"(,"max_tokens":1.5})", "max_tokens");
  refused(ChatApi, "{" + kHello + R"(,"stream":"yes"})", "stream");
  refused(ChatApi, "{" + kHello + R"(,"stream_options":{"include_usage":1}})",
          "stream_options.include_usage");
  refused(ChatApi, R"({"messages":[{"role":"user","content":5}]})", "messages[0].content");
  refused(ChatApi, R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role");
  refused(ChatApi, R"({"messages":[]})", "messages");
  refused(ChatApi, R"({})", "messages");
  refused(Responses, R"({"input":5})", "input");
  refused(Responses, R"({"input":[{"role":"user","content":[{"type":"input_text","text":1}]}]})",
          "input[0].content[0].text");
  refused(Messages, "{" + kHello + "}", "max_tokens");
  refused(Messages, "{" + kHello + R"(,"max_tokens":"5"})", "max_tokens");
  refused(Completions, R"({})", "prompt");
  refused(Completions, R"({"prompt":[1,"x"]})", "prompt");
  refused(Completions, R"({"prompt":"x","logit_bias":{"a":1}})", "logit_bias");
  refused(Completions, R"({"prompt":"x","n":0})", "n");
}

TEST_F(Parse, WhatWouldChangeTheMeaningIsRefused) {
  const std::string code = "unsupported_parameter";
  refused(ChatApi, "{" + kHello + R"(,"modalities":["text","audio"]})", "modalities", code);
  refused(ChatApi, "{" + kHello + R"(,"web_search_options":{}})", "web_search_options", code);
  refused(ChatApi, "{" + kHello + R"(,"chat_template":"x"})", "chat_template", code);
  refused(ChatApi, "{" + kHello + R"(,"skip_special_tokens":false})", "skip_special_tokens", code);
  good(ChatApi, "{" + kHello + R"(,"skip_special_tokens":true})");
  good(Completions, R"({"prompt":"x","skip_special_tokens":false})");
  refused(ChatApi, R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
          "messages[0].content[0].type", code);
  refused(Responses, R"({"input":"x","previous_response_id":"r"})", "previous_response_id", code);
  refused(Responses, R"({"input":"x","background":true})", "background", code);
  refused(Responses, R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type", code);
  refused(Messages, R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
          "messages[0].content[0].type", code);
  refused(Completions, R"({"prompt":"x","best_of":3})", "best_of", code);
  refused(Completions, R"({"prompt":"x","suffix":"y"})", "suffix", code);
  refused(Completions, R"({"prompt":"x","samplers":["top_k"]})", "samplers", code);
  refused(ChatApi, "{" + kHello + R"(,"response_format":{"type":"json_schema"}})",
          "response_format.json_schema.schema", "invalid_schema");
  refused(ChatApi, "{" + kHello + R"(,"response_format":{"type":"json_object"},"guided_regex":"a"})",
          "guided_regex");
  refused(ChatApi, "{" + kHello + R"(,"tool_choice":"required"})", "tool_choice");
  refused(ChatApi,
          "{" + kHello + R"(,"tools":[{"type":"function","function":{"name":"a"}}],)" +
              R"("tool_choice":{"type":"function","function":{"name":"b"}}})",
          "tool_choice");
  refused(ChatApi, "{" + kHello + R"(,"top_logprobs":2})", "top_logprobs");
  refused(Completions, R"({"prompt":"x","max_tokens":0})", "max_tokens");
}

TEST_F(Parse, NullsAndUnknownFieldsMeanNothing) {
  good(Completions, R"({"prompt":"x","logprobs":null,"stop":null,"n":null,"seed":null,"foo":{"a":[1]}})");
  good(ChatApi,
       "{" + kHello + R"(,"tools":null,"tool_choice":null,"stream_options":null,"user":"u","store":true,)" +
           R"("metadata":{},"service_tier":"auto","verbosity":"low","prediction":{"type":"content"}})");
  good(ChatApi, R"({"messages":[{"role":"user","content":"x","type":"text"}],"tools":[]})");
  good(Messages, "{" + kHello +
                     R"(,"max_tokens":1,"metadata":{"user_id":"{}"},"context_management":{"edits":[]},)" +
                     R"("container":null,"mcp_servers":[],"tools":[],"service_tier":"auto"})");
  good(Responses,
       R"({"input":"","max_output_tokens":16,"client_metadata":{},"store":true,"truncation":"auto"})");
}

TEST_F(Parse, CompletionsPrompts) {
  EXPECT_EQ(good(Completions, R"({"prompt":"x"})").q.prompts.size(), 1u);
  EXPECT_EQ(good(Completions, R"({"prompt":["x","y"]})").q.prompts.size(), 2u);
  const Question ids = good(Completions, R"({"prompt":[1,2,3],"max_tokens":1})").q;
  EXPECT_EQ(std::get<std::vector<Token>>(ids.prompts.at(0)), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(good(Completions, R"({"prompt":[[1],[2,3]]})").q.prompts.size(), 2u);
  const Question eval =
      good(Completions,
           R"({"prompt":[[5,6]],"temperature":0,"max_tokens":1,"logprobs":1,"seed":1234,"echo":true})")
          .q;
  EXPECT_EQ(eval.seed, 1234u);
  EXPECT_EQ(eval.logprobs, 1);
  EXPECT_TRUE(eval.echo);
  EXPECT_EQ(eval.sampling.temperature, 0);
  EXPECT_EQ(good(Completions, R"({"prompt":"x"})").q.max_tokens, 16);
}

TEST_F(Parse, OneConversationInThreeApis) {
  const Json chat = good(ChatApi, R"({"messages":[
    {"role":"system","content":"Be brief."},
    {"role":"user","content":[{"type":"text","text":"Look"}]},
    {"role":"assistant","content":null,"reasoning":"hm","tool_calls":[{"id":"c1","type":"function",
      "function":{"name":"shell","arguments":"{\"command\":[\"ls\"]}"}}]},
    {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"a.txt"}]},
    {"role":"user","content":"Go on."}]})")
                        .q.conversation->messages;
  const Json responses = good(Responses, R"({"instructions":"Be brief.","input":[
    {"type":"message","role":"user","content":[{"type":"input_text","text":"Look"}]},
    {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":null},
    {"type":"function_call","call_id":"c1","name":"shell","arguments":"{\"command\":[\"ls\"]}"},
    {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"a.txt"}]},
    {"role":"user","content":"Go on."}]})")
                             .q.conversation->messages;
  const Json messages = good(Messages, R"({"max_tokens":1,"system":[
    {"type":"text","text":"x-anthropic-billing-header: v=1"},{"type":"text","text":"Be brief."}],"messages":[
    {"role":"user","content":[{"type":"text","text":"Look"}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
      {"type":"tool_use","id":"c1","name":"shell","input":{"command":["ls"]}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"a.txt"}]},
      {"type":"text","text":"Go on."}]}]})")
                            .q.conversation->messages;
  // What templates get, wherever it came from.
  EXPECT_EQ(sorted(*normalize_messages(chat)), sorted(*normalize_messages(responses)));
  EXPECT_EQ(sorted(*normalize_messages(chat)), sorted(*normalize_messages(messages)));
  EXPECT_EQ(chat.size(), 5u);
  EXPECT_EQ(chat[2]["reasoning_content"], "hm");
}

TEST_F(Parse, ToolsOfThreeApisAreTheSame) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const Json chat =
      good(ChatApi, "{" + kHello + R"(,"tools":[{"type":"function","function":{"name":"f","description":"d",
      "parameters":)" + schema +
                        R"(}}],"tool_choice":{"type":"function","function":{"name":"f"}}})")
          .q.conversation->tools;
  const Parsed responses =
      good(Responses, R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f",
      "description":"d","strict":false,"parameters":)" +
                          schema + R"(}],"tool_choice":{"type":"function","name":"f"}})");
  const Parsed messages =
      good(Messages,
           "{" + kHello + R"(,"max_tokens":1,"tools":[{"name":"f","description":"d",
      "input_schema":)" +
               schema +
               R"(,"cache_control":{"type":"ephemeral"}},{"type":"web_search_20250305","name":"web_search"}],
      "tool_choice":{"type":"tool","name":"f"}})");
  EXPECT_EQ(chat, responses.q.conversation->tools);
  EXPECT_EQ(chat, messages.q.conversation->tools);
  for (const Question* q : {&responses.q, &messages.q}) {
    EXPECT_EQ(q->tool_choice.kind, ToolChoice::Kind::Required);
    EXPECT_EQ(q->tool_choice.names, std::vector<std::string>{"f"});
  }
}

TEST_F(Parse, NamespacesAndCustomTools) {
  const Parsed p = good(Responses, R"({"input":[
      {"type":"function_call","call_id":"c","name":"list","namespace":"mcp__notes","arguments":"{}"},
      {"type":"custom_tool_call","call_id":"d","name":"apply_patch","input":"*** Begin"}],
    "tools":[{"type":"namespace","name":"mcp__notes","tools":[{"type":"function","name":"list","parameters":{"type":"object"}}]},
      {"type":"custom","name":"apply_patch","description":"free","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}},
      {"type":"image_generation"}]})");
  ASSERT_EQ(p.q.conversation->tools.size(), 2u);
  EXPECT_EQ(p.q.conversation->tools[0]["function"]["name"], "mcp__notes__list");
  EXPECT_EQ(p.form.tools.at("mcp__notes__list").space, "mcp__notes");
  EXPECT_TRUE(p.form.tools.at("apply_patch").custom);
  const Json calls = p.q.conversation->messages[0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["name"], "mcp__notes__list");
  EXPECT_EQ(calls[1]["function"]["arguments"], Json({{"input", "*** Begin"}}));
}

TEST_F(Parse, DeferredToolsAreShownWhereTheyAreReferredTo) {
  const Question q = good(Messages, R"({"max_tokens":1,"tools":[{"name":"a","input_schema":{"type":"object"}},
      {"name":"b","input_schema":{"type":"object"},"defer_loading":true}],"messages":[{"role":"user","content":"x"},
      {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"a","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"tool_reference","tool_name":"b"}]}]}]})")
                         .q;
  EXPECT_EQ(q.conversation->tools.size(), 1u);
  EXPECT_NE(q.conversation->messages[2]["content"].get<std::string>().find("\"name\":\"b\""),
            std::string::npos);
}

TEST_F(Parse, ToolsHaveBoundsBeforeAnythingLooksThemUp) {
  auto tools = [](int count, const char* more) {
    std::string list;
    for (int i = 0; i < count; ++i)
      list += (i > 0 ? "," : "") + (R"({"name":"n)" + std::to_string(i)) + "\"" + more + "}";
    return "\"tools\":[" + list + "]";
  };
  const std::string messages = R"({"max_tokens":1,)" + kHello + ",";
  refused(Messages, messages + tools(513, R"(,"defer_loading":true)") + "}", "tools");
  const std::string large = R"(,"defer_loading":true,"description":")" + std::string(3 << 20, 'x') + '"';
  good(Messages, messages + tools(1, large.c_str()) + "}");
  refused(Messages, messages + tools(2, large.c_str()) + "}", "tools");
  std::string names;
  for (int i = 0; i < 513; ++i) names += R"({"type":"function","name":"n0"},)";
  refused(
      Responses,
      R"({"input":"x","tools":[{"type":"function","name":"n0"}],"tool_choice":{"type":"allowed_tools","tools":[)" +
          names.substr(0, names.size() - 1) + "]}}",
      "tool_choice");
  const std::string reference = R"({"type":"tool_reference","tool_name":"n0"})";
  auto referred = [&](const std::string& references) {
    return R"({"max_tokens":1,)" + tools(1, large.c_str()) + R"(,"messages":[{"role":"user","content":[)" +
           references + "]}]}";
  };
  good(Messages, referred(reference));
  refused(Messages, referred(reference + "," + reference), "messages[0].content[1].tool_name");
}

// What a body costs grows with its size, not faster.
TEST_F(Parse, LargeBodiesTakeNoLonger) {
  constexpr double kSeconds = 1;  // a fifth at most, where nothing else runs
  auto list = [](int count, const std::string& item) {
    std::string text = "[" + item;
    for (int i = 1; i < count; ++i) text += "," + item;
    return text + "]";
  };
  auto timed = [&](Api api, const std::string& text) {
    const auto json = parse_ordered_json(text, "body");
    ASSERT_TRUE(json);
    Question q;
    ResponsesForm form;
    const double start = steady_seconds();
    if (api == ChatApi) read_chat(*json, served_, q);
    else if (api == Responses) read_responses(*json, served_, q, form);
    else read_messages(*json, served_, q);
    EXPECT_LT(steady_seconds() - start, kSeconds) << text.substr(0, 40);
  };
  std::string keys;
  for (int i = 0; i < 9000; ++i) keys += "\"unknown field " + std::to_string(i) + "\":0,";
  timed(ChatApi, "{" + keys + "\"messages\":" + list(200'000, R"({"role":"user","content":"x"})") + "}");
  timed(Responses, R"({"input":)" +
                       list(30'000, R"({"type":"reasoning","content":")" + std::string(100, 'x') + R"("})") +
                       "}");
  std::string tools, names;
  for (int i = 0; i < 100'000; ++i) {
    tools += R"({"type":"function","name":"a tool that is there )" + std::to_string(i) + R"("},)";
    names += R"({"type":"function","name":"a tool that is not there )" + std::to_string(i) + R"("},)";
  }
  tools.pop_back(), names.pop_back();
  timed(Responses, R"({"input":"x","tool_choice":{"type":"allowed_tools","tools":[)" + names +
                       R"(]},"tools":[)" + tools + "]}");
  std::string deferred;
  for (int i = 0; i < 500; ++i)
    deferred += R"({"defer_loading":true,"name":"a tool of some name )" + std::to_string(i) + R"("},)";
  deferred.pop_back();
  timed(Messages, R"({"max_tokens":1,"tools":[)" + deferred + R"(],"messages":[{"role":"user","content":)" +
                      list(200'000, R"({"type":"tool_reference","tool_name":"none"})") + "}]}");
}

TEST_F(Parse, ThinkingInAllItsForms) {
  auto thinking = [&](Api api, const std::string& fields) {
    const std::string rest = api == Responses ? R"({"input":"x",)" : "{" + kHello + R"(,"max_tokens":9,)";
    return good(api, rest + fields + "}").q.thinking;
  };
  EXPECT_FALSE(thinking(ChatApi, R"("user":"u")").on);
  EXPECT_EQ(thinking(ChatApi, R"("chat_template_kwargs":{"enable_thinking":false})").on, false);
  EXPECT_EQ(thinking(ChatApi, R"("reasoning_effort":"none")").on, false);
  EXPECT_EQ(thinking(ChatApi, R"("reasoning_effort":"low")").budget, 1024);
  EXPECT_EQ(thinking(Responses, R"("reasoning":{"effort":"medium","summary":"auto"})").budget, 4096);
  EXPECT_EQ(thinking(ChatApi, R"("thinking_token_budget":0)").on, false);
  EXPECT_EQ(thinking(ChatApi, R"("thinking_token_budget":77)").budget, 77);
  EXPECT_EQ(
      thinking(ChatApi, R"("reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false})").on,
      false);
  EXPECT_EQ(thinking(Messages, R"("thinking":{"type":"disabled"})").on, false);
  EXPECT_EQ(thinking(Messages, R"("thinking":{"type":"enabled","budget_tokens":1024})").budget, 1024);
  const Thinking adaptive =
      thinking(Messages, R"("thinking":{"type":"adaptive"},"output_config":{"effort":"high"})");
  EXPECT_EQ(adaptive.on, true);
  EXPECT_EQ(adaptive.budget, 16384);
}

TEST_F(Parse, StructuresInAllTheirForms) {
  auto kind = [&](const std::string& fields) {
    return good(ChatApi, "{" + kHello + "," + fields + "}").q.structure;
  };
  using Kind = Structure::Kind;
  EXPECT_EQ(kind(R"("response_format":{"type":"text"})").kind, Kind::None);
  EXPECT_EQ(kind(R"("response_format":{"type":"json_object"})").kind, Kind::JsonObject);
  const Structure strict = kind(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}})");
  EXPECT_EQ(strict.kind, Kind::Schema);
  EXPECT_TRUE(strict.strict);
  EXPECT_EQ(strict.field, "response_format.json_schema.schema");
  EXPECT_EQ(kind(R"("guided_choice":["a","b"])").kind, Kind::Choice);
  EXPECT_EQ(kind(R"("structured_outputs":{"regex":"a+"})").text, "a+");
  EXPECT_EQ(kind(R"("guided_json":"{\"type\":\"object\"}")").value["type"], "object");
  EXPECT_EQ(kind(R"("grammar":"root ::= \"a\"")").kind, Kind::Gbnf);
  EXPECT_EQ(
      good(Responses,
           R"({"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}})")
          .q.structure.kind,
      Kind::Schema);
  for (const char* field : {R"("output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})",
                            R"("output_format":{"type":"json_schema","schema":{"type":"object"}})"})
    EXPECT_EQ(good(Messages, "{" + kHello + R"(,"max_tokens":1,)" + field + "}").q.structure.kind,
              Kind::Schema);
}

// Known fields with values of any kind, some bodies of the tests above among them.
TEST_F(Parse, AnyBodyIsReadOrRefusedByName) {
  constexpr const char* kNames[] = {"model",
                                    "prompt",
                                    "messages",
                                    "input",
                                    "system",
                                    "instructions",
                                    "tools",
                                    "tool_choice",
                                    "functions",
                                    "function_call",
                                    "max_tokens",
                                    "max_output_tokens",
                                    "temperature",
                                    "stop",
                                    "stop_sequences",
                                    "n",
                                    "seed",
                                    "logit_bias",
                                    "logprobs",
                                    "top_logprobs",
                                    "echo",
                                    "stream",
                                    "stream_options",
                                    "response_format",
                                    "json_schema",
                                    "text",
                                    "output_config",
                                    "format",
                                    "schema",
                                    "type",
                                    "role",
                                    "content",
                                    "name",
                                    "function",
                                    "parameters",
                                    "arguments",
                                    "tool_calls",
                                    "reasoning",
                                    "effort",
                                    "thinking",
                                    "budget_tokens",
                                    "source",
                                    "chat_template_kwargs",
                                    "enable_thinking",
                                    "structured_outputs",
                                    "choice",
                                    "regex",
                                    "guided_json",
                                    "input_schema",
                                    "defer_loading",
                                    "tool_name",
                                    "output",
                                    "call_id",
                                    "include",
                                    "allowed_tools",
                                    "mode"};
  constexpr const char* kTexts[] = {"",
                                    "x",
                                    "user",
                                    "assistant",
                                    "system",
                                    "tool",
                                    "function",
                                    "custom",
                                    "namespace",
                                    "text",
                                    "input_text",
                                    "tool_use",
                                    "tool_result",
                                    "tool_reference",
                                    "json_schema",
                                    "json_object",
                                    "required",
                                    "any",
                                    "allowed_tools",
                                    "document",
                                    "message",
                                    "reasoning",
                                    "function_call",
                                    "item_reference",
                                    "low",
                                    "none",
                                    "{\"a\":1}"};
  std::minstd_rand random(5);
  auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  std::function<Json(int)> any = [&](int depth) -> Json {
    switch (random() % (depth > 0 ? 9 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return random() % 2 == 0;
      case 2:
        return int64_t(random() % 7) - 2;
      case 3:
        return random() % 2 ? Json(1e300) : Json(UINT64_MAX);
      case 4:
      case 5:
        return pick(kTexts);
      case 6: {
        Json list = Json::array();
        for (unsigned i = random() % 4; i > 0; --i) list.push_back(any(depth - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (unsigned i = random() % 6; i > 0; --i) object[pick(kNames)] = any(depth - 1);
        return object;
      }
    }
  };
  int taken = 0;
  for (int i = 0; i < 40000; ++i) {
    Json body = Json::object();
    if (random() % 4) body["messages"] = Json::array({{{"role", pick(kTexts)}, {"content", any(3)}}});
    if (random() % 4) body["max_tokens"] = 5;
    if (random() % 2) body["prompt"] = any(2);
    for (unsigned k = random() % 5; k > 0; --k) body[pick(kNames)] = any(5);
    const std::string bytes = std::string(1, char(i % 4)) + json_text(body);
    taken += fuzz_adapter(std::as_bytes(std::span(bytes)), served_);
  }
  EXPECT_GT(taken, 1000);
  EXPECT_LT(taken, 39000);
}

}  // namespace
}  // namespace invar::server
