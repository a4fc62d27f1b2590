// What operators and their tools ask the server for: limits and times, what each sequence is at, one request
// by its id, tokens of a chat, metrics, and what changes the server.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "serving.h"

namespace invar {
namespace {

const std::string kChat = "/v1/chat/completions";

// Asks in the background, and has the answer when it is wanted.
class Asked {
 public:
  Asked(Site& site, const std::string& path, Json body, const std::string& headers = {})
      : thread_([this, &site, path, body = std::move(body), headers] {
          answer_ = site.post(path, body, headers);
        }) {}
  ~Asked() { answer(); }
  HttpAnswer answer() {
    if (thread_.joinable()) thread_.join();
    return answer_;
  }

 private:
  HttpAnswer answer_;
  std::thread thread_;
};

// Until it holds; false: it did not within some seconds.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class Operations : public ServedModels {
 protected:
  static std::string slow(int delay_ms) {
    return script_line("abcdefgh", "eos", {1}, {{"delay_ms", delay_ms}});
  }
};

// --- tokens ---

TEST_F(Operations, TokensOfMessagesAreThoseOfTheChat) {
  Site site(*xml_, script_line("ok"));
  auto role = [](const char* name, const Json& content) {
    return Json{{"role", name}, {"content", content}};
  };
  Json called = role("assistant", nullptr);
  called["tool_calls"] = Json::array(
      {{{"id", "c1"}, {"type", "function"}, {"function", {{"name", "find"}, {"arguments", "{\"n\": 2}"}}}}});
  Json found = role("tool", Json::array({{{"type", "text"}, {"text", "two"}}}));
  found["tool_call_id"] = "c1";
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "find"}}}}});
  const Json bodies[] = {
      {{"messages", user("hi")}},
      {{"messages", {role("developer", "Be brief."), role("user", "a")}}},
      {{"messages", {role("user", "a"), role("assistant", "b"), role("system", "now"), role("user", "c")}}},
      {{"messages", {role("user", "a"), called, found}}, {"tools", tools}},
      {{"messages", {role("user", "a"), role("assistant", "I sa")}}},
      {{"messages", user("hi")}, {"chat_template_kwargs", {{"enable_thinking", false}}}},
      {{"messages", user("hi")}, {"reasoning_effort", "none"}},
  };
  for (Json body : bodies) {
    const Json said = site.post("/tokenize", body).json();
    const Json rendered = site.post(kChat + "/render", body).json();
    body.update({{"return_token_ids", true}, {"max_tokens", 1}});
    const Json chat = site.post(kChat, body).json();
    EXPECT_EQ(said["tokens"], chat["prompt_token_ids"]) << body;
    EXPECT_EQ(said["count"], chat["usage"]["prompt_tokens"]);
    EXPECT_EQ(rendered["prompt_token_ids"], chat["prompt_token_ids"]);
    const Json text = site.post("/detokenize", {{"tokens", said["tokens"]}}).json()["content"];
    EXPECT_EQ(rendered["prompt"], text);
    EXPECT_TRUE(text.get<std::string>().starts_with("<|im_start|>")) << text;
  }
}

