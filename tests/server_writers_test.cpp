// How each API writes one answer: against transcripts, and whole against streamed.
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "alphabet_model.h"
#include "engine/chat.h"
#include "server/chat_writer.h"
#include "server/completions_writer.h"
#include "server/messages_writer.h"
#include "server/responses_writer.h"
#include "streams.h"

namespace invar::server {
namespace {

class Writers : public testing::Test {
 protected:
  static void SetUpTestSuite() { chat_ = new Chat(alphabet_chat()); }
  static void TearDownTestSuite() { delete chat_; }
  static const Tokenizer& tokenizer() { return chat_->tokenizer(); }

  static Answer fresh(size_t choices = 1) {
    Answer a;
    a.id = "ANSWERANSWERANSWERANSWER";
    a.model = "m";
    a.created = 1700000000;
    a.seed = 7;
    a.prompts = {{{'h', 'i'}, {}, 1}};
    a.choices.resize(choices);
    return a;
  }

  using Story = std::function<void(Answer&, Gatherer&)>;
  static void tool_story(Answer& a, Gatherer& g) {
    Choice& c = a.choices[0];
    auto token = [&](Token t, Block::Kind part) {
      ++c.token_count;
      c.thought_tokens += part == Block::Kind::Thought;
      c.tokens.push_back({t, part, TokenLogprob{t, -0.5f, 1, {{t, -0.5f}, {Token('z'), -2}}}});
    };
    token('m', Block::Kind::Thought);
    g.thought(0, "Hm");
    g.thought(0, ", both.");
    token('o', Block::Kind::Text);
    g.text(0, "On it: \xC3\xA9");
    token('k', Block::Kind::Call);
    g.call(0, "weather");
    g.arguments(0, "{\"city\":");
    g.arguments(0, "\"Oslo\"}");
    g.call_complete(0);
    g.call(0, "time");
    g.arguments(0, "{}");
    g.call_complete(0);
    ++c.token_count;
    g.end_choice(0, Ending::Stop);
    g.end();
  }
  static void cut_story(Answer& a, Gatherer& g) {
    a.choices[0].token_count = 3;
    g.text(0, "Writing");
    g.call(0, "write");
    g.arguments(0, "{\"path\":\"a");
    g.end_choice(0, Ending::Length);
    g.end();
  }
  static void stop_story(Answer& a, Gatherer& g) {
    a.choices[0].token_count = 2;
    a.choices[0].stop_string = "END";
    g.text(0, "the ");
    g.end_choice(0, Ending::StopString);
    g.end();
  }
  static void empty_story(Answer& a, Gatherer& g) {
    a.choices[0].token_count = 1;
    g.end_choice(0, Ending::Stop);
    g.end();
  }

  struct Written {
    std::string whole, stream;
    std::vector<std::string> ids;
  };
  // The same gathered answer, streamed and then whole.
  template <class Make>
  static Written write(const Story& story, Make make, size_t choices = 1) {
    Written w;
    Answer a = fresh(choices);
    auto writer = make();
    Gatherer gatherer(a, writer.get(), [&](std::string event) { w.stream += event; });
    story(a, gatherer);
    w.whole = make()->whole(a);
    for (const Choice& c : a.choices)
      for (const Block& b : c.blocks) w.ids.push_back(b.id);
    return w;
  }
  static std::string without_ids(std::string text, const std::vector<std::string>& ids) {
    for (size_t i = 0; i < ids.size(); ++i)
      for (size_t at; (at = text.find(ids[i])) != text.npos;)
        text.replace(at, ids[i].size(), "BLOCK" + std::to_string(i));
    return text;
  }
  static void expect_transcript(const std::string& name, const Written& w) {
    const std::string found = without_ids(w.whole + "\n\n" + w.stream, w.ids);
    const std::string path = std::string(INVAR_TEST_DATA) + "/server/" + name + ".txt";
    std::stringstream expected;
    expected << std::ifstream(path).rdbuf();
    if (expected.str() == found) return;
    const std::string other = testing::TempDir() + name + ".txt";
    std::ofstream(other) << found;
    ADD_FAILURE() << path << " is not what was written: " << other;
  }
  static OpenAiForm form() {
    OpenAiForm f{tokenizer(), "invar-test"};
    f.stream_usage = true;
    return f;
  }

