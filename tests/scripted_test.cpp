// The engine of scripts: which line answers, how it ends, what a constraint does to it.
#include "engine/scripted.h"

#include <future>
#include <gtest/gtest.h>

#include "alphabet_model.h"
#include "files/model_file.h"

namespace invar {
namespace {

struct Heard {
  std::vector<Token> tokens;
  std::vector<size_t> sizes;  // of the events
  Finish finish = Finish::Running;
  std::optional<Error> error;
  TokenUsage usage;
};

class ScriptedTest : public testing::Test {
 protected:
  void SetUp() override { chat_.emplace(alphabet_chat()); }

  std::unique_ptr<Scripted> engine(std::string_view script, int running = 4) {
    auto lines = parse_script(script, chat_->tokenizer(), "script");
    EXPECT_TRUE(lines) << lines.error().message;
    return std::make_unique<Scripted>(*chat_, lines.take(), ScriptedOptions{200, kAlphabetTokens, running});
  }
  Request ask(const std::string& text) {
    ChatInput input;
    input.messages = {message("user", text)};
    Request request;
    request.prompt = *chat_->prompt(input);
    request.stop = chat_->stop();
    return request;
  }
  Heard hear(Scripted& engine, Request request, int enough = INT32_MAX) {
    Heard heard;
    std::promise<void> ended;
    request.on_event = [&](const Event& e) {
      heard.tokens.insert(heard.tokens.end(), e.tokens.begin(), e.tokens.end());
      if (!e.tokens.empty()) heard.sizes.push_back(e.tokens.size());
      heard.finish = e.finish;
      heard.error = e.error;
      heard.usage = e.usage;
      if (e.finish != Finish::Running) ended.set_value();
      return int(heard.tokens.size()) < enough;
    };
    auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id);
    ended.get_future().wait();
    return heard;
  }
  std::string text_of(const Heard& heard) { return decode(chat_->tokenizer(), heard.tokens); }

  std::optional<Chat> chat_;
};

TEST_F(ScriptedTest, TheFirstLineThatFitsAnswers) {
  auto e = engine(R"({"match": "weather", "last": ["rain"], "text": "wet"}
{"match": "weather", "ends": "weather", "text": "none ends so"}
{"match": "weather", "ends": "assistant\n", "text": "dry", "times": 1, "chunk": [1, 2]}

{"text": "what", "end": "length"})");
  EXPECT_EQ(text_of(hear(*e, ask("weather: rain?"))), "wet");
  const Heard dry = hear(*e, ask("the weather"));
  EXPECT_EQ(text_of(dry), "dry");
  EXPECT_EQ(dry.finish, Finish::Stop);
  EXPECT_EQ(dry.sizes, (std::vector<size_t>{1, 2}));
  const Heard third = hear(*e, ask("the weather"));
  EXPECT_EQ(text_of(third), "what");
  EXPECT_EQ(third.finish, Finish::Length);
  EXPECT_EQ(third.usage.cached_tokens, third.usage.prompt_tokens - 1);
  EXPECT_EQ(e->statistics().finished, 3);
}

TEST_F(ScriptedTest, Ends) {
  auto e = engine(R"({"match": "fail", "text": "half", "end": "fail"}
{"match": "control", "text": "a<|im_end|>b"}
{"match": "many", "text": "ab", "repeat": 1000})");
  const Heard failed = hear(*e, ask("fail"));
  EXPECT_EQ(text_of(failed), "half");
  EXPECT_EQ(failed.finish, Finish::Failed);
  EXPECT_TRUE(failed.error);
  EXPECT_EQ(text_of(hear(*e, ask("control"))), "a");
  Request few = ask("many");
  few.max_tokens = 3;
  EXPECT_EQ(hear(*e, std::move(few)).finish, Finish::Length);
  EXPECT_EQ(hear(*e, ask("many"), 5).finish, Finish::StopString);
  const Heard full = hear(*e, ask("many"));
  EXPECT_EQ(full.finish, Finish::Length);
  EXPECT_EQ(full.usage.prompt_tokens + full.usage.answer_tokens, 200);
  EXPECT_EQ(hear(*e, ask("nothing")).finish, Finish::Failed);
}

struct Digits : Constraint {  // three digits, then the end
  int left = 3;
  void mask(std::span<uint64_t> allowed) override {
    for (uint64_t& word : allowed) word = 0;
    for (int c = '0'; c <= '9'; ++c) allowed[size_t(c) / 64] |= uint64_t(1) << (c % 64);
  }
  bool accept(Token) override { return --left > 0; }
  std::unique_ptr<Constraint> copy() const override { return std::make_unique<Digits>(*this); }
};

TEST_F(ScriptedTest, ObeysAConstraint) {
  auto e = engine(R"({"match": "good", "text": "1234"}
{"match": "bad", "text": "12x4"})");
  Request good = ask("good"), bad = ask("bad");
  good.constraint = std::make_unique<Digits>();
  bad.constraint = std::make_unique<Digits>();
  EXPECT_EQ(text_of(hear(*e, std::move(good))), "123");
  const Heard refused = hear(*e, std::move(bad));
  EXPECT_EQ(refused.finish, Finish::Failed);
  EXPECT_NE(refused.error->message.find("'x'"), std::string::npos);
}

TEST_F(ScriptedTest, CancelsWhatWaitsReadsAndAnswers) {
  auto e = engine(R"({"match": "read", "text": "x", "prompt_ms": 60000}
{"text": "x", "repeat": 100, "delay_ms": 60000})",
                  2);
  std::vector<uint64_t> ids;
  std::vector<std::promise<Finish>> ends(3);
  int i = 0;
  for (const char* text : {"read", "answer", "wait"}) {
    Request request = ask(text);
    request.on_event = [&end = ends[size_t(i++)]](const Event& event) {
      if (event.finish != Finish::Running) end.set_value(event.finish);
      return true;
    };
    ids.push_back(*e->submit(std::move(request)));
  }
  for (size_t k : {2u, 0u, 1u}) {
    e->cancel(ids[k]);
    auto end = ends[k].get_future();
    ASSERT_EQ(end.wait_for(std::chrono::seconds(2)), std::future_status::ready);
    EXPECT_EQ(end.get(), Finish::Cancelled);
  }
}

TEST_F(ScriptedTest, FaultsOfTheFileNameTheirPlace) {
  for (auto [script, where] : {std::pair("{}", "script:1"),
                               {"\n[1]", "script:2"},
                               {"{\"text\": 1}", "script:1.text"},
                               {"{\"tokens\": [999]}", "script:1.tokens"},
                               {"{\"text\": \"\", \"end\": \"x\"}", "script:1.end"},
                               {"{\"text\": \"\", \"odd\": 1}", "script:1.odd"},
                               {"", "script"}}) {
    auto lines = parse_script(script, chat_->tokenizer(), "script");
    ASSERT_FALSE(lines) << script;
    EXPECT_EQ(lines.error().where, where);
  }
}

}  // namespace
}  // namespace invar
