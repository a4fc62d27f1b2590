// Which handler takes a request, and on which thread; what the model is called.
#include <algorithm>
#include <exception>

#include "server/server.h"
#include "server/waiting.h"

namespace invar::server {
namespace {

bool matches(const std::string& route, const std::string& path) {
  if (!route.ends_with("/*")) return route == path;
  const size_t stem = route.size() - 1;
  return path.size() > stem && path.compare(0, stem, route, 0, stem) == 0;
}

// An exception of a library that nobody caught costs this request, not the others.
void call(const RouteHandler& handler, const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  try {
    handler(request, reply);
  } catch (const std::exception& e) {
    if (!refuse(*reply, request, {500, std::string("internal error: ") + e.what()})) reply->cut();
  }
}

}  // namespace

void Router::add(const std::string& method, const std::string& path, On on, RouteHandler handler) {
  routes_.push_back({method, path, on, std::make_shared<const RouteHandler>(std::move(handler))});
}

void Router::handle(HttpRequest request, std::shared_ptr<Reply> reply, Served& served) const {
  std::string allowed;
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : routes_) {
    if (!matches(route.path, request.path)) continue;
    if (route.method != method) {
      allowed += (allowed.empty() ? "" : ", ") + route.method;
      continue;
    }
    if (route.on == On::Io) return call(*route.handler, request, reply);
    auto waiting = Waiting::enter(request, reply, served);
    if (!waiting) {
      served.metrics.rejected.add();
      return void(refuse(*reply, request, queue_full()));
    }
    served.text.post([handler = route.handler, waiting = std::move(waiting)] {
      if (const auto taken = waiting->take()) call(*handler, taken->request, taken->reply);
    });
    return;
  }
  refuse(*reply, request, allowed.empty() ? unknown_url(request) : wrong_method(request, allowed));
}

void send_json(Reply& reply, const Json& json, int status) {
  reply.send(status, {{"Content-Type", "application/json"}}, json_text(json));
}

void add_routes(Router& router, Served& served) {
  for (auto add :
       {add_pages, add_metrics, add_operations, add_completions, add_chat, add_responses, add_messages})
    add(router, served);
}

std::optional<std::string> ApiOptions::model_name(const std::string& asked) const {
  if (asked.empty()) return names.at(0);
  if (any_model || std::find(names.begin(), names.end(), asked) != names.end()) return asked;
  return {};
}

}  // namespace invar::server
