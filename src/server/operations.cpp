// What an operator asks for: what each sequence is at, one request by its id and its end, and what changes
// the server.
#include "server/ask.h"
#include "server/server.h"

namespace invar::server {
namespace {

using Shared = std::shared_ptr<Reply>;

// As llama-server writes it.  No drafts are made as yet.
Json place_json(size_t index, const Place& p, int64_t context) {
  const TokenUsage& u = p.usage;
  const int64_t left = p.most_tokens < 0 ? -1 : std::max<int64_t>(0, p.most_tokens - u.answer_tokens);
  const SamplingParams& s = p.sampling;
  return {{"id", index},
          {"id_task", p.request == 0 ? Json(-1) : Json(p.request)},
          {"n_ctx", context},
          {"speculative", false},
          {"is_processing", p.busy},
          {"n_prompt_tokens", u.prompt_tokens},
          {"n_prompt_tokens_processed", u.prompt_rows},
          {"n_prompt_tokens_cache", u.cached_tokens},
          {"n_decoded", u.answer_tokens},
          {"n_draft", 0},
          {"n_draft_accepted", 0},
          {"params",
           {{"n_predict", p.most_tokens},
            {"seed", s.seed},
            {"temperature", s.temperature},
            {"top_k", s.top_k},
            {"top_p", s.top_p},
            {"min_p", s.min_p},
            {"repeat_penalty", s.repetition},
            {"presence_penalty", s.presence},
            {"frequency_penalty", s.frequency}}},
          {"next_token", {{"has_next_token", p.busy}, {"n_remain", left}, {"n_decoded", u.answer_tokens}}}};
}

void show_places(const Served& served, const HttpRequest&, const Shared& reply) {
  Json list = Json::array();
  for (const Place& place : served.places())
    list.push_back(place_json(list.size(), place, served.service.context()));
  send_json(*reply, list);
}

// --- one request ---

std::string id_asked(const HttpRequest& request) {
  return percent_decoded(request.path.substr(std::string_view("/v1/requests/").size()));
}

// Whose requests it may see: its own key's, without keys those of all; the admin's key those of all.
std::optional<int> key_of(const HttpRequest& request) {
  return request.admin_key ? std::nullopt : std::optional(request.key);
}

ApiError unknown_request(const std::string& id) {
  return {404,
          "expected the id of a request on its way or of one of the last, found '" + id.substr(0, 200) + "'",
          "request_not_found"};
}

void show_request(const Served& served, const HttpRequest& request, const Shared& reply) {
  const std::string id = id_asked(request);
  const auto found = served.requests->find(id, key_of(request));
  const Json state = found ? found->state() : served.requests->ended(id, key_of(request));
  if (state.is_null()) refuse(*reply, request, unknown_request(id));
  else send_json(*reply, state);
}

void stop_request(const Served& served, const HttpRequest& request, const Shared& reply) {
  const std::string id = id_asked(request);
  const auto found = served.requests->find(id, key_of(request));
  if (!found) return void(refuse(*reply, request, unknown_request(id)));
  found->stop();
  send_json(*reply, {{"id", id}, {"object", "request"}, {"cancelled", true}});
}

// --- the server ---

void drain(const Served& served, const HttpRequest&, const Shared& reply) {
  send_json(*reply, {{"status", "draining"}});
  served.end();
}

void clear_cache(const Served& served, const HttpRequest&, const Shared& reply) {
  served.service.forget([reply] { send_json(*reply, {{"status", "cleared"}}); });
}

void set_log_level(const Served& served, const HttpRequest& request, const Shared& reply) {
  const auto json = read_body(request, *reply);
  if (!json) return;
  std::optional<ApiError> fault;
  Body body(*json, fault);
  const std::string level = body.text("level").value_or("");
  if (level != "none" && level != "requests")
    body.wrong("level", "expected none or requests, found \"" + level + "\"");
  if (fault) return void(refuse(*reply, request, *fault));
  served.log_requests(level == "requests");
  send_json(*reply, {{"level", level}});
}

}  // namespace

void add_operations(Router& router, Served& served) {
  using Answer = void (*)(const Served&, const HttpRequest&, const Shared&);
  struct Path {
    const char *method, *path;
    Answer answer;
    bool admin;
  };
  constexpr Path kPaths[] = {{"GET", "/slots", show_places, false},
                             {"GET", "/v1/requests/*", show_request, false},
                             {"DELETE", "/v1/requests/*", stop_request, false},
                             {"POST", "/admin/drain", drain, true},
                             {"POST", "/admin/cache/clear", clear_cache, true},
                             {"POST", "/admin/log-level", set_log_level, true}};
  for (const Path& p : kPaths)
    router.add(p.method, p.path, On::Io, [&served, p](const HttpRequest& request, const Shared& reply) {
      if (p.admin && !request.admin) refuse(*reply, request, not_admin());
      else p.answer(served, request, reply);
    });
}

}  // namespace invar::server
