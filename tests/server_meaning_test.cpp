// What a request says is never lost silently, and what an answer says is the same however it is told: content
// of wrong types, what is left out, numbers, calls that were cut, lone thoughts.
#include <gtest/gtest.h>
#include <mutex>

#include "serving.h"

namespace invar {
namespace {

using Meaning = ServedModels;

const std::string kChat = "/v1/chat/completions", kMessages = "/v1/messages", kResponses = "/v1/responses";
const std::string kBig = "123456789012345678901234567890";

// A request whose only message of the user has this content; null: none.
Json with_content(const std::string& path, const Json& content) {
  Json message = {{"role", "user"}};
  if (!content.is_null()) message["content"] = content;
  Json body = {{path == kResponses ? "input" : "messages", Json::array({message})}};
  if (path == kMessages) body["max_tokens"] = 5;
  return body;
}

TEST_F(Meaning, ContentOfAWrongTypeIsRefusedByName) {
  Site site(*plain_, script_line("ok"));
  struct Case {
    std::string path;
    Json content;
    std::string place;
  };
  const Json no_text = Json::array({{{"type", "text"}}});
  const std::vector<Case> cases = {
      {kChat, Json::array({5}), "messages[0].content[0]"},
      {kChat, Json::array({nullptr}), "messages[0].content[0]"},
      {kChat, no_text, "messages[0].content[0].text"},
      {kMessages, Json::array({"hi"}), "messages[0].content[0]"},
      {kMessages, Json::array({{{"type", "txt"}, {"text", "hi"}}}), "messages[0].content[0].type"},
      {kMessages, Json::array({{{"text", "hi"}}}), "messages[0].content[0].type"},
      {kMessages, no_text, "messages[0].content[0].text"},
      {kMessages, nullptr, "messages[0].content"},
      {kResponses, Json::array({5}), "input[0].content[0]"},
      {kResponses, Json::array({{{"type", "input_text"}}}), "input[0].content[0].text"},
      {kResponses, nullptr, "input[0].content"}};
  for (const Case& c : cases) {
    const HttpAnswer a = site.post(c.path, with_content(c.path, c.content));
    EXPECT_EQ(a.status, 400) << c.path << c.content << a.body;
    EXPECT_TRUE(a.json()["error"]["message"].get<std::string>().starts_with(c.place + ": ")) << a.body;
  }
  for (const Json& items : {Json::array({"hello"}), Json::array({{{"content", "x"}, {"kind", 1}}})})
    EXPECT_EQ(site.post(kResponses, {{"input", items}}).status, 400) << items;
  EXPECT_EQ(
      site.post(kChat, with_content(kChat, Json::array({"a", {{"type", "text"}, {"text", ""}}}))).status,
      200);
}

// Hosted tools, items and blocks of tools that the vendor runs: served without them, and the log says so.
TEST_F(Meaning, WhatIsLeftOutIsLogged) {
  std::mutex mutex;
  std::vector<std::string> lines;
  SiteSettings settings;
  settings.http.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  Json chat = with_content(kChat, "x"), messages = with_content(kMessages, "x"),
       responses = with_content(kResponses, "x");
  chat["tools"] = Json::array({{{"type", "web_search"}}});
  messages["tools"] = Json::array({{{"type", "web_search_20250305"}, {"name", "web_search"}}});
  messages["messages"].push_back(
      {{"role", "assistant"},
       {"content", Json::array({{{"type", "server_tool_use"}, {"id", "s"}, {"name", "web_search"}},
                                {{"type", "web_search_tool_result"}, {"content", Json::array()}},
                                {{"type", "text"}, {"text", "ok"}}})}});
  messages["messages"].push_back({{"role", "user"}, {"content", "y"}});
  responses["tools"] = Json::array({{{"type", "web_search"}}, {{"type", "image_generation"}}});
  responses["input"].push_back({{"type", "web_search_call"}, {"id", "w"}});
  {
    Site site(*plain_, script_line("ok"), settings);
    for (const auto& [path, body] :
         {std::pair{kChat, chat}, {kMessages, messages}, {kResponses, responses}}) {
      const HttpAnswer a = site.post(path, body);
      EXPECT_EQ(a.status, 200) << a.body;
    }
    EXPECT_EQ(site.post(kChat, with_content(kChat, "x")).status, 200);
  }
  const std::vector<Json> skipped = {{"web_search"},
                                     {"web_search_20250305", "server_tool_use", "web_search_tool_result"},
                                     {"web_search", "image_generation", "web_search_call"}};
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json line = *parse_ordered_json(lines[i], "log");
    if (i < skipped.size()) EXPECT_EQ(line.value("skipped", Json()), skipped[i]) << line;
    else EXPECT_FALSE(line.contains("skipped"));
  }
}

TEST_F(Meaning, PromptsThatAreCutAreEchoedAsTheyAre) {
  Site site(*plain_, Site::engine(*plain_));
  Json body = {{"prompt", "stuvwx"}, {"truncate_prompt_tokens", 2},
               {"echo", true},       {"temperature", 0},
               {"max_tokens", 2},    {"logprobs", 0}};
  const Json cut = site.post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(cut["text"], "wxyz");
  EXPECT_EQ(cut["logprobs"]["tokens"], Json({"w", "x", "y", "z"}));
  body["truncate_prompt_tokens"] = 100;
  EXPECT_EQ(site.post("/v1/completions", body).json()["choices"][0]["text"], "stuvwxyz");
  Json chat = with_content(kChat, "x");
  chat["truncate_prompt_tokens"] = 2;
  const HttpAnswer refused = site.post(kChat, chat);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["code"], "unsupported_parameter") << refused.body;
  EXPECT_EQ(refused.json()["error"]["param"], "truncate_prompt_tokens");
}

