#include "server/errors.h"

#include <algorithm>

namespace invar::server {
namespace {

struct Types {
  int status;
  const char *open_ai, *anthropic;
};

constexpr Types kTypes[] = {{400, "invalid_request_error", "invalid_request_error"},
                            {401, "invalid_request_error", "authentication_error"},
                            {403, "permission_error", "permission_error"},
                            {404, "invalid_request_error", "not_found_error"},
                            {413, "invalid_request_error", "request_too_large"},
                            {429, "rate_limit_error", "rate_limit_error"},
                            {503, "server_error", "overloaded_error"},
                            {504, "server_error", "timeout_error"}};

const char* type_of(Family family, int status) {
  for (const Types& t : kTypes)
    if (t.status == status) return family == Family::OpenAi ? t.open_ai : t.anthropic;
  if (status < 500) return "invalid_request_error";
  return family == Family::OpenAi ? "server_error" : "api_error";
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// What asking again does not cure: all that is wrong with the request itself.
bool is_lasting(int status) { return status >= 400 && status < 500 && status != 408 && status != 429; }

// What it may, after so many seconds.
ApiError passing(int status, const std::string& message, std::string code, int seconds) {
  ApiError e{status, message + ", try again in " + std::to_string(seconds) + "s", std::move(code)};
  e.retry_after_s = seconds;
  return e;
}

}  // namespace

Family family_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path == kMessages || path.starts_with("/v1/messages/") ? Family::Anthropic : Family::OpenAi;
}

std::string error_body(Family family, const ApiError& e, std::string_view request_id) {
  const std::string type = e.type.empty() ? type_of(family, e.status) : e.type;
  if (family == Family::Anthropic)
    return json_text({{"type", "error"},
                      {"error", {{"type", type}, {"message", e.message}}},
                      {"request_id", std::string(request_id)}});
  return json_text({{"error",
                     {{"message", e.message},
                      {"type", type},
                      {"param", text_or_null(e.param)},
                      {"code", text_or_null(e.code)}}}});
}

Headers error_headers(const ApiError& e) {
  Headers headers = {{"Content-Type", "application/json"}};
  if (e.retry_after_s > 0) {
    headers.push_back({"Retry-After", std::to_string(e.retry_after_s)});
    headers.push_back({"retry-after-ms", std::to_string(int64_t(e.retry_after_s) * 1000)});
  }
  if (is_lasting(e.status)) headers.push_back({"x-should-retry", "false"});
  if (!e.allow.empty()) headers.push_back({"Allow", e.allow});
  if (e.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  return headers;
}

bool refuse(Reply& reply, const HttpRequest& request, const ApiError& error) {
  const Family family = family_of(request.path);
  // Clients of the Anthropic API know 529 for a server that cannot take them now.
  const int status = family == Family::Anthropic && error.status == 503 ? 529 : error.status;
  reply.log({{"error", error.code.empty() ? type_of(family, error.status) : error.code}});
  return reply.send(status, error_headers(error), error_body(family, error, request.id));
}

ApiError api_error(const Error& error) {
  ApiError e;
  e.message = error.where.empty() ? error.message : error.where + ": " + error.message;
  switch (error.code) {
    case Code::Usage:
    case Code::BadRequest:
    case Code::Unsupported:
      e.status = 400;
      e.param = error.where;
      break;
    case Code::NotFound:
      e.status = 404;
      break;
    case Code::NoRoom:
      e = queue_full();
      break;
    case Code::Cancelled:
      e = shutting_down();
      break;
    case Code::BadFile:
    case Code::Io:
      e.status = 500;
      break;
  }
  return e;
}

ApiError unknown_url(const HttpRequest& request) {
  return {404, "expected a path that is served, found " + request.method + " " + request.path.substr(0, 200),
          "unknown_url"};
}

ApiError wrong_method(const HttpRequest& request, std::string_view allowed) {
  ApiError e{405,
             request.path.substr(0, 200) + ": expected " + std::string(allowed) + ", found " +
                 request.method.substr(0, 40),
             "method_not_allowed"};
  e.allow = allowed;
  return e;
}

ApiError unknown_model(const std::string& asked) {
  return {404, "the model '" + asked.substr(0, 200) + "' does not exist", "model_not_found", "model"};
}

ApiError wrong_key() {
  return {401, "expected an API key of this server, in Authorization: Bearer or in x-api-key",
          "invalid_api_key"};
}

ApiError not_admin() {
  return {403, "expected the admin's key, or without one a request from this machine itself"};
}

ApiError stopped() {
  constexpr int kClientClosedRequest = 499;  // no standard has one; proxies know this
  return {kClientClosedRequest, "the request was cancelled", "request_cancelled"};
}

ApiError took_too_long() { return {504, "the answer took longer than its time", "timeout"}; }

ApiError loading() { return passing(503, "the model is being loaded", "model_loading", 2); }

ApiError shutting_down() { return passing(503, "the server is shutting down", "shutting_down", 5); }

ApiError queue_full() { return passing(429, "the queue is full", "rate_limit_exceeded", 2); }

ApiError queued_too_long() {
  return passing(503, "the request was in the queue for longer than it may", "queue_timeout", 5);
}

ApiError key_busy(int64_t most) {
  return passing(429,
                 "expected at most " + std::to_string(most) + " requests of this key at once, found more",
                 "rate_limit_exceeded", 2);
}

}  // namespace invar::server