  static Chat* chat_;
};
Chat* Writers::chat_ = nullptr;

Json parsed(const std::string& text) {
  auto json = parse_ordered_json(text, "whole");
  EXPECT_TRUE(json) << text;
  return json ? json.take() : Json();
}

TEST_F(Writers, Transcripts) {
  auto chat = [] { return std::make_unique<ChatWriter>(form(), ChatWriter::Options{}); };
  auto messages = [] { return messages_writer("req_1"); };
  auto responses = [] {
    ResponsesForm f;
    f.encrypted = true;
    f.tools["time"] = {"now", "clock", false};
    return responses_writer(std::move(f), tokenizer());
  };
  auto completions = [] {
    return std::make_unique<CompletionsWriter>(std::vector<RawPrompt>{std::string("hi")}, form());
  };
  expect_transcript("chat-tools", write(tool_story, chat));
  expect_transcript("chat-cut", write(cut_story, chat));
  expect_transcript("messages-tools", write(tool_story, messages));
  expect_transcript("messages-cut", write(cut_story, messages));
  expect_transcript("responses-tools", write(tool_story, responses));
  expect_transcript("responses-cut", write(cut_story, responses));
  expect_transcript("completions-stop", write(stop_story, completions));
}

TEST_F(Writers, StreamsPutTogetherAreTheWhole) {
  const Story stories[] = {tool_story, cut_story, stop_story, empty_story};
  for (const Story& story : stories) {
    OpenAiForm f = form();
    f.logprobs = 2;
    Written w = write(story, [&] { return std::make_unique<ChatWriter>(f, ChatWriter::Options{}); });
    EXPECT_EQ(sorted(assembled_chat(w.stream)), sorted(parsed(w.whole)));
    w = write(story, [&] {
      return std::make_unique<CompletionsWriter>(std::vector<RawPrompt>{std::string("hi")}, f);
    });
    EXPECT_EQ(sorted(assembled_completion(w.stream)), sorted(parsed(w.whole)));
    w = write(story, [&] { return messages_writer("r"); });
    EXPECT_EQ(sorted(assembled_message(w.stream)), sorted(parsed(w.whole)));
    w = write(story, [&] { return responses_writer(ResponsesForm{}, tokenizer()); });
    EXPECT_EQ(sorted(assembled_response(w.stream)), sorted(parsed(w.whole)));
  }
}

TEST_F(Writers, ReasoningFieldByChoice) {
  for (const char* field : {"both", "reasoning", "reasoning_content", "content"}) {
    ChatWriter::Options o;
    o.reasoning_field = field;
    const Written w = write(tool_story, [&] { return std::make_unique<ChatWriter>(form(), o); });
    const Json message = parsed(w.whole)["choices"][0]["message"];
    const std::string name = field;
    EXPECT_EQ(message.contains("reasoning"), name == "both" || name == "reasoning");
    EXPECT_EQ(message.contains("reasoning_content"), name == "both" || name == "reasoning_content");
    EXPECT_EQ(message["content"].get<std::string>().starts_with("Hm, both."), name == "content");
    EXPECT_EQ(sorted(assembled_chat(w.stream)["choices"][0]["message"]), sorted(message));
  }
}

TEST_F(Writers, CustomToolsAreSaidAsText) {
  auto story = [](Answer&, Gatherer& g) {
    g.call(0, "patch");
    g.arguments(0, "{\"input\":\"a\\n");
    g.arguments(0, "b\"}");
    g.call_complete(0);
    g.end_choice(0, Ending::Stop);
    g.end();
  };
  ResponsesForm f;
  f.tools["patch"] = {"apply_patch", "", true};
  const Written w = write(story, [&] { return responses_writer(f, tokenizer()); });
  const Json item = parsed(w.whole)["output"][0];
  EXPECT_EQ(item["type"], "custom_tool_call");
  EXPECT_EQ(item["name"], "apply_patch");
  EXPECT_EQ(item["input"], "a\nb");
  EXPECT_EQ(sorted(assembled_response(w.stream)["output"][0]), sorted(item));
}

TEST_F(Writers, EachMessageHasTheLogProbabilitiesOfItsOwnTokens) {
  auto story = [](Answer& a, Gatherer& g) {
    auto token = [&](Token t, Block::Kind part) {
      a.choices[0].tokens.push_back({t, part, TokenLogprob{t, -0.5f, 1, {{t, -0.5f}}}});
    };
    token('m', Block::Kind::Thought);
    g.thought(0, "m");
    token('a', Block::Kind::Text);  // ends the thought, too
    g.text(0, "a");
    token('b', Block::Kind::Text);
    g.text(0, "b");
    token('k', Block::Kind::Call);
    g.call(0, "f");
    g.arguments(0, "{}");
    token('c', Block::Kind::Text);  // ends the call, too
    g.call_complete(0);
    g.text(0, "c");
    token('d', Block::Kind::Text);
    g.text(0, "d");
    g.end_choice(0, Ending::Stop);
    g.end();
  };
  ResponsesForm f;
  f.logprobs = 1;
  const Written w = write(story, [&] { return responses_writer(f, tokenizer()); });
  auto tokens = [](const Json& logprobs) {
    std::string text;
    for (const Json& one : logprobs) text += one["token"].get<std::string>();
    return text;
  };
  const Json output = parsed(w.whole)["output"];
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(tokens(output[1]["content"][0]["logprobs"]), "ab");
  EXPECT_EQ(tokens(output[3]["content"][0]["logprobs"]), "cd");
  std::string deltas, done;
  for (const SseEvent& e : events_of(w.stream)) {
    if (e.data["type"] == "response.output_text.delta") deltas += tokens(e.data["logprobs"]);
    if (e.data["type"] == "response.output_text.done") done += tokens(e.data["logprobs"]) + ";";
  }
  EXPECT_EQ(deltas, "abcd");
  EXPECT_EQ(done, "ab;cd;");
}

TEST_F(Writers, SeveralChoicesKeepApart) {
  auto story = [](Answer& a, Gatherer& g) {
    for (Choice& c : a.choices) c.token_count = 2;
    g.text(1, "b1");
    g.text(0, "a1");
    g.text(1, "b2");
    g.end_choice(0, Ending::Stop);
    g.text(1, "b3");
    g.end_choice(1, Ending::Length);
    g.end();
  };
  const Written w = write(
      story, [&] { return std::make_unique<ChatWriter>(form(), ChatWriter::Options{}); }, 2);
  const Json whole = parsed(w.whole);
  EXPECT_EQ(sorted(assembled_chat(w.stream)), sorted(whole));
  EXPECT_EQ(whole["choices"][1]["message"]["content"], "b1b2b3");
  EXPECT_EQ(whole["choices"][1]["finish_reason"], "length");
}

TEST_F(Writers, ABusyStreamIsToldLessOften) {
  bool busy = true;
  std::string stream;
  Answer a = fresh();
  ChatWriter writer(form(), {});
  Gatherer g(
      a, &writer, [&](std::string e) { stream += e; }, [&] { return busy; });
  for (int i = 0; i < 10; ++i) g.text(0, "x");
  EXPECT_TRUE(stream.empty());
  busy = false;
  g.text(0, "y");
  g.end_choice(0, Ending::Stop);
  g.end();
  const Json whole = assembled_chat(stream);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "xxxxxxxxxxy");
  EXPECT_EQ(chunks_of(stream).size(), 3u);
}

TEST_F(Writers, Base64ThereAndBack) {
  for (const std::string& text : {std::string(), std::string("a"), std::string("ab"), std::string("abc"),
                                  std::string("abcd"), std::string("\xC3\xA9\xFF\x00z", 5)}) {
    EXPECT_EQ(from_base64(to_base64(text)), text);
    EXPECT_EQ(to_base64(text).size() % 4, 0u);
  }
  EXPECT_EQ(to_base64("Man"), "TWFu");
  EXPECT_EQ(to_base64("Ma"), "TWE=");
  EXPECT_FALSE(from_base64("a!"));
}

}  // namespace
}  // namespace invar::server
