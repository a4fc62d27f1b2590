// Answers that models gave, or could give, through the real server: each case in three APIs, whole and
// streamed, cut at many places.  data/server/cases.json has the cases.
#include <gtest/gtest.h>
#include <random>

#include "serving.h"

namespace invar {
namespace {

std::string bytes_of(const Json& one) {
  if (one.contains("text")) return one["text"];
  const std::string hex = one["hex"];
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<std::vector<int>> chunkings() {
  std::vector<std::vector<int>> all = {{1 << 20}, {1}, {2}, {3}, {7}};
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::minstd_rand random(seed);
    std::vector<int> sizes(20);
    for (int& n : sizes) n = 1 + int(random() % 9);
    all.push_back(sizes);
  }
  return all;
}

std::string trimmed(const std::string& text) {
  const size_t from = text.find_first_not_of(" \n");
  return from == text.npos ? "" : text.substr(from, text.find_last_not_of(" \n") + 1 - from);
}

class Cases : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    xml_ = new ServedModel(ServedModel::template_of("qwen_xml"));
    glm_ = new ServedModel(ServedModel::template_of("glm"));
    plain_ = new ServedModel(kChatMl);
  }
  static void TearDownTestSuite() {
    delete xml_;
    delete glm_;
    delete plain_;
  }
  static const ServedModel& model(const Json& one) {
    const std::string family = one["family"];
    return family == "glm-arg" ? *glm_ : family == "plain" ? *plain_ : *xml_;
  }
  static Json body(const Json& one, const std::string& path) {
    Json b = {{"model", "m"}, {"chat_template_kwargs", {{"enable_thinking", one["thinking"]}}}};
    const bool responses = path == "/v1/responses", messages = path == "/v1/messages";
    if (responses) b["input"] = "go";
    else b["messages"] = Json::array({{{"role", "user"}, {"content", "go"}}});
    if (messages) b["max_tokens"] = 2000;
    if (one.contains("stop")) b[messages ? "stop_sequences" : "stop"] = one["stop"];
    for (const Json& tool : one.value("tools", Json::array())) {
      const Json& f = tool["function"];
      if (messages) b["tools"].push_back({{"name", f["name"]}, {"input_schema", f["parameters"]}});
      else if (responses)
        b["tools"].push_back({{"type", "function"}, {"name", f["name"]}, {"parameters", f["parameters"]}});
      else b["tools"].push_back(tool);
    }
    return b;
  }
  static Json said(const std::string& path, const Json& whole) {
    return path == "/v1/responses"  ? said_by_responses(whole)
           : path == "/v1/messages" ? said_by_messages(whole)
                                    : said_by_chat(whole);
  }
  static Json assembled(const std::string& path, const std::string& stream) {
    return path == "/v1/responses"  ? assembled_response(stream)
           : path == "/v1/messages" ? assembled_message(stream)
                                    : assembled_chat(stream);
  }
  static void expect(const Json& wanted, const Json& said) {
    auto text = [&](const char* key) { return said[key].get<std::string>(); };
    for (const auto& [key, value] : wanted.items()) {
      if (key == "content") EXPECT_EQ(text("content"), value);
      else if (key == "content_trimmed") EXPECT_EQ(trimmed(text("content")), value);
      else if (key == "reasoning") EXPECT_EQ(text("thought"), value);
      else if (key == "reasoning_trimmed") EXPECT_EQ(trimmed(text("thought")), value);
      else if (key == "finish_reason") EXPECT_EQ(said["finish"], value);
      else if (key == "tool_calls") EXPECT_EQ(sorted(said["calls"]), sorted(value));
      else if (key == "reasoning_contains")
        for (const Json& part : value)
          EXPECT_NE(text("thought").find(part.get<std::string>()), std::string::npos);
      else EXPECT_EQ(key, "matched_stop") << "of the cases";
    }
  }

  static ServedModel *xml_, *glm_, *plain_;
};
ServedModel *Cases::xml_ = nullptr, *Cases::glm_ = nullptr, *Cases::plain_ = nullptr;

TEST_F(Cases, SayTheSameInEveryApiHoweverTheyAreCut) {
  const std::string file = std::string(INVAR_TEST_DATA) + "/server/cases.json";
  const auto cases = parse_ordered_json(*read_file(file, 1 << 22), file);
  ASSERT_TRUE(cases);
  ASSERT_GT(cases->size(), 30u);
  for (const Json& one : *cases)
    for (const auto& chunk : chunkings()) {
      Site site(model(one), script_line(bytes_of(one), one["end"], chunk));
      for (const char* path : {"/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
        SCOPED_TRACE(one["name"].get<std::string>() + " " + path + " in pieces of " +
                     std::to_string(chunk[0]));
        Json b = body(one, path);
        const HttpAnswer answer = site.post(path, b);
        ASSERT_EQ(answer.status, 200) << answer.body;
        const Json whole = answer.json();
        expect(one["expect"], said(path, whole));
        b["stream"] = true;
        if (std::string(path) == "/v1/chat/completions") b["stream_options"] = {{"include_usage", true}};
        const HttpAnswer stream = site.post(path, b);
        ASSERT_EQ(stream.status, 200) << stream.body;
        const Json together = assembled(path, stream.body);
        EXPECT_EQ(sorted(said(path, together)), sorted(said(path, whole)));
        for (const char* key : {"completion_tokens", "output_tokens"})
          EXPECT_EQ(whole["usage"].value(key, 0), together["usage"].value(key, 0));
        if (std::string(path) == "/v1/messages") {
          const Json stop = one["expect"].value("matched_stop", Json());
          EXPECT_EQ(whole["stop_sequence"], stop);
          EXPECT_EQ(whole["stop_reason"] == "stop_sequence", !stop.is_null());
          for (const Json& block : whole["content"]) EXPECT_NE(block.value("text", "x"), "");
        }
        if (HasFailure()) return;
      }
    }
}

}  // namespace
}  // namespace invar
