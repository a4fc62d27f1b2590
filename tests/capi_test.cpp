// The C API: the example as a program of its own, then what it does not show.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "alphabet_model.h"
#include "invar.h"

namespace invar {
namespace {

class CApi : public testing::Test {
 protected:
  CApi() : path_(write_alphabet_model()) {}
  ~CApi() override { std::remove(path_.c_str()); }

  void open(int32_t parallel = 4, const char* folder = nullptr) {
    invar_options options;
    invar_options_init(&options);
    options.parallel = parallel;
    options.cache_folder = folder;
    options.memory_bytes = 64 << 20;
    options.context = 4000;
    engine_ = invar_open(path_.c_str(), &options, &error_);
    ASSERT_TRUE(engine_) << error_.text;
  }
  void TearDown() override { invar_close(engine_); }

  uint64_t submit(const std::string& prompt, int64_t most, const char* save_as = nullptr,
                  const char* from = nullptr, int n = 1) {
    invar_request request;
    invar_request_init(engine_, &request);
    const std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    request.prompt = tokens.data();
    request.prompt_tokens = int64_t(tokens.size());
    request.max_tokens = most;
    request.temperature = 0;
    request.save_as = save_as;
    request.from = from;
    request.n = n;
    return invar_submit(engine_, &request, &error_);
  }
  // All events until every choice has its last; the text of choice 0.
  invar_event finish(uint64_t id, std::string* text = nullptr, int n = 1) {
    invar_event event;
    invar_event_init(&event);
    while (n > 0) {
      EXPECT_EQ(invar_poll(engine_, &event, 10), 1);
      EXPECT_EQ(event.id, id);
      if (text && event.choice == 0) *text += event.text;
      n -= event.finish != INVAR_RUNNING;
    }
    return event;
  }