TEST_F(Operations, TokensOfTexts) {
  Site site(*plain_, script_line("ok"));
  EXPECT_EQ(site.post("/tokenize", {{"prompt", "abc"}}).json(),
            Json({{"count", 3}, {"max_model_len", 4096}, {"tokens", {'a', 'b', 'c'}}}));
  EXPECT_EQ(site.post("/tokenize", {{"prompt", "ab"}, {"return_token_strs", true}}).json()["token_strs"],
            Json({"a", "b"}));
  EXPECT_EQ(site.post("/tokenize", {{"content", "ab"}}).json(), Json({{"tokens", {'a', 'b'}}}));
  EXPECT_EQ(site.post("/tokenize", {{"content", "a"}, {"with_pieces", true}}).json()["tokens"],
            Json::array({{{"id", 'a'}, {"piece", "a"}}}));
  EXPECT_EQ(site.post("/detokenize", {{"tokens", {'a', 'b'}}}).json(),
            Json({{"prompt", "ab"}, {"content", "ab"}}));
  EXPECT_EQ(site.post("/apply-template", {{"messages", user("x")}}).json()["prompt"],
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
  struct Bad {
    const char* path;
    Json body;
    const char* param;
  };
  const Bad cases[] = {{"/tokenize", {{"prompt", 5}}, "prompt"},
                       {"/tokenize", Json::object(), "prompt"},
                       {"/tokenize", {{"prompt", "x"}, {"add_special_tokens", "no"}}, "add_special_tokens"},
                       {"/tokenize", {{"messages", "x"}}, "messages"},
                       {"/tokenize", {{"messages", {{{"role", "king"}}}}}, "messages[0].role"},
                       {"/detokenize", {{"tokens", {70000}}}, "tokens"},
                       {"/detokenize", Json::object(), "tokens"}};
  for (const Bad& bad : cases) {
    const HttpAnswer a = site.post(bad.path, bad.body);
    EXPECT_EQ(a.status, 400) << a.body;
    EXPECT_EQ(a.json()["error"]["param"], bad.param) << a.body;
  }
}

TEST_F(Operations, BodiesHaveABoundOfDepth) {
  Site site(*plain_, script_line("ok"));
  auto ask = [&](int depth) {
    const std::string body = R"({"prompt": "x", "unknown": )" + std::string(size_t(depth), '[') +
                             std::string(size_t(depth), ']') + "}";
    return http_ask(site.port(), "POST", "/v1/completions", body);
  };
  EXPECT_EQ(ask(127).status, 200);
  EXPECT_EQ(ask(128).json()["error"]["code"], "invalid_json");
}

// --- a beginning of the answer, and what the answer must be ---

TEST_F(Operations, AStructureGoesOnFromWhatTheClientBegan) {
  Site site(*plain_, Site::engine(*plain_));
  auto ask = [&](const std::string& begun, const Json& structure) {
    Json body = {{"messages", user("x")}, {"temperature", 0}, {"max_tokens", 60}};
    body["messages"].push_back({{"role", "assistant"}, {"content", begun}});
    body.update(structure);
    return site.post(kChat, body);
  };
  const Json schema = {
      {"type", "object"},
      {"properties", {{"ok", {{"type", "boolean"}}}, {"s", {{"type", "string"}, {"maxLength", 3}}}}},
      {"required", {"ok", "s"}},
      {"additionalProperties", false}};
  const Json forced = {{"response_format", by_schema(schema)}};
  for (const char* begun :
       {"{", "{\"o", "{\"ok\":tr", "{ \"ok\" : true ,\n  \"s\": \"a b", "{\"ok\":false,\"s\":\"\\\"\"}"}) {
    const HttpAnswer a = ask(begun, forced);
    ASSERT_EQ(a.status, 200) << a.body;
    const std::string text = begun + said_by_chat(a.json())["content"].get<std::string>();
    const auto whole = parse_ordered_json(text, "answer");
    ASSERT_TRUE(whole) << text;
    EXPECT_TRUE((*whole)["ok"].is_boolean() && (*whole)["s"].is_string()) << text;
  }
  EXPECT_EQ(said_by_chat(ask("mn", {{"structured_outputs", {{"choice", {"mno", "azx"}}}}}).json())["content"],
            "o");
  for (const char* begun : {"Sure: {", "{\"no", "{\"ok\": tr ue", "{\"ok\": true "}) {
    const HttpAnswer refused = ask(begun, forced);
    EXPECT_EQ(refused.status, 400) << begun << refused.body;
    EXPECT_EQ(refused.json()["error"]["param"], "messages");
    EXPECT_EQ(refused.json()["error"]["code"], "invalid_prefix");
    EXPECT_NE(refused.body.find("response_format"), std::string::npos) << refused.body;
  }
}

TEST_F(Operations, AThoughtThatTheClientBeganIsNotPartOfTheStructure) {
  Site site(*xml_, Site::engine(*xml_));
  Json body = choosing(200);
  auto begin = [&](const char* text) {
    body["messages"][1] = {{"role", "assistant"}, {"content", text}};
    const HttpAnswer a = site.post(kChat, body);
    EXPECT_EQ(a.status, 200) << a.body;
    return said_by_chat(a.json());
  };
  EXPECT_EQ(begin("<think>\nwell\n</think>\n\nm")["content"], "no");
  body["thinking_token_budget"] = 5;
  const Json thinks = begin("<think>\nwel");
  EXPECT_TRUE(thinks["thought"].get<std::string>().starts_with("mnopq")) << thinks;
  EXPECT_EQ(thinks["content"], "azx");
  const std::string prompt = site.post("/apply-template", body).json()["prompt"];
  EXPECT_TRUE(prompt.ends_with("assistant\n<think>\nwel")) << prompt;
}

// --- limits and times ---

TEST_F(Operations, WhoWaitsTooLongIsToldToComeAgain) {
  SiteSettings settings;
  settings.limits.queue_s = 0.05;
  Site site(*plain_, slow(200), settings);
  std::vector<std::unique_ptr<Asked>> busy;
  for (int i = 0; i < Site::kRunning; ++i)
    busy.push_back(std::make_unique<Asked>(site, kChat, Json{{"messages", user("x")}}));
  ASSERT_TRUE(soon([&] { return site.metrics().running.value() == Site::kRunning; }));
  for (const bool stream : {false, true}) {
    const HttpAnswer a = site.post(kChat, {{"messages", user("x")}, {"stream", stream}});
    EXPECT_EQ(a.status, 503) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], "queue_timeout");
    EXPECT_EQ(a.header("Retry-After"), "5");
  }
  EXPECT_EQ(site.post("/v1/messages", {{"messages", user("x")}, {"max_tokens", 5}}).status, 529);
  for (auto& one : busy) EXPECT_EQ(one->answer().status, 200) << "who has begun goes on";
}

