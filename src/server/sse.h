// Server-sent events: how one is written, and the head of their stream.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace invar::server {

// `event: NAME`, unless that is empty, and `data: JSON`, which has no line end in it.
std::string sse_event(std::string_view name, std::string_view json);
std::string sse_comment(std::string_view text);
inline const std::string kSseDone = "data: [DONE]\n\n";

Headers sse_headers();

}  // namespace invar::server
