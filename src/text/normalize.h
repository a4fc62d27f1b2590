// Messages and tools of a request, in the form of OpenAI's chat API, as chat templates take them.  Pure
// functions of the request, so that a conversation that comes back renders to the same bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/json.h"

namespace invar {

enum class LateSystem { Inline, Hoist, Reject };  // system messages behind the first answer

struct NormalizeOptions {
  LateSystem late_system = LateSystem::Inline;
  bool merge_users = false;   // for templates that demand turns in alternation
  bool keep_headers = false;  // those that begin with `x-anthropic-`
};

// Roles system, developer, user, assistant, tool; contents null, a string or an array of text parts.  System
// messages before the first answer become one.  Later ones become a user's text in a tag, at their place
// (Inline), so that what was rendered before stays.  Lines of headers that begin with `x-anthropic-` are
// dropped from the front of system messages and of their parts; arguments of calls become objects, of text
// that is none {"_raw": text}; contents become strings.  Without a user message an empty one is added.  A
// last assistant message is there still: see `continues`.  Errors are BadRequest and name the place,
// "messages/3/role".
Result<Json> normalize_messages(const Json& messages, const NormalizeOptions& options = {});

// Tools of either API as {"type":"function","function":{name, description, parameters}}; null if there are
// none. Hints of the APIs (cache_control, strict, ...) are dropped.
Result<Json> normalize_tools(const Json& tools);

// Of normalised messages: the text of the last if that is an assistant's without calls.  The answer goes on
// from there, so render without it and put the text behind the prompt.
std::optional<std::string> continues(const Json& messages);

}  // namespace invar
