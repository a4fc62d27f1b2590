// Token ids in, token ids out, through the real server: whatever was known, kept, cancelled or asked at the
// same time, the answers are those of a server that keeps nothing, and of a plain run, token by
// token.  Each answer comes whole from one side and streamed from the other.
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "questions.h"
#include "serving.h"

namespace invar {
namespace {

constexpr int64_t kG = 512;  // positions between two snapshots, at most
constexpr int64_t kContext = 8192;
constexpr Token kVocab = 256;  // what prompts are made of: bytes

struct Said {
  std::vector<Token> tokens;
  int64_t cached = 0, prompt = 0, answer = 0;
  std::string text, finish;
};

class Served : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = tiny_model(GetParam());
    std::string bytes = read_file(path_, uint64_t(1) << 32).take();
    const std::string name = ".context_length";
    const size_t at = bytes.find(name) + name.size() + 4;  // behind the name and the type
    const uint32_t context = kContext;
    std::memcpy(&bytes[at], &context, sizeof context);
    std::ofstream(path_, std::ios::binary) << bytes;
    model_.emplace(std::string(), path_);
  }
  void TearDown() override {
    model_.reset();
    std::remove(path_.c_str());
  }

  std::unique_ptr<Service> engine(bool reuse = true) const { return Site::engine(*model_, kContext, reuse); }

  static Json body(const std::vector<Token>& prompt, int64_t most) {
    return {{"prompt", prompt},   {"max_tokens", most},       {"temperature", 0},
            {"ignore_eos", true}, {"return_token_ids", true}, {"model", "m"}};
  }
  static Said ask(Site& site, Json body, bool stream) {
    if (stream) body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
    const HttpAnswer got = site.post("/v1/completions", body);
    EXPECT_EQ(got.status, 200) << got.body;
    const Json whole = stream ? assembled_completion(got.body) : got.json();
    const Json &choice = whole["choices"][0], &usage = whole["usage"];
    return {choice["token_ids"].get<std::vector<Token>>(),
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
            choice["text"],
            choice["finish_reason"]};
  }

  std::string path_;
  std::optional<ServedModel> model_;
};

