// The paths beside the APIs: health, metrics, models, tokenizing, and what the server says of itself.
#include <cstdio>
#include <ctime>

#include "server/server.h"

namespace invar::server {
namespace {

using Shared = std::shared_ptr<Reply>;

void send_json(const Shared& reply, const Json& json, int status = 200) {
  reply->send(status, {{"Content-Type", "application/json"}}, json_text(json));
}

// --- state of the server ---

void add_health(Router& router, Served& served) {
  auto alive = [](const HttpRequest&, const Shared& reply) { send_json(reply, {{"status", "ok"}}); };
  for (const char* path : {"/health", "/livez", "/ping"}) router.add("GET", path, On::Io, alive);
  router.add("GET", "/readyz", On::Io, [&served](const HttpRequest& request, const Shared& reply) {
    if (served.closing()) refuse(*reply, request, shutting_down());
    else send_json(reply, {{"status", "ok"}});
  });
  router.add("GET", "/", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    send_json(reply,
              {{"name", "invar"}, {"version", served.model.version}, {"model", served.options.names[0]}});
  });
  router.add("GET", "/version", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    send_json(reply, {{"version", served.model.version}, {"commit", nullptr}, {"backend", "cpu"}});
  });
  router.add("GET", "/load", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    send_json(reply, {{"server_load", served.metrics.running.value() + served.metrics.waiting.value()}});
  });
}

// --- metrics ---

std::string label_text(const std::string& value) {
  std::string text;
  for (char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') text += "\\n";
    else text += c;
  }
  return text;
}

void add_requests(MetricsText& t, const Metrics& m) {
  t.gauge("vllm:num_requests_running", "Requests that run.", double(m.running.value()));
  t.gauge("vllm:num_requests_waiting", "Requests that wait.", double(m.waiting.value()));
  t.gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", double(m.waiting.value()),
          "reason=\"capacity\"");
  t.gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", 0, "reason=\"deferred\"");
  t.counter("vllm:prompt_tokens_total", "Tokens of prompts.", double(m.prompt_tokens.value()));
  t.counter("vllm:generation_tokens_total", "Tokens of answers.", double(m.generation_tokens.value()));
  const std::pair<const char*, const Counter*> ends[] = {
      {"stop", &m.stopped}, {"length", &m.length}, {"abort", &m.aborted}, {"error", &m.errors}};
  for (auto [name, counter] : ends)
    t.counter("vllm:request_success_total", "Answers that ended, by how.", double(counter->value()),
              "finished_reason=\"" + std::string(name) + "\"");
  t.counter("vllm:admission_rejections_total", "Requests refused since the queue was full.",
            double(m.rejected.value()));
}

void add_cache(MetricsText& t, const Metrics& m, const Statistics& s) {
  const PoolUse& state = s.state;
  const double kept =
      double(state.pages.kept * state.pages.each_bytes + state.sets.kept * state.sets.each_bytes);
  const double budget = double(state.budget_bytes);
  const double share = budget > 0 ? std::max(0.0, double(state.used_bytes) - kept) / budget : 0;
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
    t.gauge(name, "Share of the state that running requests use, 0 to 1.", share);
  t.counter("vllm:num_preemptions_total", "Requests pushed out for others.", double(s.preemptions));
  const int64_t pages = state.pages.each_bytes > 0 ? state.budget_bytes / state.pages.each_bytes : 0;
  t.gauge("vllm:cache_config_info", "The state's sizes, as labels.", 1,
          "block_size=\"" + std::to_string(kPagePositions) + "\",num_gpu_blocks=\"" + std::to_string(pages) +
              "\",enable_prefix_caching=\"True\"");
  const double asked = double(m.prompt_tokens.value()), found = double(m.cached_tokens.value());
  for (const char* prefix : {"vllm:", "vllm:gpu_"}) {
    t.counter(prefix + std::string("prefix_cache_queries_total"), "Prompt tokens looked up.", asked);
    t.counter(prefix + std::string("prefix_cache_hits_total"), "Prompt tokens found known.", found);
  }
  t.gauge("vllm:gpu_prefix_cache_hit_rate", "Share of prompt tokens found known.",
          asked > 0 ? found / asked : 0);
}