TEST_F(Operations, AQueueOfNoneTakesWhatFindsASequence) {
  SiteSettings settings;
  settings.limits.waiting = 0;
  Site site(*plain_, slow(50), settings);
  Json prompts = Json::array();
  for (int i = 0; i < 3 * Site::kRunning; ++i) prompts.push_back("x");
  const HttpAnswer batch = site.post("/v1/completions", {{"prompt", prompts}, {"max_tokens", 1}});
  ASSERT_EQ(batch.status, 200) << batch.body;
  EXPECT_EQ(batch.json()["choices"].size(), prompts.size());
  std::vector<std::unique_ptr<Asked>> busy;
  for (int i = 0; i < Site::kRunning; ++i)
    busy.push_back(std::make_unique<Asked>(site, kChat, Json{{"messages", user("x")}}));
  ASSERT_TRUE(soon([&] { return site.metrics().running.value() == Site::kRunning; }));
  EXPECT_EQ(site.post(kChat, {{"messages", user("x")}}).status, 429);
  for (auto& one : busy) EXPECT_EQ(one->answer().status, 200);
}

TEST_F(Operations, APromptAloneIsCounted) {
  Site site(*plain_, Site::engine(*plain_));
  const HttpAnswer a =
      site.post("/v1/completions", {{"prompt", std::string(600, 'a')}, {"max_tokens", 0}, {"echo", true}});
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(site.metrics().prompt_tokens.value(), a.json()["usage"]["prompt_tokens"].get<int64_t>());
}

