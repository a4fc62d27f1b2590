// A server on a free port, over a script or an engine, and a client that asks it.
#pragma once

#include <arpa/inet.h>
#include <cstdio>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "alphabet_model.h"
#include "base/file.h"
#include "engine/engine_thread.h"
#include "engine/scripted.h"
#include "server/dialect.h"
#include "server/intake.h"
#include "server/server.h"
#include "streams.h"

namespace invar {

struct HttpAnswer {
  int status = 0;
  std::string head, body;

  Json json() const {
    auto parsed = parse_ordered_json(body, "answer");
    EXPECT_TRUE(parsed) << body;
    return parsed ? parsed.take() : Json();
  }
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == head.npos) return {};
    const size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
};

// A connection of its own, on which this has been asked.
inline int connect_and_send(int port, std::string_view request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  while (!request.empty()) {
    const ssize_t n = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    request.remove_prefix(size_t(n));
  }
  return fd;
}

inline HttpAnswer http_ask(int port, const std::string& method, const std::string& path,
                           const std::string& body, const std::string& headers = {}) {
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + headers;
  if (method == "POST") request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  request += "\r\n" + body;
  const int fd = connect_and_send(port, request);
  std::string got;
  char block[65536];
  for (ssize_t n; (n = recv(fd, block, sizeof block, 0)) > 0;) got.append(block, size_t(n));
  close(fd);
  HttpAnswer a;
  const size_t end = got.find("\r\n\r\n");
  EXPECT_NE(end, got.npos) << path;
  if (end == got.npos) return a;
  a.head = got.substr(0, end + 2);
  a.status = std::stoi(got.substr(9, 3));
  std::string_view rest = std::string_view(got).substr(end + 4);
  if (a.header("Transfer-Encoding") != "chunked") {
    a.body = rest;
    return a;
  }
  while (!rest.empty()) {
    const size_t size = std::stoul(std::string(rest.substr(0, 16)), nullptr, 16),
                 from = rest.find("\r\n") + 2;
    if (size == 0) break;
    a.body += rest.substr(from, size);
    rest.remove_prefix(from + size + 2);
  }
  return a;
}

// A model of bytes with this template.
class ServedModel {
 public:
  explicit ServedModel(const std::string& chat_template, const std::string& path = {})
      : source_(chat_template), own_(path.empty()), path_(own_ ? write_alphabet_model(chat_template) : path) {
    auto file = ModelFile::open(path_);
    EXPECT_TRUE(file) << file.error().message;
    file_.emplace(file.take());
    if (!own_) source_ = *file_->keys().text_or("tokenizer.chat_template", "");
    auto chat = Chat::make(*file_);
    EXPECT_TRUE(chat) << chat.error().message;
    chat_.emplace(chat.take());
    auto dialect = server::Dialect::make(*chat_, source_, "auto", "auto");
    EXPECT_TRUE(dialect) << dialect.error().message;
    dialect_ = dialect.take();
  }
  ~ServedModel() {
    if (own_) std::remove(path_.c_str());
  }
  static std::string template_of(const std::string& name) {
    return *read_file(std::string(INVAR_TEST_DATA) + "/server/" + name + ".jinja", 1 << 20);
  }

  const ModelFile& file() const { return *file_; }
  const Chat& chat() const { return *chat_; }
  const server::Dialect& dialect() const { return *dialect_; }

 private:
  std::string source_;
  bool own_;
  std::string path_;
  std::optional<ModelFile> file_;
  std::optional<Chat> chat_;
  std::unique_ptr<const server::Dialect> dialect_;
};

struct SiteSettings {
  server::ApiOptions api = {};
  server::IntakeLimits limits = {};
  server::HttpOptions http = {};
};

class Site {
 public:
  static constexpr int kRunning = 4;  // requests of a script at once

  // One JSON object for each line of the script.
  Site(const ServedModel& model, const std::string& script, server::ApiOptions api = {},
       server::StreamTimes times = {})
      : Site(model, scripted(model, script), settings(std::move(api), times)) {}
  Site(const ServedModel& model, const std::string& script, SiteSettings settings)
      : Site(model, scripted(model, script), std::move(settings)) {}
  Site(const ServedModel& model, std::unique_ptr<Service> service, SiteSettings settings = {})
      : service_(std::move(service)),
        intake_(*service_, metrics_, settings.limits, kRunning),
        served_{model.chat(), intake_, text_, metrics_, std::move(settings.api), {}},
        http_(at_any_port(std::move(settings.http)),
              [this](server::HttpRequest request, std::shared_ptr<server::Reply> reply) {
                router_.handle(std::move(request), std::move(reply), served_);
              }) {
    if (served_.options.names.empty()) served_.options.names = {"m"};
    served_.dialect = &model.dialect();
    served_.places = [this] { return intake_.places(); };
    server::add_routes(router_, served_);
    const Status started = http_.start();
    EXPECT_TRUE(started) << started.error().message;
  }
  ~Site() {
    http_.stop();
    std::promise<void> idle;  // what waits for the text thread uses what is gone soon
    text_.post([&] { idle.set_value(); });
    idle.get_future().wait();
  }

