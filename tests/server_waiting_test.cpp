// Requests before the text thread, clients that leave, and functions from before there were tools.
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "serving.h"

namespace invar {
namespace {

const std::string kChat = "/v1/chat/completions";

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

class WaitingRequests : public ServedModels {
 protected:
  static constexpr int64_t kMost = 200'000;

  WaitingRequests() {
    busy_ = std::make_unique<std::promise<void>>();
    site_.served().text.post([until = busy_->get_future().share()] { until.wait(); });
  }
  ~WaitingRequests() override { go_on(); }
  void go_on() {
    if (busy_) busy_->set_value();
    busy_.reset();
  }

  // A connection that has asked, with a body of so many bytes.
  int ask(const std::string& id, size_t bytes) {
    const std::string text =
        json_text({{"messages", user("x")}, {"max_tokens", 2}, {"user", std::string(bytes, 'u')}});
    return connect_and_send(site_.port(), "POST " + kChat + " HTTP/1.1\r\nHost: h\r\nX-Request-Id: " + id +
                                              "\r\nConnection: close\r\nContent-Length: " +
                                              std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  static std::string answer(int fd) {
    std::string got;
    char block[4096];
    for (ssize_t n; (n = recv(fd, block, sizeof block, 0)) > 0;) got.append(block, size_t(n));
    close(fd);
    return got;
  }
  std::string state(const std::string& id) {
    const HttpAnswer a = site_.get("/v1/requests/" + id);
    return a.status == 200 ? a.json()["state"].get<std::string>() : "";
  }
  bool waits(const std::string& id) {
    return soon([&] { return state(id) == "waiting"; });
  }
  static SiteSettings settings() {
    SiteSettings s;
    s.api.most_waiting_bytes = kMost;
    return s;
  }

  Site site_{*plain_, script_line("ok"), settings()};
  std::unique_ptr<std::promise<void>> busy_;
};

TEST_F(WaitingRequests, HaveABoundOfBytes) {
  const int first = ask("first", 2 * kMost);  // where none waits, any may
  ASSERT_TRUE(waits("first"));
  const std::string refused = answer(ask("second", 10));
  EXPECT_NE(refused.find("HTTP/1.1 429"), refused.npos) << refused;
  EXPECT_NE(refused.find("Retry-After"), refused.npos);
  EXPECT_EQ(site_.metrics().rejected.value(), 1);
  close(first);  // whose bytes are let go although the text thread has not come to it
  ASSERT_TRUE(soon([&] { return *site_.served().waiting_bytes == 0; }));
  EXPECT_EQ(state("first"), "");
  const int third = ask("third", kMost / 4);
  ASSERT_TRUE(waits("third"));
  const int fourth = ask("fourth", kMost / 4);
  ASSERT_TRUE(waits("fourth"));
  go_on();
  EXPECT_NE(answer(third).find("HTTP/1.1 200"), std::string::npos);
  EXPECT_NE(answer(fourth).find("HTTP/1.1 200"), std::string::npos);
  EXPECT_EQ(*site_.served().waiting_bytes, 0);
}

TEST_F(WaitingRequests, AreKnownByTheirIds) {
  const int fd = ask("mine", 10);
  ASSERT_TRUE(waits("mine"));
  EXPECT_EQ(site_.ask("DELETE", "/v1/requests/mine").json()["cancelled"], true);
  const std::string told = answer(fd);
  EXPECT_NE(told.find("HTTP/1.1 499"), told.npos) << "at once, though the text thread is busy: " << told;
  EXPECT_EQ(state("mine"), "ended");
  EXPECT_EQ(*site_.served().waiting_bytes, 0);
}

using Clients = ServedModels;

TEST_F(Clients, WhoLeavesIsNotToldThatTheServerEnds) {
  std::mutex mutex;
  std::string lines;
  SiteSettings settings;
  settings.http.log = [&](const std::string& line) {
    std::lock_guard lock(mutex);
    lines += line + "\n";
  };
  for (const bool stream : {false, true}) {
    Site site(*plain_, script_line("abcdefgh", "eos", {1}, {{"delay_ms", 50}}), settings);
    const std::string text = json_text({{"messages", user("x")}, {"stream", stream}});
    const int fd = connect_and_send(site.port(), "POST " + kChat +
                                                     " HTTP/1.1\r\nHost: h\r\nX-Request-Id: r\r\n"
                                                     "Content-Length: " +
                                                     std::to_string(text.size()) + "\r\n\r\n" + text);
    ASSERT_TRUE(soon([&] { return site.get("/v1/requests/r").json().value("answer_tokens", 0) > 0; }));
    close(fd);
    EXPECT_TRUE(soon([&] { return site.get("/v1/requests/r").json()["state"] == "ended"; }));
  }
  std::lock_guard lock(mutex);
  int left = 0;
  for (size_t at = 0; (at = lines.find("\"complete\":false", at)) != lines.npos; ++at) ++left;
  EXPECT_EQ(left, 2) << lines;
  EXPECT_EQ(lines.find("shutting_down"), lines.npos) << lines;
  EXPECT_NE(lines.find("\"answer_tokens\""), lines.npos) << "what was said is told as for others";
}

TEST_F(Clients, FunctionsFromBeforeToolsAreCalledOneAtATime) {
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";
  Site site(*xml_, script_line("</think>\n\n" + call + "\n" + call));
  Json body = {{"messages", user("x")},
               {"functions",
                {{{"name", "f"},
                  {"parameters", {{"type", "object"}, {"properties", {{"n", {{"type", "integer"}}}}}}}}}}};
  const Json whole = site.post(kChat, body).json()["choices"][0];
  body["stream"] = true;
  const Json streamed = assembled_chat(site.post(kChat, body).body)["choices"][0];
  const Json expected = {{"name", "f"}, {"arguments", "{\"n\":1}"}};
  EXPECT_EQ(whole["message"]["function_call"], expected);
  EXPECT_EQ(streamed["message"]["function_call"], expected);
  EXPECT_EQ(whole["finish_reason"], "function_call");
  EXPECT_EQ(streamed["finish_reason"], "function_call");
}

}  // namespace
}  // namespace invar