void add_times(MetricsText& t, const Metrics& m) {
  t.histogram("vllm:time_to_first_token_seconds", "From the request to its first token.",
              m.time_to_first_token);
  t.histogram("vllm:time_per_output_token_seconds", "Between tokens of an answer.", m.inter_token);
  t.histogram("vllm:inter_token_latency_seconds", "Between tokens of an answer.", m.inter_token);
  t.histogram("vllm:request_time_per_output_token_seconds", "The mean of each answer.", m.per_output_token);
  t.histogram("vllm:e2e_request_latency_seconds", "From the request to its end.", m.end_to_end);
  t.histogram("vllm:request_queue_time_seconds", "Time in the queue.", m.queue);
  t.histogram("vllm:request_prefill_time_seconds", "Time to read the prompt.", m.prefill);
  t.histogram("vllm:request_decode_time_seconds", "Time to write the answer.", m.decode);
  t.histogram("vllm:request_inference_time_seconds", "Time to read and to write.", m.inference);
  t.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", m.request_prompt_tokens);
  t.histogram("vllm:request_generation_tokens", "Tokens of an answer.", m.request_generation_tokens);
  t.histogram("vllm:request_params_n", "Choices that were asked for.", m.choices);
  t.histogram("vllm:request_params_max_tokens", "max_tokens that were asked for.", m.most_tokens);
}

void add_own(MetricsText& t, const Metrics& m, const Statistics& s, const HttpCounts& h,
             const Served& served) {
  t.gauge("invar_build_info", "The program, as labels.", 1,
          "version=\"" + label_text(served.model.version) + "\"");
  t.counter("invar_steps_total", "Turns of the engine.", double(s.steps));
  t.counter("invar_prompt_rows_total", "Rows of prompts that were computed.", double(s.prompt_rows));
  t.counter("invar_answer_rows_total", "Rows of answers that were computed.", double(s.answer_rows));
  t.counter("invar_snapshots_total", "Snapshots taken.", double(s.snapshots));
  t.counter("invar_from_disk_total", "Requests that went on from a state on disk.", double(s.from_disk));
  t.counter("invar_evicted_bytes_total", "State given up for other.", double(s.evicted_bytes));
  t.gauge("invar_memory_allowed_bytes", "The budget of memory.", double(s.memory.allowed_bytes));
  for (const MemoryKind& kind : memory_by_kind(s))
    t.gauge("invar_memory_bytes", "Memory by kind.", double(kind.bytes),
            "kind=\"" + std::string(kind.name) + "\"");
  t.gauge("invar_weights_bytes", "Packed weights.", double(s.memory.weights_bytes));
  t.gauge("invar_state_budget_bytes", "Room for state.", double(s.state.budget_bytes));
  t.gauge("invar_state_used_bytes", "State in memory, kept for reuse or in use.", double(s.state.used_bytes));
  t.gauge("invar_tree_snapshots", "Snapshots in memory.", double(s.tree.snapshots));
  t.gauge("invar_disk_bytes", "Files of states.", double(s.disk.bytes));
  t.counter("invar_parse_anomalies_total", "Tool calls that were not well formed.",
            double(m.parse_anomalies.value()));
  t.counter("invar_grammars_total", "Grammars compiled.", double(m.grammars.value()));
  t.histogram("invar_template_seconds", "Rendering and tokenizing a prompt.", m.template_s);
  t.histogram("invar_grammar_seconds", "Compiling a grammar.", m.grammar_s);
  t.gauge("invar_text_queue", "Requests before the text thread.", double(served.text.waiting()));
  t.gauge("invar_http_connections", "Open connections.", double(h.connections));
  t.counter("invar_http_accepted_total", "Connections taken.", double(h.accepted));
  t.counter("invar_http_refused_total", "Connections over the limit.", double(h.refused));
  t.counter("invar_http_requests_total", "Requests of any path.", double(h.requests));
  t.counter("invar_http_gone_total", "Clients that left before the end of an answer.", double(h.gone));
  t.counter("invar_http_stalled_total", "Clients that took nothing for too long.", double(h.stalled));
  t.counter("invar_http_sent_bytes_total", "Bytes written.", double(h.sent_bytes));
}

