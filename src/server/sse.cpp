#include "server/sse.h"

namespace invar::server {

std::string sse_event(std::string_view name, std::string_view json) {
  std::string text;
  text.reserve(name.size() + json.size() + 20);
  if (!name.empty()) text.append("event: ").append(name).append("\n");
  return text.append("data: ").append(json).append("\n\n");
}

std::string sse_comment(std::string_view text) { return std::string(": ").append(text).append("\n\n"); }

Headers sse_headers() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

}  // namespace invar::server
