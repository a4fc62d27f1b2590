// Histories that clients send, and what becomes of them: which prompt the model reads, whole and streamed.
// data/server/requests.json has requests that clients send.
#include <gtest/gtest.h>
#include <map>

#include "serving.h"
#include "watched.h"

namespace invar {
namespace {

using Texts = std::vector<std::string>;

Texts texts(const Json& one, const char* key) { return one.value(key, Texts()); }

// A server that is asked, and what its model was given to read.
class Reading {
 public:
  explicit Reading(const std::string& chat_template, server::ApiOptions api = {})
      : model_(chat_template), site_(model_, watched(), {.api = std::move(api)}) {}

  // The tokens of the prompt, the same whole and streamed.
  std::vector<Token> prompt(const std::string& path, Json body) {
    std::vector<Json> answers;
    for (const bool stream : {false, true}) {
      body["stream"] = stream;
      const HttpAnswer got = site_.post(path, body);
      EXPECT_EQ(got.status, 200) << got.body;
      if (got.status != 200) return {};
      answers.push_back(said(path, got, stream));
      if (!stream) usage_ = got.json()["usage"];
    }
    EXPECT_EQ(sorted(answers[0]), sorted(answers[1]));
    const auto heard = service_->heard();
    std::vector<std::vector<Token>> prompts;
    for (const auto& one : {heard[heard.size() - 2], heard.back()})
      prompts.emplace_back(one.tokens.begin(), one.tokens.begin() + long(one.prompt));
    EXPECT_EQ(prompts[0], prompts[1]);
    return prompts[0];
  }
  std::string text(const std::vector<Token>& tokens) const {
    std::string out;
    for (Token t : tokens) out += model_.chat().tokenizer().piece(t);
    return out;
  }
  Site& site() { return site_; }
  const Json& usage() const { return usage_; }  // of the last answer

 private:
  std::unique_ptr<Service> watched() {
    auto lines = parse_script(script_line("ok"), model_.chat().tokenizer(), "script").take();
    auto made = std::make_unique<Watched>(std::make_unique<Scripted>(
        model_.chat(), std::move(lines), ScriptedOptions{16384, kAlphabetTokens, 4}));
    service_ = made.get();
    return made;
  }
  static Json said(const std::string& path, const HttpAnswer& got, bool stream) {
    if (path == "/v1/messages") return said_by_messages(stream ? assembled_message(got.body) : got.json());
    if (path == "/v1/responses") return said_by_responses(stream ? assembled_response(got.body) : got.json());
    return said_by_chat(stream ? assembled_chat(got.body) : got.json());
  }

