// Answers of /v1/messages, whole and as events.
#pragma once

#include <memory>
#include <string>

#include "server/answer.h"

namespace invar::server {

// `request_id`: what errors in the stream carry.  `hide_thoughts`: their blocks come without text.
std::unique_ptr<Writer> messages_writer(std::string request_id, bool hide_thoughts = false);

}  // namespace invar::server