void add_metrics(Router& router, Served& served) {
  router.add("GET", "/metrics", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    MetricsText text("model_name=\"" + label_text(served.options.names[0]) + "\",engine=\"0\"");
    const Statistics statistics = served.service.statistics();
    add_requests(text, served.metrics);
    add_cache(text, served.metrics, statistics);
    add_times(text, served.metrics);
    add_own(text, served.metrics, statistics, served.http(), served);
    reply->send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, text.take());
  });
}

// --- models ---

std::string time_text(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &parts));
  return text;
}

// What clients of the APIs read of a model, all in one.
Json model_json(const Served& served, const std::string& name) {
  const ModelInfo& m = served.model;
  return {{"id", name},
          {"object", "model"},
          {"created", m.created},
          {"owned_by", "invar"},
          {"root", served.options.names[0]},
          {"parent", nullptr},
          {"max_model_len", served.service.context()},
          {"type", "model"},
          {"display_name", m.name.empty() ? name : m.name},
          {"created_at", time_text(m.created)},
          {"meta",
           {{"n_ctx_train", m.train_context},
            {"n_vocab", served.service.vocab()},
            {"n_params", m.parameters},
            {"size", m.bytes}}}};
}

void add_models(Router& router, Served& served) {
  router.add("GET", "/v1/models", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    Json list = Json::array();
    for (const std::string& name : served.options.names) list.push_back(model_json(served, name));
    send_json(reply, {{"object", "list"},
                      {"data", list},
                      {"has_more", false},
                      {"first_id", served.options.names.front()},
                      {"last_id", served.options.names.back()}});
  });
  router.add("GET", "/v1/models/*", On::Io, [&served](const HttpRequest& request, const Shared& reply) {
    const std::string asked = percent_decoded(request.path.substr(std::string_view("/v1/models/").size()));
    if (auto name = served.model_name(asked); name) send_json(reply, model_json(served, *name));
    else refuse(*reply, request, unknown_model(asked));
  });
}

// --- text and tokens ---

ApiError wrong_type(const std::string& field, const std::string& what) {
  return {400, field + ": expected " + what, "", field};
}

bool flag_of(const Json& body, const char* name, bool otherwise) {
  const auto at = body.find(name);
  return at == body.end() || !at->is_boolean() ? otherwise : at->get<bool>();
}

Result<std::vector<Token>> tokens_of(const Json& body, const Chat& chat) {
  if (const auto messages = body.find("messages"); messages != body.end()) {
    if (!messages->is_array()) return Error{Code::BadRequest, "messages", "expected a list"};
    ChatInput input;
    input.messages = *messages;
    input.tools = body.value("tools", Json(nullptr));
    if (const auto more = body.find("chat_template_kwargs"); more != body.end() && more->is_object())
      input.options = *more;
    input.add_generation_prompt = flag_of(body, "add_generation_prompt", true);
    return chat.prompt(input);
  }
  const bool ours = body.contains("prompt");
  const Json& text = ours ? body["prompt"] : body.value("content", Json(nullptr));
  if (!text.is_string())
    return Error{Code::BadRequest, ours ? "prompt" : "content", "expected a text, or `messages`"};
  const AddedTokens added = flag_of(body, "parse_special", false) ? AddedTokens::All : AddedTokens::User;
  std::vector<Token> tokens = TRY(chat.tokenizer().encode(text.get<std::string>(), added));
  const bool begins = ours ? flag_of(body, "add_special_tokens", true) : flag_of(body, "add_special", false);
  if (begins && chat.tokenizer().add_bos()) tokens.insert(tokens.begin(), *chat.tokenizer().bos());
  return tokens;
}

std::string piece_text(const Tokenizer& tokenizer, Token token) {
  Utf8Stream stream;
  std::string text = stream.push(tokenizer.piece(token));
  return text + stream.finish();
}

