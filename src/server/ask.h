// A question to the service, and its answer back through the writer of an API: whole, or as a stream.
#pragma once

#include <memory>
#include <optional>

#include "server/answer.h"
#include "server/http.h"
#include "server/question.h"
#include "server/server.h"

namespace invar::server {

// With the server's defaults for what a request leaves open.
Question new_question(const Served& served);

// The body as JSON; none: it was refused.
std::optional<Json> read_body(const HttpRequest& request, Reply& reply);

// On the text thread.  Refuses, or submits and returns; the answer comes from the service's thread.
void ask(Served& served, const HttpRequest& request, const std::shared_ptr<Reply>& reply, Question question,
         std::unique_ptr<Writer> writer);

}  // namespace invar::server
