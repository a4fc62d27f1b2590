// Errors as clients of each API expect them: the shape goes by the family of the path, the type by the
// status.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace invar::server {

enum class Family { OpenAi, Anthropic };
Family family_of(std::string_view path);  // /v1/messages and what is below it: Anthropic

struct ApiError {
  int status = 400;  // a lasting one (4xx but 408, 429) comes with x-should-retry: false
  std::string message;
  std::string code = {};   // OpenAI's `code`; empty: null
  std::string param = {};  // OpenAI's `param`; empty: null
  std::string type = {};   // empty: what the family says for the status
  int retry_after_s = 0;   // above 0: Retry-After and retry-after-ms
  std::string allow = {};  // Allow, with 405
};

// {"error": {...}} as text; with a request id in the Anthropic shape.
std::string error_body(Family family, const ApiError& error, std::string_view request_id);
Headers error_headers(const ApiError& error);

// Sends it; false as Reply::send.
bool refuse(Reply& reply, const HttpRequest& request, const ApiError& error);

// An error of ours as a status: BadRequest and Usage 400, NotFound 404, NoRoom 429, Cancelled 503, others
// 500.
ApiError api_error(const Error& error);

// Those that several places make.
ApiError unknown_url(const HttpRequest& request);
ApiError wrong_method(const HttpRequest& request, std::string_view allowed);
ApiError unknown_model(const std::string& asked);
ApiError wrong_key();
ApiError not_admin();
ApiError loading();
ApiError shutting_down();
ApiError queue_full();
ApiError queued_too_long();
ApiError took_too_long();
ApiError key_busy(int64_t most);
ApiError stopped();  // by /v1/requests

}  // namespace invar::server
