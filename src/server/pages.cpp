// The paths beside the APIs: health, models, texts and tokens, and what the server says of itself.
#include <cstdio>
#include <ctime>

#include "server/ask.h"
#include "server/dialect.h"
#include "server/openai_format.h"
#include "server/parse.h"
#include "server/prompt.h"
#include "server/server.h"

namespace invar::server {
namespace {

using Shared = std::shared_ptr<Reply>;

// --- state of the server ---

void add_health(Router& router, Served& served) {
  auto alive = [](const HttpRequest&, const Shared& reply) { send_json(*reply, {{"status", "ok"}}); };
  for (const char* path : {"/health", "/livez", "/ping"}) router.add("GET", path, On::Io, alive);
  router.add("GET", "/readyz", On::Io, [&served](const HttpRequest& request, const Shared& reply) {
    if (served.closing()) refuse(*reply, request, shutting_down());
    else send_json(*reply, {{"status", "ok"}});
  });
  router.add("GET", "/", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    send_json(*reply,
              {{"name", "invar"}, {"version", served.model.version}, {"model", served.options.names[0]}});
  });
  router.add("GET", "/version", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    const std::string& commit = served.model.commit;
    send_json(*reply, {{"version", served.model.version},
                       {"commit", commit.empty() ? Json() : Json(commit)},
                       {"backend", "cpu"}});
  });
  router.add("GET", "/load", On::Io, [&served](const HttpRequest&, const Shared& reply) {
    send_json(*reply, {{"server_load", served.metrics.running.value() + served.metrics.waiting.value()}});
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

// What clients of the APIs read of a model, all in one.  `root`: its first name.
Json model_json(const std::string& name, const std::string& root, const ModelInfo& m,
                const Service* service) {
  return {{"id", name},
          {"object", "model"},
          {"created", m.created},
          {"owned_by", "invar"},
          {"root", root},
          {"parent", nullptr},
          {"max_model_len", service ? Json(service->context()) : Json()},
          {"type", "model"},
          {"display_name", m.name.empty() ? name : m.name},
          {"created_at", time_text(m.created)},
          {"meta",
           {{"n_ctx_train", m.train_context},
            {"n_vocab", service ? Json(service->vocab()) : Json()},
            {"n_params", m.parameters},
            {"size", m.bytes}}}};
}

// /v1/models and /v1/models/NAME.
void answer_models(const ApiOptions& options, const ModelInfo& model, const Service* service,
                   const HttpRequest& request, Reply& reply) {
  constexpr std::string_view kAll = "/v1/models", kOne = "/v1/models/";
  if (request.path == kAll) return send_json(reply, list_models(options.names, model, service));
  const std::string asked = percent_decoded(std::string_view(request.path).substr(kOne.size()));
  if (const auto name = options.model_name(asked))
    send_json(reply, model_json(*name, options.names[0], model, service));
  else refuse(reply, request, unknown_model(asked));
}

void add_models(Router& router, Served& served) {
  for (const char* path : {"/v1/models", "/v1/models/*"})
    router.add("GET", path, On::Io, [&served](const HttpRequest& request, const Shared& reply) {
      answer_models(served.options, served.model, &served.service, request, *reply);
    });
}

// --- text and tokens ---

// With control tokens as they are written.
std::string text_of(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  Utf8Stream stream;
  std::string text;
  for (Token token : tokens) text += stream.push(tokenizer.piece(token));
  return text + stream.finish();
}

// The tokens that the chat API would make of the same body.
std::optional<ApiError> chat_tokens(const Json& json, const Served& served, std::vector<Token>& tokens) {
  Question q = new_question(served);
  Tokenized tokenized;
  if (auto fault = read_chat(json, served, q)) return fault;
  if (auto fault = tokenize(served, q, tokenized)) return fault;
  tokens = std::move(tokenized.prompts[0]);
  return {};
}

// `prompt` is vLLM's name, `content` llama-server's; they differ in what they take for granted.
std::optional<ApiError> text_tokens(Body& body, const Chat& chat, std::vector<Token>& tokens) {
  const bool ours = body.any("prompt");
  const auto text = body.text(ours ? "prompt" : "content");
  const bool begins =
      ours ? body.flag("add_special_tokens").value_or(true) : body.flag("add_special").value_or(false);
  const bool special = body.flag("parse_special").value_or(false);
  if (!text) body.wrong("prompt", "expected a text, or `messages`; found neither");
  if (!body.fine()) return body.fault();
  auto encoded = chat.tokenizer().encode(*text, special ? AddedTokens::All : AddedTokens::User);
  if (!encoded) return api_error(encoded.error());
  tokens = encoded.take();
  if (begins && chat.tokenizer().add_bos()) tokens.insert(tokens.begin(), *chat.tokenizer().bos());
  return {};
}

void answer_tokenize(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto json = read_body(request, *reply);
  if (!json) return;
  std::optional<ApiError> fault;
  Body body(*json, fault);
  const bool pieces = body.flag("with_pieces").value_or(false),
             texts = body.flag("return_token_strs").value_or(false);
  std::vector<Token> tokens;
  if (!fault)
    fault =
        body.any("messages") ? chat_tokens(*json, served, tokens) : text_tokens(body, served.chat, tokens);
  if (fault) return void(refuse(*reply, request, *fault));
  auto piece = [&](Token token) { return token_text(served.chat.tokenizer(), token, false); };
  Json answer = {{"tokens", tokens}};
  if (body.any("content") && pieces) {
    answer["tokens"] = Json::array();
    for (Token token : tokens) answer["tokens"].push_back({{"id", token}, {"piece", piece(token)}});
  }
  if (!body.any("content"))
    answer = {{"count", tokens.size()}, {"max_model_len", served.service.context()}, {"tokens", tokens}};
  if (texts) answer["token_strs"] = Json::array();
  if (texts)
    for (Token token : tokens) answer["token_strs"].push_back(piece(token));
  send_json(*reply, answer);
}

void answer_detokenize(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto json = read_body(request, *reply);
  if (!json) return;
  std::optional<ApiError> fault;
  Body body(*json, fault);
  const Tokenizer& tokenizer = served.chat.tokenizer();
  const Json* list = body.list("tokens");
  if (!list) body.wrong("tokens", "expected a list of token ids, found none");
  std::vector<Token> tokens;
  for (size_t i = 0; list && i < list->size(); ++i) {
    const Json& id = (*list)[i];
    if (id.is_number_integer() && id >= 0 && id < tokenizer.size()) tokens.push_back(id.get<Token>());
    else
      body.wrong("tokens",
                 "expected ids from 0 to " + std::to_string(tokenizer.size() - 1) + ", found " + kind_of(id));
  }
  if (fault) return void(refuse(*reply, request, *fault));
  const std::string text = text_of(tokenizer, tokens);
  send_json(*reply, {{"prompt", text}, {"content", text}});
}

// The prompt of a chat as the model gets it.
void answer_render(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto json = read_body(request, *reply);
  if (!json) return;
  std::vector<Token> tokens;
  if (auto fault = chat_tokens(*json, served, tokens)) return void(refuse(*reply, request, *fault));
  send_json(*reply, {{"prompt", text_of(served.chat.tokenizer(), tokens)}, {"prompt_token_ids", tokens}});
}

Json tokenizer_info(const Served& served) {
  const Tokenizer& t = served.chat.tokenizer();
  auto text = [&](std::optional<Token> id) { return id ? Json(token_text(t, *id, false)) : Json(); };
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
  const AnswerFormat& format = served.dialect->format;
  return {{"total_slots", served.places().size()},
          {"default_generation_settings", {{"n_ctx", served.service.context()}}},
          {"model_path", m.path},
          {"model_alias", served.options.names[0]},
          {"chat_template", m.chat_template},
          {"chat_template_caps",
           {{"supports_tools", format.has_calls()},
            {"supports_tool_calls", format.has_calls()},
            {"supports_parallel_tool_calls", format.has_calls()},
            {"supports_thinking", format.thinks()}}},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", "invar " + m.version}};
}

void add_text(Router& router, Served& served) {
  using Answer = void (*)(const Served&, const HttpRequest&, const Shared&);
  const std::pair<const char*, Answer> posts[] = {
      {"/tokenize", answer_tokenize},     {"/v1/tokenize", answer_tokenize},
      {"/detokenize", answer_detokenize}, {"/v1/detokenize", answer_detokenize},
      {"/apply-template", answer_render}, {"/v1/chat/completions/render", answer_render}};
  for (auto [path, answer] : posts)
    router.add("POST", path, On::Text, [&served, answer = answer](const auto& request, const Shared& reply) {
      answer(served, request, reply);
    });
  router.add("GET", "/tokenizer_info", On::Io,
             [&served](const auto&, const Shared& reply) { send_json(*reply, tokenizer_info(served)); });
  router.add("GET", "/props", On::Io,
             [&served](const auto&, const Shared& reply) { send_json(*reply, props(served)); });
}

}  // namespace

Json list_models(const std::vector<std::string>& names, const ModelInfo& model, const Service* service) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(model_json(name, names[0], model, service));
  return {{"object", "list"},
          {"data", list},
          {"has_more", false},
          {"first_id", names.front()},
          {"last_id", names.back()}};
}

void answer_loading(const ApiOptions& options, const ModelInfo& model, const HttpRequest& request,
                    Reply& reply) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/v1/models" || request.path.starts_with("/v1/models/")) {
    if (reads) answer_models(options, model, nullptr, request, reply);
    else refuse(reply, request, wrong_method(request, "GET"));
  } else if (reads && (request.path == "/livez" || request.path == "/ping" || request.path == "/")) {
    send_json(reply, {{"status", "loading"}});
  } else {
    refuse(reply, request, loading());
  }
}

void add_pages(Router& router, Served& served) {
  add_health(router, served);
  add_models(router, served);
  add_text(router, served);
}

}  // namespace invar::server