TEST_F(Operations, FaultsOfTheRequestAreNotToBeTriedAgain) {
  SiteSettings settings;
  settings.api.any_model = false;
  settings.http.body_bytes = 1000;
  Site site(*plain_, script_line("ok"), settings);
  const Json other = {{"model", "nope"}, {"messages", user("x")}, {"max_tokens", 1}};
  const HttpAnswer posted = site.post(kChat, other), shown = site.get("/v1/models/nope");
  EXPECT_EQ(posted.status, 404);
  EXPECT_EQ(posted.body, shown.body) << "the same, whatever the path";
  EXPECT_EQ(posted.json()["error"]["param"], "model");
  EXPECT_EQ(posted.json()["error"]["code"], "model_not_found");
  const std::pair<int, HttpAnswer> refused[] = {
      {404, posted},
      {404, shown},
      {404, site.post("/v1/messages", other)},
      {400, site.post(kChat, {{"messages", 5}})},
      {400, site.post("/v1/messages", {{"max_tokens", "x"}})},
      {404, site.get("/v1/nothing")},
      {405, site.ask("DELETE", kChat)},
      {413, site.post(kChat, {{"messages", user(std::string(2000, 'x'))}})},
      {415, site.post(kChat, other, "Content-Encoding: gzip\r\n")}};
  for (const auto& [status, answer] : refused) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.header("x-should-retry"), "false") << answer.body;
  }
}

TEST_F(Operations, WhoTakesTooLongIsEnded) {
  SiteSettings settings;
  settings.limits.answer_s = 0.2;
  Site site(*plain_, script_line("abcdefgh", "eos", {1}, {{"delay_ms", 100}}), settings);
  const HttpAnswer whole = site.post(kChat, {{"messages", user("x")}});
  EXPECT_EQ(whole.status, 504) << whole.body;
  EXPECT_EQ(whole.json()["error"]["code"], "timeout");
  const HttpAnswer stream =
      site.post("/v1/messages", {{"messages", user("x")}, {"max_tokens", 9}, {"stream", true}});
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(events_of(stream.body).back().data["error"]["type"], "timeout_error") << stream.body;
}

TEST_F(Operations, AKeyMayHaveSoManyAtOnce) {
  SiteSettings settings;
  settings.http.keys = {"one", "two"};
  settings.api.most_per_key = 1;
  Site site(*plain_, slow(50), settings);
  const Json body = {{"messages", user("x")}, {"max_tokens", 8}};
  Asked first(site, kChat, body, "x-api-key: one\r\n");
  ASSERT_TRUE(soon([&] { return site.metrics().running.value() == 1; }));
  const HttpAnswer second = site.post(kChat, body, "Authorization: Bearer one\r\n");
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_NE(second.body.find("try again in 2s"), std::string::npos);
  EXPECT_EQ(second.header("retry-after-ms"), "2000");
  EXPECT_EQ(site.post(kChat, body, "x-api-key: two\r\n").status, 200);
  EXPECT_EQ(site.post("/tokenize", {{"prompt", "x"}}, "x-api-key: one\r\n").status, 200);
  EXPECT_EQ(first.answer().status, 200);
  for (int i = 0; i < 5; ++i)  // each at once after the last
    EXPECT_EQ(site.post(kChat, {{"messages", user("x")}, {"max_tokens", 1}}, "x-api-key: one\r\n").status,
              200);
}

// --- what goes on ---

TEST_F(Operations, PlacesAsLlamaServerShowsThem) {
  Site site(*plain_, slow(50));
  Json idle = site.get("/slots").json();
  ASSERT_EQ(idle.size(), size_t(Site::kRunning));
  EXPECT_EQ(idle[0]["id"], 0);
  EXPECT_EQ(idle[0]["id_task"], -1);
  EXPECT_EQ(idle[0]["is_processing"], false);
  EXPECT_EQ(site.get("/props").json()["total_slots"], idle.size());
  const Json body = {{"messages", user(std::string(100, 'x'))}, {"max_tokens", 6}, {"temperature", 0.5}};
  {
    Asked running(site, kChat, body);
    ASSERT_TRUE(soon([&] { return site.get("/slots").json()[0]["n_decoded"] > 0; }));
    const Json busy = site.get("/slots").json()[0];
    EXPECT_EQ(busy["is_processing"], true);
    EXPECT_EQ(busy["n_ctx"], 4096);
    EXPECT_EQ(busy["params"]["n_predict"], 6);
    EXPECT_EQ(busy["params"]["temperature"], 0.5);
    EXPECT_EQ(busy["n_prompt_tokens_cache"], 0);
    EXPECT_EQ(json_text(busy).find("xxx"), std::string::npos) << "no content";
  }
  const Json again = site.post(kChat, body).json();
  const Json shown = site.get("/slots").json();
  EXPECT_EQ(shown[0]["is_processing"], false);
  EXPECT_EQ(shown[0]["n_decoded"], 6) << "the last numbers stay";
  EXPECT_EQ(shown[1]["n_prompt_tokens"], again["usage"]["prompt_tokens"]);
  EXPECT_EQ(shown[1]["n_prompt_tokens_cache"], again["usage"]["prompt_tokens_details"]["cached_tokens"]);
  EXPECT_GT(shown[1]["n_prompt_tokens_cache"], 100);
}