// As responses have it: what is oldest goes until the rest fits, if the client wants that.
TEST_F(Meaning, ResponsesAreTruncatedIfAskedFor) {
  Site site(*plain_, Site::engine(*plain_, 512));
  Json input = Json::array({{{"role", "developer"}, {"content", "rules"}}});
  for (int i = 0; i < 8; ++i) {
    input.push_back({{"role", "user"}, {"content", std::string(100, char('a' + i))}});
    input.push_back({{"role", "assistant"}, {"content", "so"}});
  }
  input.push_back({{"role", "user"}, {"content", "last"}});
  Json body = {{"input", input}, {"temperature", 0}, {"max_output_tokens", 3}};
  EXPECT_EQ(site.post(kResponses, body).status, 400);
  body["truncation"] = "disabled";
  EXPECT_EQ(site.post(kResponses, body).status, 400);
  body["truncation"] = "auto";
  const HttpAnswer cut = site.post(kResponses, body);
  ASSERT_EQ(cut.status, 200) << cut.body;
  EXPECT_EQ(cut.json()["truncation"], "auto");
  Json kept = Json::array({input[0]});
  for (size_t i = input.size() - 6; i < input.size(); ++i) kept.push_back(input[i]);
  const Json same =
      site.post(kResponses, {{"input", kept}, {"temperature", 0}, {"max_output_tokens", 3}}).json();
  EXPECT_LT(cut.json()["usage"]["input_tokens"], 512);
  EXPECT_GE(cut.json()["usage"]["input_tokens"], same["usage"]["input_tokens"]) << "no more than need be";
  body["input"] = "short";
  EXPECT_EQ(site.post(kResponses, body).status, 200);
  body["truncation"] = "zz";
  EXPECT_EQ(site.post(kResponses, body).json()["error"]["param"], "truncation");
  body["input"] = std::string(600, 'x');
  body["truncation"] = "auto";
  EXPECT_EQ(site.post(kResponses, body).status, 400) << "one message that does not fit";
}

TEST_F(Meaning, BigIntegersStayAsTheyAreWritten) {
  Site site(*xml_, script_line("hm\n</think>\n\n<tool_call>\n<function=f>\n<parameter=n>\n" + kBig +
                               "\n</parameter>\n</function>\n</tool_call>"));
  const Json schema = *parse_ordered_json(
      R"({"type":"object","properties":{"n":{"type":"integer","maximum":)" + kBig + "}}}", "schema");
  Json body = with_content(kMessages, "x");
  body["max_tokens"] = 500;
  body["tools"] = Json::array({{{"name", "f"}, {"input_schema", schema}}});
  const std::string input = "\"input\":{\"n\":" + kBig + "}";
  const HttpAnswer whole = site.post(kMessages, body);
  EXPECT_NE(whole.body.find(input), std::string::npos) << whole.body;
  body["stream"] = true;
  const HttpAnswer stream = site.post(kMessages, body);
  EXPECT_NE(json_text(assembled_message(stream.body)).find(input), std::string::npos) << stream.body;
  // The call of the answer goes back, as a text and as an object.
  for (const bool as_text : {true, false}) {
    const std::string arguments = "{\"n\":" + kBig + "}";
    const Json call = {
        {"name", "f"},
        {"arguments", as_text ? Json(arguments) : *parse_ordered_json(arguments, "arguments")}};
    Json replay = with_content(kChat, "x");
    replay["messages"].push_back(
        {{"role", "assistant"}, {"tool_calls", Json::array({{{"id", "c"}, {"function", call}}})}});
    replay["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c"}, {"content", "r"}});
    replay["tools"] =
        Json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}});
    const std::string prompt = site.post("/apply-template", replay).json()["prompt"];
    EXPECT_NE(prompt.find("<parameter=n>\n" + kBig + "\n"), std::string::npos) << prompt;
    EXPECT_NE(prompt.find("\"maximum\": " + kBig), std::string::npos) << prompt;
  }
  Json odd = with_content(kChat, "x");
  odd["seed"] = *parse_ordered_json(kBig, "seed");
  EXPECT_EQ(site.post(kChat, odd).json()["error"]["param"], "seed");
}

