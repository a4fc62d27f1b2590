// The server: routes over the transport, and what the adapters of the APIs share.
//
// An adapter is a function add_NAME(Router&, Served&).  Its handlers run on the text thread.  The usual
// course: read the body, render, tokenize, submit to Served::service; if that is refused,
// refuse(api_error()).  A streamed answer calls Reply::begin() after the submit, so that what fails before
// the first token can still be an HTTP error: send() tells whether it could.  on_gone() cancels the request.
// Finish::Cancelled while the client is there means that the server ends: the client gets shutting_down(), in
// the stream if need be. Fields for the log: Reply::log().  Counters of requests and tokens are kept by the
// service (intake.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/work_thread.h"
#include "engine/chat.h"
#include "engine/metrics.h"
#include "engine/service.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/intake.h"
#include "server/requests.h"

namespace invar::server {

struct ApiOptions {
  std::vector<std::string> names;        // the model is served under; the first is told
  bool any_model = true;                 // a request for another name is served too, else 404
  std::string reasoning_field = "both";  // of chat answers: both, reasoning_content, reasoning
  std::string tool_parser = "auto", reasoning_parser = "auto";  // else a name of the table of parsers
  std::string system_midway = "inline";                         // late system messages: hoist, inline, reject
  bool keep_headers = false;        // system text that begins with `x-anthropic-` is part of the prompt
  bool clamp_max_tokens = true;     // max_tokens that do not fit are cut, not refused
  bool constrain_tools = false;     // arguments of calls obey their schemas, whether or not a tool is strict
  bool calls_in_thought = false;    // a call in a thought that the answer never ended is a call
  bool strict_usage = false;        // no fields of ours in usage, where as yet there are none
  int64_t default_max_tokens = -1;  // of chat and responses; below 0: what fits
  int most_choices = 16, most_logprobs = 20, most_stops = 16, most_prompts = 256, most_tools = 512;
  int64_t most_tool_bytes = 4 << 20;
  int64_t most_waiting_bytes = 256 << 20;  // of requests before the text thread
  int64_t most_per_key = 0;                // requests on their way with one key; 0: no bound
  bool llama_metrics = false;              // /metrics has llama-server's names, too
  SamplingParams sampling;                 // what a request that says nothing gets

  // The name to echo; none if the server knows no such model.  Empty: the first of ours.
  std::optional<std::string> model_name(const std::string& asked) const;
};

struct ModelInfo {
  std::string path, architecture, name;
  std::string chat_template;  // its source; may be empty
  int64_t train_context = 0, parameters = 0, bytes = 0;
  int64_t created = 0;  // seconds since 1970, of the start
  std::string version;  // of the program
  std::string commit;   // that it was built from; empty: not known
};

struct Dialect;  // dialect.h

struct Served {
  const Chat& chat;
  Intake& service;
  WorkThread& text;
  Metrics& metrics;
  ApiOptions options;
  ModelInfo model;
  std::function<bool()> closing = [] { return false; };  // no new requests are taken
  std::function<HttpCounts()> http = [] { return HttpCounts{}; };
  const Dialect* dialect = nullptr;
  std::shared_ptr<Requests> requests = std::make_shared<Requests>();
  // Of requests before the text thread.
  std::shared_ptr<std::atomic<int64_t>> waiting_bytes = std::make_shared<std::atomic<int64_t>>(0);
  std::function<std::vector<Place>()> places = [] { return std::vector<Place>(); };
  std::function<void()> end = [] {};                     // as SIGTERM does
  std::function<void(bool)> log_requests = [](bool) {};  // from now on, or no more
};

using RouteHandler = std::function<void(const HttpRequest&, const std::shared_ptr<Reply>&)>;
enum class On { Io, Text };  // the thread that a handler runs on; Io: it takes microseconds

class Router {
 public:
  // `path` ending in "/*" takes what is below it.  HEAD is answered where GET is.
  void add(const std::string& method, const std::string& path, On on, RouteHandler handler);

  // Unknown paths and methods are refused here, and what finds the text thread too busy.
  void handle(HttpRequest request, std::shared_ptr<Reply> reply, Served& served) const;

 private:
  struct Route {
    std::string method, path;
    On on;
    std::shared_ptr<const RouteHandler> handler;
  };
  std::vector<Route> routes_;
};

void send_json(Reply& reply, const Json& json, int status = 200);

// The list of /v1/models.  `service`: null while the model is read.
Json list_models(const std::vector<std::string>& names, const ModelInfo& model, const Service* service);

// Answers in place of the router while the model is read.
void answer_loading(const ApiOptions& options, const ModelInfo& model, const HttpRequest& request,
                    Reply& reply);

// Served outlives the router.
void add_routes(Router& router, Served& served);       // all that follow
void add_pages(Router& router, Served& served);        // pages.cpp
void add_metrics(Router& router, Served& served);      // metrics_page.cpp
void add_operations(Router& router, Served& served);   // operations.cpp
void add_completions(Router& router, Served& served);  // completions.cpp
void add_chat(Router& router, Served& served);         // openai.cpp
void add_responses(Router& router, Served& served);    // responses.cpp
void add_messages(Router& router, Served& served);     // anthropic.cpp

}  // namespace invar::server