TEST_F(Operations, ARequestIsShownAndStoppedByItsId) {
  Site site(*plain_, slow(100));
  for (const bool stream : {false, true}) {
    const std::string path = "/v1/requests/mine-" + std::to_string(stream);
    Asked asked(site, kChat, {{"messages", user("x")}, {"stream", stream}},
                "X-Request-Id: mine-" + std::to_string(stream) + "\r\n");
    ASSERT_TRUE(soon([&] { return site.get(path).json().value("answer_tokens", 0) > 0; }));
    const Json state = site.get(path).json();
    EXPECT_EQ(state["state"], "answering");
    EXPECT_EQ(state["path"], kChat);
    EXPECT_GT(state["prompt_tokens"], 0);
    EXPECT_EQ(site.ask("DELETE", path).json()["cancelled"], true);
    const HttpAnswer a = asked.answer();
    if (stream) {
      EXPECT_EQ(events_of(a.body).back().data["error"]["code"], "request_cancelled") << a.body;
    } else {
      EXPECT_EQ(a.status, 499);
      EXPECT_EQ(a.header("x-should-retry"), "false");
    }
    EXPECT_EQ(site.get(path).json()["state"], "ended");
    EXPECT_EQ(site.ask("DELETE", path).status, 404) << "it has ended";
  }
  EXPECT_EQ(site.get("/v1/requests/none").json()["error"]["code"], "request_not_found");
  EXPECT_EQ(site.metrics().cancelled_answering.value(), 2);
}

TEST_F(Operations, AKeySeesItsOwnRequests) {
  SiteSettings settings;
  settings.http.keys = {"one", "two"};
  settings.http.admin_key = "boss";
  Site site(*plain_, script_line("ok"), settings);
  const std::string path = "/v1/requests/r1";
  site.post(kChat, {{"messages", user("x")}}, "x-api-key: one\r\nX-Request-Id: r1\r\n");
  EXPECT_EQ(site.get(path, "x-api-key: one\r\n").json()["state"], "ended");
  EXPECT_EQ(site.get(path, "x-api-key: two\r\n").status, 404);
  EXPECT_EQ(site.get(path, "x-api-key: boss\r\n").json()["state"], "ended");

  settings.http.admin_key.clear();  // then who asks from here may change the server, not see the others'
  Site plain(*plain_, script_line("ok"), settings);
  plain.post(kChat, {{"messages", user("x")}}, "x-api-key: one\r\nX-Request-Id: r1\r\n");
  EXPECT_EQ(plain.get(path, "x-api-key: one\r\n").json()["state"], "ended");
  EXPECT_EQ(plain.get(path, "x-api-key: two\r\n").status, 404);
  EXPECT_EQ(plain.post("/admin/cache/clear", {}, "x-api-key: two\r\n").status, 200);
}