  HttpAnswer post(const std::string& path, const Json& body, const std::string& headers = {}) {
    return http_ask(http_.port(), "POST", path, json_text(body), headers);
  }
  HttpAnswer get(const std::string& path, const std::string& headers = {}) {
    return ask("GET", path, headers);
  }
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& headers = {}) {
    return http_ask(http_.port(), method, path, {}, headers);
  }
  server::Served& served() { return served_; }
  int port() const { return http_.port(); }
  int64_t connections() const { return http_.counts().connections; }
  Service& service() { return *service_; }
  Metrics& metrics() { return metrics_; }

  static std::unique_ptr<Service> engine(const ServedModel& model, int64_t context = 4096,
                                         bool reuse = true) {
    EngineOptions options;
    options.reuse = reuse;
    options.threads = 1;
    options.context = context;
    options.memory_bytes = 256 << 20;
    auto engine = Engine::open(model.file(), options);
    EXPECT_TRUE(engine) << engine.error().message;
    return std::make_unique<EngineThread>(engine.take());
  }

 private:
  static SiteSettings settings(server::ApiOptions api, server::StreamTimes times) {
    SiteSettings s;
    s.api = std::move(api);
    s.http.stream = times;
    return s;
  }
  static server::HttpOptions at_any_port(server::HttpOptions options) {
    options.port = 0;
    return options;
  }
  static std::unique_ptr<Service> scripted(const ServedModel& model, const std::string& script) {
    auto lines = parse_script(script, model.chat().tokenizer(), "script");
    EXPECT_TRUE(lines) << lines.error().message;
    return std::make_unique<Scripted>(model.chat(), lines.take(),
                                      ScriptedOptions{4096, kAlphabetTokens, kRunning});
  }

  Metrics metrics_;
  std::unique_ptr<Service> service_;
  server::Intake intake_;
  WorkThread text_;
  server::Served served_;
  server::Router router_;
  server::HttpServer http_;
};

// Tests on models with a plain template, and with one that thinks and calls.
class ServedModels : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    plain_ = new ServedModel(kChatMl);
    xml_ = new ServedModel(ServedModel::template_of("qwen_xml"));
  }
  static void TearDownTestSuite() {
    delete plain_;
    delete xml_;
  }
  static inline ServedModel *plain_ = nullptr, *xml_ = nullptr;
};

inline Json user(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

// A request of chat whose answer must be one of two texts.
inline Json choosing(int most) {
  return {{"messages", user("x")},
          {"temperature", 0},
          {"max_tokens", most},
          {"structured_outputs", {{"choice", {"mno", "azx"}}}}};
}

// The format of an answer by a schema.
inline Json by_schema(const Json& schema) {
  return {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}};
}

// A line of a script whose tokens are bytes.
inline std::string script_line(std::string_view bytes, const std::string& end = "eos",
                               const std::vector<int>& chunk = {1}, Json more = Json::object()) {
  Json line = {{"tokens", Json::array()}, {"end", end}, {"chunk", chunk}};
  for (char c : bytes) line["tokens"].push_back(uint8_t(c));
  line.update(more);
  return json_text(line);
}

// Of the prompt, in an answer of completions or chat.
inline int64_t cached_tokens(const HttpAnswer& whole) {
  return whole.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

// What an answer says, the same from all APIs: {thought, content, calls: [{name, arguments}], finish}.
inline Json said_by_chat(const Json& whole) {
  const Json& choice = whole["choices"][0];
  const Json& m = choice["message"];
  Json calls = Json::array();
  for (const Json& call : m.value("tool_calls", Json::array()))
    calls.push_back(
        {{"name", call["function"]["name"]},
         {"arguments", *parse_ordered_json(call["function"]["arguments"].get<std::string>(), "a")}});
  return {{"thought", m.value("reasoning_content", "")},
          {"content", m["content"].is_null() ? Json("") : m["content"]},
          {"calls", calls},
          {"finish", choice["finish_reason"]}};
}

inline Json said_by_messages(const Json& whole) {
  Json said = {{"thought", ""}, {"content", ""}, {"calls", Json::array()}};
  for (const Json& b : whole["content"]) {
    if (b["type"] == "thinking") append_text(said["thought"], b["thinking"]);
    else if (b["type"] == "text") append_text(said["content"], b["text"]);
    else said["calls"].push_back({{"name", b["name"]}, {"arguments", b["input"]}});
  }
  const std::string reason = whole["stop_reason"];
  said["finish"] = reason == "tool_use"                                                  ? "tool_calls"
                   : reason == "max_tokens" || reason == "model_context_window_exceeded" ? "length"
                                                                                         : "stop";
  return said;
}

inline Json said_by_responses(const Json& whole) {
  Json said = {{"thought", ""}, {"content", ""}, {"calls", Json::array()}};
  for (const Json& item : whole["output"]) {
    if (item["type"] == "function_call")
      said["calls"].push_back(
          {{"name", item["name"]},
           {"arguments", *parse_ordered_json(item["arguments"].get<std::string>(), "a")}});
    else
      for (const Json& part : item["content"])
        append_text(said[item["type"] == "reasoning" ? "thought" : "content"], part["text"]);
  }
  said["finish"] = whole["status"] == "incomplete" ? "length" : said["calls"].empty() ? "stop" : "tool_calls";
  return said;
}

}  // namespace invar