// Sends the request and leaves once `enough` says so.
template <class Enough>
void ask_and_leave(int port, const Json& body, const Enough& enough) {
  const std::string text = json_text(body);
  const int fd = connect_and_send(port, "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: " +
                                            std::to_string(text.size()) + "\r\n\r\n" + text);
  for (int i = 0; i < 10000 && !enough(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  close(fd);
}

void wait_until_idle(const Service& service) {
  for (int i = 0; i < 10000; ++i) {
    const Statistics s = service.statistics();
    if (s.submitted == s.finished + s.cancelled + s.failed) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "requests go on after their clients have left";
}

// Turns of conversations, warm and cold.
class Reused : public Served {
 protected:
  void start() {
    warm_.emplace(*model_, engine());
    cold_.emplace(*model_, engine(false));
  }
  // The answer, which must be the cold server's; at least so many tokens of the prompt were known.
  std::vector<Token> turn(const std::vector<Token>& prompt, int64_t known, const std::string& what) {
    SCOPED_TRACE(what + ", " + std::to_string(prompt.size()) + " tokens");
    const int64_t before = warm_->service().statistics().prompt_rows;
    const bool stream = ++turns_ % 2 == 0;
    const Said got = ask(*warm_, body(prompt, kGenerate), stream),
               wanted = ask(*cold_, body(prompt, kGenerate), !stream);
    EXPECT_EQ(got.tokens, wanted.tokens);
    EXPECT_EQ(got.text, wanted.text);
    EXPECT_EQ(got.tokens.size(), size_t(kGenerate));
    EXPECT_EQ(wanted.cached, 0);
    EXPECT_GE(got.cached, known);
    wait_until_idle(warm_->service());
    EXPECT_EQ(got.prompt - got.cached, warm_->service().statistics().prompt_rows - before)
        << "told truthfully";
    const PoolUse use = warm_->service().statistics().state;
    EXPECT_LE(use.used_bytes, use.budget_bytes);
    return got.tokens;
  }
  void more(std::vector<Token>& to, int64_t n) {
    const auto tokens = random_tokens(n, ++seed_, kVocab);
    to.insert(to.end(), tokens.begin(), tokens.end());
  }

  static constexpr int64_t kGenerate = 24, kAppended = 37;
  std::optional<Site> warm_, cold_;
  uint32_t seed_ = 11;
  int turns_ = 0;
};

TEST_P(Reused, TurnsOfConversations) {
  for (int64_t length : {16, 63, 64, 65, 200, 900, 3000, 6000}) {
    start();
    std::vector<Token> prompt;
    more(prompt, length);
    std::vector<Token> said = turn(prompt, 0, "first");
    int64_t before = 0;
    for (int i = 0; i < (length < 3000 ? 3 : 1); ++i) {
      before = int64_t(prompt.size());
      prompt.insert(prompt.end(), said.begin(), said.end());
      more(prompt, kAppended);
      said = turn(prompt, before, "append");
    }
    before = int64_t(prompt.size());
    turn(prompt, std::max<int64_t>(1, before - kG), "regenerate");
    prompt.resize(size_t(before - 9));
    more(prompt, 12 + kAppended);
    turn(prompt, before - 9 - kG, "the template drops a thought");
    prompt.resize(prompt.size() / 2);
    const auto half = int64_t(prompt.size());
    more(prompt, 20);
    turn(prompt, half - kG, "edited in the middle");
    if (HasFailure()) return;
  }
}

TEST_P(Reused, TwoConversationsInTurn) {
  for (int64_t length : {16, 65, 900, 6000}) {
    start();
    std::vector<Token> system;
    more(system, length / 2);
    std::vector<std::vector<Token>> talks(2, system);
    for (auto& talk : talks) more(talk, length - length / 2);
    std::vector<int64_t> before(2, 0);
    for (int round = 0; round < (length < 3000 ? 3 : 2); ++round)
      for (size_t i : {0u, 1u}) {
        const auto said = turn(talks[i], before[i], i ? "B" : "A");
        before[i] = int64_t(talks[i].size());
        talks[i].insert(talks[i].end(), said.begin(), said.end());
        more(talks[i], kAppended);
      }
  }
}

TEST_P(Reused, AfterAClientThatLeftHalfWay) {
  start();
  std::vector<Token> prompt;
  more(prompt, 6000);
  const Service& service = warm_->service();
  ask_and_leave(warm_->port(), body(prompt, kGenerate),
                [&] { return service.statistics().prompt_rows >= 2 * kG; });
  wait_until_idle(service);
  const int64_t rows = service.statistics().prompt_rows;
  ASSERT_GE(rows, 2 * kG);
  turn(prompt, 1, "after " + std::to_string(rows) + " rows");
}

INSTANTIATE_TEST_SUITE_P(Models, Reused, testing::Values("qwen35:tiny", "llama:tiny"), [](const auto& p) {
  return std::string(p.param).substr(0, std::string(p.param).find(':'));
});

// As far as it can be seen from outside, an answer is that of a plain run whatever the engine did to be
// faster, and ends where that ends.
class Plain : public Served {
 protected:
  static constexpr int64_t kGenerate = 256;

  void SetUp() override {
    Served::SetUp();
    RunnerOptions options;
    options.threads = 1;
    options.memory_bytes = 256 << 20;
    options.context = kContext;
    runner_ = ModelRunner::open(model_->file(), options).take();
    site_.emplace(*model_, engine());
  }
  void TearDown() override {
    site_.reset();
    runner_.reset();
    Served::TearDown();
  }
  std::vector<Token> plain(const std::vector<Token>& prompt, int64_t most = kGenerate) {
    Question q;
    q.prompt = prompt;
    q.most = most;
    q.sampling.temperature = 0;
    return plain_answer(*runner_, q).tokens;
  }
  std::vector<Token> prompt(int64_t length) const {
    return random_tokens(length, uint32_t(5 + length), kVocab);
  }
  // Both ways.
  std::vector<Said> ask_twice(const Json& body) {
    return {ask(*site_, body, false), ask(*site_, body, true)};
  }

  std::unique_ptr<ModelRunner> runner_;
  std::optional<Site> site_;
};

TEST_P(Plain, FirstAndSecondTurns) {
  for (int64_t length : {1, 7, 64, 129, 700}) {
    std::vector<Token> text = prompt(length);
    for (int turn = 0; turn < 2; ++turn) {
      const std::vector<Token> wanted = plain(text);
      for (const Said& got : ask_twice(body(text, kGenerate))) {
        EXPECT_EQ(got.tokens, wanted) << length << ", turn " << turn;
        EXPECT_EQ(got.finish, "length");
        if (turn > 0) { EXPECT_GT(got.cached, 0); }
      }
      text.insert(text.end(), wanted.begin(), wanted.end());
      const auto more = prompt(30);
      text.insert(text.end(), more.begin(), more.end());
    }
  }
}

TEST_P(Plain, TwoAtOnceAndOneEndsEarlier) {
  const std::vector<Token> a = prompt(64), b = prompt(129);
  const std::vector<Token> wanted_a = plain(a), wanted_b = plain(b, 20);
  for (const bool stream : {false, true}) {
    Said got_a, got_b;
    std::thread other([&] { got_b = ask(*site_, body(b, 20), stream); });
    got_a = ask(*site_, body(a, kGenerate), !stream);
    other.join();
    EXPECT_EQ(got_a.tokens, wanted_a);
    EXPECT_EQ(got_b.tokens, wanted_b);
  }
}

TEST_P(Plain, EndsCutWhereThePlainRunCuts) {
  const std::vector<Token> text = prompt(129), wanted = plain(text);
  for (size_t at : {0u, 3u, 17u, 100u}) {
    const auto first = size_t(std::find(wanted.begin(), wanted.end(), wanted[at]) - wanted.begin());
    const std::vector<Token> until(wanted.begin(), wanted.begin() + long(first) + 1);
    Json by_token = body(text, kGenerate), by_limit = body(text, int64_t(at) + 1);
    by_token["stop_token_ids"] = {wanted[at]};
    for (const Said& got : ask_twice(by_token)) {
      EXPECT_EQ(got.tokens, until);
      EXPECT_EQ(got.finish, "stop");
      EXPECT_EQ(got.answer, int64_t(first) + 1) << "with the end, and nothing behind it";
    }
    for (const Said& got : ask_twice(by_limit)) {
      EXPECT_EQ(got.tokens, std::vector<Token>(wanted.begin(), wanted.begin() + long(at) + 1));
      EXPECT_EQ(got.finish, "length");
      EXPECT_EQ(got.answer, int64_t(at) + 1);
    }
  }
}

TEST_P(Plain, AStopStringEndsTheAnswerWithItsLastToken) {
  const std::vector<Token> text = prompt(64), wanted = plain(text);
  const Tokenizer& tokenizer = model_->chat().tokenizer();
  const std::string whole = ask(*site_, body(text, kGenerate), false).text;
  // Words of the vocabulary are spelled in ASCII: two that follow each other are a stop string over tokens.
  size_t at = 5;
  auto word = [&](size_t i) {
    const std::string_view piece = tokenizer.piece(wanted[i]);
    return piece.size() > 1 && std::all_of(piece.begin(), piece.end(), [](char c) { return c > 0; });
  };
  while (at + 1 < wanted.size() && !(word(at) && word(at + 1))) ++at;
  ASSERT_LT(at + 1, wanted.size());
  const std::string stop =
      std::string(tokenizer.piece(wanted[at])) + std::string(tokenizer.piece(wanted[at + 1]));
  Json stopped = body(text, kGenerate);
  stopped["stop"] = {stop};
  std::string so_far;
  size_t last = 0;
  while (so_far.find(stop) == so_far.npos) so_far += tokenizer.piece(wanted[last++]);
  for (const Said& got : ask_twice(stopped)) {
    EXPECT_EQ(got.text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(got.finish, "stop");
    EXPECT_EQ(got.answer, int64_t(last)) << "nothing behind it is counted";
  }
}

TEST_P(Plain, AfterACancelTheSamePromptAgain) {
  const std::vector<Token> text = prompt(700), wanted = plain(text);
  const Service& service = site_->service();
  ask_and_leave(site_->port(), body(text, 5000), [&] { return service.statistics().answer_tokens > 10; });
  wait_until_idle(service);
  EXPECT_EQ(service.statistics().cancelled, 1);
  for (const Said& got : ask_twice(body(text, kGenerate))) {
    EXPECT_EQ(got.tokens, wanted);
    EXPECT_GT(got.cached, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Plain, testing::Values("qwen35:tiny", "llama:tiny"), [](const auto& p) {
  return std::string(p.param).substr(0, std::string(p.param).find(':'));
});

}  // namespace
}  // namespace invar
