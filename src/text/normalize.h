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
};

// Roles system, developer, user, assistant, tool; contents null, a string or an array of parts.  Leading
// system messages become one, later ones go where they do not disturb what was rendered before; blocks that
// begin with `x-anthropic-` are dropped; arguments of calls become objects; parts become text; neighbouring
// user messages become one.  A last assistant message is a prefill: see `continues`.  Errors name the
// message, "messages/3/role".
Result<Json> normalize_messages(const Json& messages, const NormalizeOptions& options = {});

// Tools of either API as {"type":"function","function":{name, description, parameters}}; null if there are
// none. Hints of the APIs (cache_control, strict, ...) are dropped.
Result<Json> normalize_tools(const Json& tools);

// The text of the last message if that is an assistant's without calls: the answer goes on from there.
std::optional<std::string> continues(const Json& messages);

}  // namespace invar
