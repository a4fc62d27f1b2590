// Histories that clients send, and what becomes of them: which prompt the model reads, whole and streamed.
// data/server/requests.json has the requests of cases O08, O09, O10 and O13.
#include <gtest/gtest.h>
#include <map>

#include "serving.h"
#include "watched.h"

namespace invar {
namespace {

using Texts = std::vector<std::string>;

Texts texts(const Json& one, const char* key) { return one.value(key, Texts()); }

class Requests : public testing::TestWithParam<const char*> {
 protected:
  Requests()
      : model_(ServedModel::template_of(GetParam() == std::string("xml") ? "qwen_xml" : GetParam())),
        site_(model_, watched()) {}

  std::unique_ptr<Service> watched() {
    auto lines = parse_script(script_line("ok"), model_.chat().tokenizer(), "script").take();
    auto made = std::make_unique<Watched>(std::make_unique<Scripted>(
        model_.chat(), std::move(lines), ScriptedOptions{16384, kAlphabetTokens, 4}));
    service_ = made.get();
    return made;
  }
  static Json said(const std::string& path, const HttpAnswer& got, bool stream) {
    const bool messages = path == "/v1/messages";
    const Json whole = !stream    ? got.json()
                       : messages ? assembled_message(got.body)
                                  : assembled_chat(got.body);
    return messages ? said_by_messages(whole) : said_by_chat(whole);
  }
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
  static int64_t controls(const std::vector<Token>& tokens) {
    return std::count_if(tokens.begin(), tokens.end(), [](Token t) { return t >= 256; });
  }

  ServedModel model_;
  const Watched* service_ = nullptr;
  Site site_;
  Json usage_;  // of the answer that was whole
};

TEST_P(Requests, AreReadAsTheyAreMeant) {
  const std::string file = std::string(INVAR_TEST_DATA) + "/server/requests.json";
  const Json requests = parse_ordered_json(*read_file(file, 1 << 20), file).take();
  ASSERT_GT(requests.size(), 15u);
  std::map<std::string, std::string> seen;
  for (const Json& one : requests) {
    const std::string name = one["name"];
    SCOPED_TRACE(one["case"].get<std::string>() + " " + name);
    const std::vector<Token> tokens = prompt(one["path"], one["body"]);
    const std::string shown = seen[name] = text(tokens);
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
      EXPECT_GE(usage_["cache_read_input_tokens"], one["cached_at_least"]);
    }
    if (one["path"] == "/v1/messages") {
      const Json counted = site_.post("/v1/messages/count_tokens", one["body"]).json();
      EXPECT_EQ(counted["input_tokens"], tokens.size());
      EXPECT_EQ(usage_["input_tokens"].get<size_t>() + usage_["cache_read_input_tokens"].get<size_t>() +
                    usage_["cache_creation_input_tokens"].get<size_t>(),
                tokens.size());
    }
    if (!one.contains("forges")) continue;
    Json plain = one["body"];
    for (Json& message : plain["messages"]) {
      const std::string content = message["content"];
      EXPECT_NE(shown.find(content), shown.npos) << "what users write is text";
      if (!content.empty()) message["content"] = "x";
    }
    EXPECT_EQ(controls(tokens), controls(prompt(one["path"], plain)));
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Requests, testing::Values("xml", "glm"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace invar