TEST_F(Meaning, WhatIsNoJsonIsRefusedInOurWords) {
  Site site(*plain_, script_line("ok"));
  Json body = with_content(kChat, "x");
  body["guided_json"] = "{bad";
  for (const HttpAnswer& a : {site.post(kChat, body), http_ask(site.port(), "POST", kChat, "{bad")}) {
    EXPECT_EQ(a.status, 400);
    EXPECT_NE(a.body.find("text that is no JSON from byte 2 on"), std::string::npos) << a.body;
    EXPECT_EQ(a.body.find("json.exception"), std::string::npos) << a.body;
  }
}

// Clients read both numbers: the first is the larger one.
TEST_F(Meaning, APromptAsLongAsTheContextIsTooLong) {
  Site site(*plain_, Site::engine(*plain_, 512));
  Json body = with_content(kMessages, "");
  const int64_t around = site.post("/v1/messages/count_tokens", body).json()["input_tokens"];
  auto ask = [&](int64_t tokens) {
    body["messages"][0]["content"] = std::string(size_t(tokens - around), 'x');
    return site.post(kMessages, body);
  };
  EXPECT_EQ(ask(511).status, 200);
  EXPECT_EQ(ask(512).json()["error"]["message"], "prompt is too long: 512 tokens > 511 maximum");
}

TEST_F(Meaning, AToolThatFailedIsSaidSo) {
  Site site(*xml_, script_line("ok"));
  auto count = [&](const Json& result) {
    Json body = with_content(kMessages, "x");
    body["messages"].push_back(
        {{"role", "assistant"},
         {"content",
          Json::array({{{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", Json::object()}}})}});
    Json block = {{"type", "tool_result"}, {"tool_use_id", "t"}};
    block.update(result);
    body["messages"].push_back({{"role", "user"}, {"content", Json::array({block})}});
    return site.post("/v1/messages/count_tokens", body).json()["input_tokens"].get<int64_t>();
  };
  const int64_t good = count({{"content", "gone"}, {"is_error", false}});
  EXPECT_EQ(count({{"content", "gone"}}), good);
  EXPECT_EQ(count({{"content", "gone"}, {"is_error", true}}), good + 7) << "Error: gone";
  EXPECT_EQ(count({{"content", "Error: gone"}, {"is_error", true}}), good + 7);
  EXPECT_EQ(count({{"is_error", true}}), count({{"content", "Error"}}));
}

// A model that opens its thoughts itself, by a token: its prompts end with a token behind which any may come.
TEST(LoneThoughts, OfModelsThatOpenThemGoOn) {
  const std::string source =
      "{# </think> #}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "<|im_start|>";
  const std::string path = write_alphabet_model(source, 4096, [](Metadata& keys) {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.push_back(byte_letter(b));
    for (const char* added : {"<|endoftext|>", "<|im_end|>", "<|im_start|>", "<think>"})
      tokens.push_back(added);
    std::vector<int32_t> types(256, 1);
    types.insert(types.end(), {3, 3, 3, 3});
    keys.set("tokenizer.ggml.tokens", Value::texts(tokens));
    keys.set("tokenizer.ggml.token_type", Value::i32s(types));
  });
  {
    const ServedModel model(source, path);
    Site site(model, Site::engine(model));
    // Of tokens that the model finds equal: first <think>, which it says once, then x.
    Json body = with_content(kChat, "x");
    body.update({{"temperature", 0}, {"max_tokens", 200}, {"presence_penalty", 2}});
    body["logit_bias"] = {{"259", 2}, {"120", 1}};
    const Json whole = site.post(kChat, body).json();
    const Json said = said_by_chat(whole);
    EXPECT_EQ(said["thought"], "xyz") << whole;
    EXPECT_EQ(said["content"], "bcdefghijklmnopqrstuvwxyz") << whole;
    EXPECT_EQ(said["finish"], "stop");
    EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 1 + 3 + 9)
        << "with both markers";
    EXPECT_EQ(site.metrics().lone_thoughts.value(), 1);
    EXPECT_NE(site.get("/metrics").body.find("invar_lone_thoughts_total{model_name=\"m\",engine=\"0\"} 1\n"),
              std::string::npos);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace invar