// The body as an object; if it is none, it was refused.
std::optional<Json> body_of(const HttpRequest& request, Reply& reply) {
  auto body = parse_ordered_json(request.body, "body");
  if (body && body->is_object()) return body.take();
  refuse(reply, request, {400, body ? "body: expected a JSON object" : body.error().message, "invalid_json"});
  return {};
}

void tokenize(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto body = body_of(request, *reply);
  if (!body) return;
  auto tokens = tokens_of(*body, served.chat);
  if (!tokens) return void(refuse(*reply, request, api_error(tokens.error())));
  Json answer;
  const Tokenizer& tokenizer = served.chat.tokenizer();
  if (body->contains("content")) {  // as llama-server has it
    Json list = Json::array();
    for (Token token : *tokens) {
      if (flag_of(*body, "with_pieces", false))
        list.push_back({{"id", token}, {"piece", piece_text(tokenizer, token)}});
      else list.push_back(token);
    }
    answer["tokens"] = list;
  } else {
    answer = {{"count", tokens->size()}, {"max_model_len", served.service.context()}, {"tokens", *tokens}};
    if (flag_of(*body, "return_token_strs", false))
      for (Token token : *tokens) answer["token_strs"].push_back(piece_text(tokenizer, token));
  }
  send_json(reply, answer);
}

void detokenize(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto body = body_of(request, *reply);
  if (!body) return;
  const Json list = body->value("tokens", Json(nullptr));
  const Tokenizer& tokenizer = served.chat.tokenizer();
  const ApiError wrong =
      wrong_type("tokens", "a list of ids from 0 to " + std::to_string(tokenizer.size() - 1));
  if (!list.is_array()) return void(refuse(*reply, request, wrong));
  Utf8Stream stream;
  std::string text;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.size())
      return void(refuse(*reply, request, wrong));
    text += stream.push(tokenizer.piece(id.get<Token>()));
  }
  text += stream.finish();
  send_json(reply, {{"prompt", text}, {"content", text}});
}

Json tokenizer_info(const Served& served) {
  const Tokenizer& t = served.chat.tokenizer();
  auto text = [&](std::optional<Token> id) { return id ? Json(piece_text(t, *id)) : Json(nullptr); };
  const std::optional<Token> eos = t.eos().empty() ? std::nullopt : std::optional(t.eos()[0]);
  return {{"eos_token", text(eos)},
          {"bos_token", text(t.bos())},
          {"pad_token", text(eos)},
          {"eos_token_id", eos ? Json(*eos) : Json(nullptr)},
          {"bos_token_id", t.bos() ? Json(*t.bos()) : Json(nullptr)},
          {"add_bos_token", t.add_bos()},
          {"vocab_size", t.size()},
          {"model_max_length", served.service.context()},
          {"chat_template",
           served.model.chat_template.empty() ? Json(nullptr) : Json(served.model.chat_template)}};
}

Json props(const Served& served) {
  const ModelInfo& m = served.model;
  return {{"default_generation_settings", {{"n_ctx", served.service.context()}}},
          {"model_path", m.path},
          {"model_alias", served.options.names[0]},
          {"chat_template", m.chat_template},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", "invar " + m.version}};
}

void add_text(Router& router, Served& served) {
  for (const char* path : {"/tokenize", "/v1/tokenize"})
    router.add("POST", path, On::Text,
               [&served](const auto& request, const Shared& reply) { tokenize(served, request, reply); });
  for (const char* path : {"/detokenize", "/v1/detokenize"})
    router.add("POST", path, On::Text,
               [&served](const auto& request, const Shared& reply) { detokenize(served, request, reply); });
  router.add("GET", "/tokenizer_info", On::Io,
             [&served](const auto&, const Shared& reply) { send_json(reply, tokenizer_info(served)); });
  router.add("GET", "/props", On::Io,
             [&served](const auto&, const Shared& reply) { send_json(reply, props(served)); });
}

}  // namespace

void add_pages(Router& router, Served& served) {
  add_health(router, served);
  add_metrics(router, served);
  add_models(router, served);
  add_text(router, served);
}

}  // namespace invar::server