// Nothing reaches the service of what ended while it was read.
TEST_F(Operations, WhatEndsWhileItIsReadIsNotBegun) {
  class Held : public Service {  // reads until it is let go
   public:
    Result<uint64_t> submit(Request) override {
      ++submitted;
      return Error{Code::Io, "", "not to be asked"};
    }
    void cancel(uint64_t) override {}
    Statistics statistics() const override { return {}; }
    int64_t context() const override {
      while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return 4096;
    }
    int64_t vocab() const override { return kAlphabetTokens; }
    std::atomic<bool> held = true;
    std::atomic<int> submitted = 0;
  };
  const Json body = {{"messages", user("x")}};
  const std::string path = "/v1/requests/r1", id = "X-Request-Id: r1\r\n";
  auto known = [&](Site& site) { return soon([&] { return site.get(path).status == 200; }); };
  {  // stopped
    auto held = std::make_unique<Held>();
    Held& service = *held;
    Site site(*plain_, std::move(held));
    Asked asked(site, kChat, body, id);
    ASSERT_TRUE(known(site));
    EXPECT_EQ(site.get(path).json()["state"], "waiting");
    EXPECT_EQ(site.ask("DELETE", path).json()["cancelled"], true);
    service.held = false;
    const HttpAnswer a = asked.answer();
    EXPECT_EQ(a.status, 499) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], "request_cancelled");
    EXPECT_EQ(site.get(path).json()["state"], "ended");
    EXPECT_EQ(service.submitted, 0);
  }
  {  // its client has left
    auto held = std::make_unique<Held>();
    Held& service = *held;
    Site site(*plain_, std::move(held));
    const std::string text = json_text(body);
    const int client = connect_and_send(site.port(), "POST " + kChat + " HTTP/1.1\r\nHost: h\r\n" + id +
                                                         "Content-Length: " + std::to_string(text.size()) +
                                                         "\r\n\r\n" + text);
    ASSERT_TRUE(known(site));
    close(client);
    ASSERT_TRUE(soon([&] { return site.connections() == 0; }));
    service.held = false;
    ASSERT_TRUE(soon([&] { return site.served().text.waiting() == 0 && site.get(path).status == 404; }));
    EXPECT_EQ(service.submitted, 0);
  }
  for (const bool whole : {false, true}) {  // its time is over
    SiteSettings settings;
    (whole ? settings.limits.answer_s : settings.limits.queue_s) = 0.05;
    auto held = std::make_unique<Held>();
    Held& service = *held;
    Site site(*plain_, std::move(held), settings);
    Asked asked(site, kChat, body, id);
    ASSERT_TRUE(known(site));
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    service.held = false;
    const HttpAnswer a = asked.answer();
    EXPECT_EQ(a.status, whole ? 504 : 503) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], whole ? "timeout" : "queue_timeout");
    EXPECT_EQ(service.submitted, 0);
  }
}

TEST_F(Operations, MetricsUnderTheNamesOfOthers) {
  SiteSettings settings;
  settings.api.llama_metrics = true;
  Site site(*plain_, script_line("ok"), settings);
  site.post(kChat, {{"messages", user("x")}});
  const std::string text = site.get("/metrics").body;
  for (const char* line :
       {"# TYPE vllm:iteration_tokens_total histogram\n", "llamacpp:tokens_predicted_total{",
        "llamacpp:requests_processing{", "llamacpp:prompt_seconds_total{",
        "invar_cancelled_total{model_name=\"m\",engine=\"0\",phase=\"waiting\"} 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  EXPECT_NE(text.find("invar_template_seconds_count{model_name=\"m\",engine=\"0\"} 1\n"), std::string::npos);
  Site plain(*plain_, script_line("ok"));
  EXPECT_EQ(plain.get("/metrics").body.find("llamacpp:"), std::string::npos);
}

TEST_F(Operations, MalformedCallsAreCounted) {
  Site site(*xml_, script_line("</think>\n\n<tool_call>\n<function=other>\n</function>\n</tool_call>"));
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "find"}}}}});
  EXPECT_EQ(site.post(kChat, {{"messages", user("x")}, {"tools", tools}}).status, 200);
  EXPECT_EQ(site.metrics().parse_anomalies.value(), 1);
  EXPECT_EQ(site.post(kChat, {{"messages", user("x")}}).status, 200);
  EXPECT_EQ(site.metrics().parse_anomalies.value(), 1) << "without tools it is a text";
}