  std::string path_;
  invar_engine* engine_ = nullptr;
  invar_error error_{};
};

TEST_F(CApi, TheExampleAnswers) {
  const std::string command = std::string(INVAR_EXAMPLE) + " '" + path_ + "' w";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_TRUE(pipe);
  char out[200] = {};
  const size_t n = fread(out, 1, sizeof out - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(std::string(out, n), "xyz\n1 prompt tokens, 3 answer tokens, finish 1\n");
}

TEST_F(CApi, RefusalsAreErrors) {
  EXPECT_EQ(invar_open("/nowhere.gguf", nullptr, &error_), nullptr);
  EXPECT_NE(std::string(error_.text).find("/nowhere.gguf"), std::string::npos);
  EXPECT_EQ(invar_open(nullptr, nullptr, nullptr), nullptr);
  open();
  EXPECT_EQ(submit("", 1), 0u);
  EXPECT_EQ(error_.code, INVAR_BAD_REQUEST);
  EXPECT_EQ(invar_tokenize_chat(engine_, "[{", nullptr, nullptr, 0, &error_), -1);
  EXPECT_EQ(invar_vocab(engine_), kAlphabetTokens);
  EXPECT_EQ(invar_context(engine_), 4000);
}

TEST_F(CApi, TokenizesTextsAndChats) {
  open();
  int32_t tokens[3] = {-1, -1, -1};
  EXPECT_EQ(invar_tokenize(engine_, "abcd", 4, tokens, 2, nullptr), 4);
  EXPECT_EQ(tokens[1], 'b');
  EXPECT_EQ(tokens[2], -1) << "no more than there is room for";
  EXPECT_GT(invar_tokenize_chat(engine_, R"([{"role":"user","content":"a"}])", "{}", nullptr, 0, &error_), 10)
      << error_.text;
}

TEST_F(CApi, AnswersChoicesAndStatistics) {
  open();
  std::string text;
  invar_event last = finish(submit("ab", -1, nullptr, nullptr, 3), &text, 3);
  EXPECT_EQ(text, "cdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(last.finish, INVAR_STOP);
  EXPECT_EQ(last.answer_tokens, 24);
  invar_statistics s;
  invar_statistics_init(&s);
  for (int i = 0; i < 1000 && s.finished < 3; ++i) invar_get_statistics(engine_, &s);
  EXPECT_EQ(s.prompt_rows, 2);
  EXPECT_GT(s.weights_bytes, 0);
  EXPECT_EQ(invar_poll(engine_, &last, 0), 0) << "no event is left";
}

TEST_F(CApi, CancelsAndCloses) {
  open();
  const uint64_t id = submit(std::string(3000, 'b'), 900);
  invar_cancel(engine_, id);
  EXPECT_EQ(finish(id).finish, INVAR_CANCEL);
  submit("a", -1);  // still runs when the engine is closed
}

TEST_F(CApi, SavesAndRestores) {
  open();
  finish(submit("abcdef", 0, "start"));
  invar_event e = finish(submit("abcdefg", 1, nullptr, "start"));
  EXPECT_EQ(e.finish, INVAR_LENGTH);
  EXPECT_EQ(e.cached_tokens, 6);
  EXPECT_EQ(invar_release(engine_, "start", nullptr), 1);
  EXPECT_EQ(invar_release(engine_, "start", nullptr), 0);
  e = finish(submit("abcdefg", 1, nullptr, "start"));
  EXPECT_EQ(e.finish, INVAR_FAILED);
  EXPECT_EQ(e.error.code, INVAR_NOT_FOUND);
}

TEST_F(CApi, SavedStatesAreFoundByALaterEngine) {
  const std::string folder = testing::TempDir() + "capi-saved-" + std::to_string(getpid());
  for (int turn = 0; turn < 2; ++turn) {
    open(4, folder.c_str());
    if (turn == 0) finish(submit("abcdef", 0, "start")), finish(submit("xy", 0, "end"));
    invar_saved list[2];
    invar_saved_init(&list[0]);
    ASSERT_EQ(invar_list_saved(engine_, nullptr, 0, &error_), 2) << error_.text;
    ASSERT_EQ(invar_list_saved(engine_, list, 2, &error_), 2) << error_.text;
    EXPECT_STREQ(list[0].name, "end");
    EXPECT_STREQ(list[1].name, "start");
    EXPECT_EQ(list[1].tokens, 6);
    EXPECT_GT(list[1].bytes, 6 * 4);
    EXPECT_GT(list[1].saved_at, 1'600'000'000);
    EXPECT_EQ(std::string(list[1].model).size(), 64u);
    EXPECT_EQ(list[1].error.code, INVAR_OK);
    int32_t tokens[9];
    ASSERT_EQ(invar_saved_tokens(engine_, "start", tokens, 9, &error_), 6) << error_.text;
    EXPECT_EQ(tokens[5], 'f');
    const invar_event e = finish(submit("abcdefg", 1, nullptr, "start"));
    EXPECT_EQ(e.finish, INVAR_LENGTH) << e.error.text;
    EXPECT_EQ(e.cached_tokens, 6);
    invar_close(engine_);
    engine_ = nullptr;
  }
  open(4, folder.c_str());
  EXPECT_EQ(invar_release(engine_, "start", &error_), 1);
  EXPECT_EQ(invar_release(engine_, "start", &error_), 0);
  EXPECT_EQ(invar_release(engine_, "../start", &error_), -1);
  EXPECT_EQ(error_.code, INVAR_BAD_REQUEST);
  EXPECT_EQ(submit("abcdefg", 1, nullptr, "a/b"), 0u);
  EXPECT_EQ(finish(submit("abcdefg", 1, nullptr, "start")).error.code, INVAR_NOT_FOUND);
  EXPECT_EQ(invar_saved_tokens(engine_, "start", nullptr, 0, &error_), -1);
  std::filesystem::remove_all(folder);
}

// Files are listed while the engine is in a pass: its end, which would be told, need not come first.
TEST_F(CApi, ListingFilesDoesNotWaitForTheEngine) {
  const std::string folder = testing::TempDir() + "capi-lists-" + std::to_string(getpid());
  open(4, folder.c_str());
  finish(submit("abcdef", 0, "start"));
  int lists = 0, in_a_pass = 0;
  invar_event event;
  invar_event_init(&event);
  for (char first : {'b', 'c', 'd'}) {
    submit(first + std::string(3900, 'b'), 0);
    do {
      ASSERT_EQ(invar_poll(engine_, &event, 10), 1);
      while (event.finish == INVAR_RUNNING) {
        ++lists;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the next pass has begun
        EXPECT_EQ(invar_list_saved(engine_, nullptr, 0, &error_), 1) << error_.text;
        if (invar_poll(engine_, &event, 0) == 1) continue;
        ++in_a_pass;
        break;
      }
    } while (event.finish == INVAR_RUNNING);
  }
  EXPECT_GT(in_a_pass * 2, lists);
  invar_close(std::exchange(engine_, nullptr));
  std::filesystem::remove_all(folder);
}

TEST_F(CApi, AnOlderCallersStructsAreShorter) {
  open();
  invar_options options;
  invar_options_init(&options);
  EXPECT_EQ(options.size, sizeof options);
  const uint64_t id = submit("y", -1);
  union {
    invar_event event;
    char bytes[sizeof(invar_event)];
  } u;
  std::memset(u.bytes, 77, sizeof u.bytes);
  u.event.size = offsetof(invar_event, prompt_tokens);
  do ASSERT_EQ(invar_poll(engine_, &u.event, 10), 1);
  while (u.event.finish == INVAR_RUNNING);
  EXPECT_EQ(u.event.id, id);
  EXPECT_EQ(u.event.logits_sha256[0], 77) << "what the caller's struct does not have is not written";
}

}  // namespace
}  // namespace invar