  ServedModel model_;
  const Watched* service_ = nullptr;
  Site site_;
  Json usage_;
};

int64_t controls(const std::vector<Token>& tokens) {
  return std::count_if(tokens.begin(), tokens.end(), [](Token t) { return t >= 256; });
}

class Requests : public testing::TestWithParam<const char*> {
 protected:
  Reading reading_{ServedModel::template_of(GetParam() == std::string("xml") ? "qwen_xml" : GetParam())};
};

TEST_P(Requests, AreReadAsTheyAreMeant) {
  const std::string file = std::string(INVAR_TEST_DATA) + "/server/requests.json";
  const Json requests = parse_ordered_json(*read_file(file, 1 << 20), file).take();
  ASSERT_GT(requests.size(), 15u);
  std::map<std::string, std::string> seen;
  for (const Json& one : requests) {
    const std::string name = one["name"];
    SCOPED_TRACE(one["case"].get<std::string>() + " " + name);
    const std::vector<Token> tokens = reading_.prompt(one["path"], one["body"]);
    const std::string shown = seen[name] = reading_.text(tokens);
    size_t at = 0;
    Texts parts = texts(one, "shows");
    if (one.contains("shows_in")) parts = texts(one["shows_in"], GetParam());
    for (const std::string& part : parts) {
      at = shown.find(part, at);
      ASSERT_NE(at, shown.npos) << part << " in " << shown;
    }
    for (const std::string& part : texts(one, "hides")) EXPECT_EQ(shown.find(part), shown.npos) << shown;
    if (one.contains("same_as")) { EXPECT_EQ(shown, seen.at(one["same_as"])); }
    if (one.contains("same_until")) {
      const std::string other = seen.at(one["same_until"][0]), last = one["same_until"][1];
      EXPECT_EQ(shown.substr(0, shown.find(last)), other.substr(0, other.find(last)));
    }
    if (one.contains("cached_at_least")) {
      EXPECT_GE(reading_.usage()["cache_read_input_tokens"], one["cached_at_least"]);
    }
    if (one["path"] == "/v1/messages") {
      const Json counted = reading_.site().post("/v1/messages/count_tokens", one["body"]).json();
      EXPECT_EQ(counted["input_tokens"], tokens.size());
      EXPECT_EQ(reading_.usage()["input_tokens"].get<size_t>() +
                    reading_.usage()["cache_read_input_tokens"].get<size_t>() +
                    reading_.usage()["cache_creation_input_tokens"].get<size_t>(),
                tokens.size());
    }
    if (!one.contains("forges")) continue;
    Json plain = one["body"];
    for (Json& message : plain["messages"]) {
      const std::string content = message["content"];
      EXPECT_NE(shown.find(content), shown.npos) << "what users write is text";
      if (!content.empty()) message["content"] = "x";
    }
    EXPECT_EQ(controls(tokens), controls(reading_.prompt(one["path"], plain)));
  }
}

// Headers that change from turn to turn, and the switch that has the headers stay.
TEST(Headers, StayInSystemTextIfTheServerIsToldSo) {
  const std::string header = "x-anthropic-billing-header: cch=1a2b3;", rule = "Be brief.";
  const Json user = Json::array({{{"role", "user"}, {"content", header}}});
  const Json parts = Json::array({{{"type", "text"}, {"text", header}}, {{"type", "text"}, {"text", rule}}});
  const Json together = header + "\n\n" + rule;
  auto chat = [&](const Json& system) {
    Json messages = user;
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
    return Json{{"messages", messages}};
  };
  auto message = [&](const Json& system) {
    return Json{{"max_tokens", 5}, {"system", system}, {"messages", user}};
  };
  const std::vector<std::pair<const char*, Json>> requests = {
      {"/v1/chat/completions", chat(parts)},
      {"/v1/messages", message(parts)},
      {"/v1/chat/completions", chat(together)},
      {"/v1/messages", message(together)},
      {"/v1/responses", {{"instructions", together}, {"input", header}}}};
  for (const bool keep : {false, true}) {
    server::ApiOptions options;
    options.keep_headers = keep;
    Reading reading(kChatMl, options);
    const std::string wanted = "<|im_start|>system\n" + (keep ? header + "\n\n" : "") + rule +
                               "<|im_end|>\n<|im_start|>user\n" + header +
                               "<|im_end|>\n<|im_start|>assistant\n";
    for (const auto& [path, body] : requests)
      EXPECT_EQ(reading.text(reading.prompt(path, body)), wanted) << path << json_text(body);
  }
}

// Templates that refuse two turns of the user side by side, each in another way; the last takes them.
const std::string kTurn = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n";
const std::string kByPlace =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns must alternate') }}{% endif %}" +
    kTurn + "{% endfor %}";
const std::string kBehindSystem =
    "{% if messages[0].role == 'system' %}{% set said = messages[1:] %}{{ messages[0].content }}"
    "{% else %}{% set said = messages %}{% endif %}{% for m in said %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}"
    "{% endif %}" +
    kTurn + "{% endfor %}";
const std::string kByTheOneBefore =
    "{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role == ns.last %}"
    "{{ raise_exception('two turns of ' ~ m.role) }}{% endif %}{% set ns.last = m.role %}" +
    kTurn + "{% endfor %}";

TEST(Alternation, TurnsOfTheUserBecomeOneWhereTheTemplateDemandsIt) {
  const Json turns = Json::array({{{"role", "user"}, {"content", "one"}},
                                  {{"role", "user"}, {"content", "two"}},
                                  {{"role", "assistant"}, {"content", "yes"}},
                                  {{"role", "user"}, {"content", "three"}},
                                  {{"role", "system"}, {"content", "late"}},
                                  {{"role", "user"}, {"content", "four"}}});
  const std::vector<std::pair<const char*, Json>> requests = {
      {"/v1/chat/completions", {{"messages", turns}}},
      {"/v1/messages", {{"max_tokens", 5}, {"messages", turns}}},
      {"/v1/responses", {{"input", turns}}}};
  const std::string late = "<system-message>\nlate\n</system-message>",
                    next = "<|im_end|>\n<|im_start|>user\n";
  auto shown = [&](const std::string& between) {
    return "<|im_start|>user\none" + between + "two<|im_end|>\n<|im_start|>assistant\nyes" + next + "three" +
           between + late + between + "four<|im_end|>\n";
  };
  for (const std::string& source : {kByPlace, kBehindSystem, kByTheOneBefore, std::string(kChatMl)}) {
    Reading reading(source);
    const bool takes_two = source == kChatMl;
    const std::string wanted = takes_two ? shown(next) + "<|im_start|>assistant\n" : shown("\n\n");
    for (const auto& [path, body] : requests)
      EXPECT_EQ(reading.text(reading.prompt(path, body)), wanted) << path << source;
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Requests, testing::Values("xml", "glm"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace invar