TEST(Models, AreListedWhileTheyAreRead) {
  const Json list = server::list_models({"a", "b"}, {}, nullptr);
  EXPECT_EQ(list["data"][1]["id"], "b");
  EXPECT_EQ(list["data"][1]["root"], "a");
  EXPECT_TRUE(list["data"][0]["max_model_len"].is_null());
}

TEST(Models, AnsweredWhileTheyAreRead) {
  server::ApiOptions api;
  api.names = {"a", "b"};
  api.any_model = false;
  server::HttpOptions options;
  options.port = 0;
  server::HttpServer http(options,
                          [&](const server::HttpRequest& request, std::shared_ptr<server::Reply> reply) {
                            server::answer_loading(api, {}, request, *reply);
                          });
  ASSERT_TRUE(http.start());
  auto ask = [&](const char* method, const char* path) { return http_ask(http.port(), method, path, {}); };
  EXPECT_EQ(ask("GET", "/v1/models").json()["data"].size(), 2u);
  EXPECT_EQ(ask("GET", "/models/b").json()["id"], "b");
  EXPECT_EQ(ask("HEAD", "/v1/models/b").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/c").json()["error"]["code"], "model_not_found");
  EXPECT_EQ(ask("POST", "/v1/models").status, 405);
  EXPECT_EQ(ask("POST", "/v1/models").header("Allow"), "GET");
  EXPECT_EQ(ask("GET", "/livez").status, 200);
  for (const char* path : {"/health", "/readyz", "/v1/modelsx"})
    EXPECT_EQ(ask("GET", path).json()["error"]["code"], "model_loading") << path;
  EXPECT_EQ(ask("POST", "/v1/messages").status, 529);
}

// --- what changes the server ---

TEST_F(Operations, AdminOfThisMachine) {
  Site site(*plain_, script_line("ok"));
  int ends = 0;
  bool logs = true;
  site.served().end = [&] { ++ends; };
  site.served().log_requests = [&](bool on) { logs = on; };
  const Json body = {{"messages", user(std::string(200, 'y'))}};
  auto cached = [&] { return cached_tokens(site.post(kChat, body)); };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 200);
  EXPECT_EQ(site.post("/admin/cache/clear", {}).json()["status"], "cleared");
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(site.post("/admin/log-level", {{"level", "none"}}).status, 200);
  EXPECT_FALSE(logs);
  EXPECT_EQ(site.post("/admin/log-level", {{"level", "loud"}}).json()["error"]["param"], "level");
  EXPECT_EQ(site.post("/admin/drain", {}, "Origin: http://elsewhere\r\n").status, 403)
      << "a web page must not end the server";
  EXPECT_EQ(ends, 0);
  EXPECT_EQ(site.post("/admin/drain", {}).status, 200);
  EXPECT_EQ(ends, 1);
}

TEST_F(Operations, AdminByKey) {
  SiteSettings settings;
  settings.http.keys = {"user"};
  settings.http.admin_key = "boss";
  Site site(*plain_, script_line("ok"), settings);
  EXPECT_EQ(site.post("/admin/cache/clear", {}).status, 401);
  EXPECT_EQ(site.post("/admin/cache/clear", {}, "x-api-key: user\r\n").status, 403);
  EXPECT_EQ(site.post("/admin/cache/clear", {}, "x-api-key: boss\r\n").status, 200);
  EXPECT_EQ(site.get("/slots", "Authorization: Bearer boss\r\n").status, 200);
}

TEST_F(Operations, EngineForgets) {
  Site site(*plain_, Site::engine(*plain_));
  const Json body = {{"prompt", std::string(600, 'a')}, {"temperature", 0}, {"max_tokens", 2}};
  auto cached = [&] { return cached_tokens(site.post("/v1/completions", body)); };
  EXPECT_EQ(cached(), 0);
  EXPECT_GT(cached(), 0);
  EXPECT_EQ(site.post("/admin/cache/clear", {}).status, 200);
  EXPECT_EQ(cached(), 0);
}

}  // namespace
}  // namespace invar
