// What the fuzz target of the request adapters does with one input, and the unit test with many: the first
// byte is the API, the rest the body.  True: it is a question.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/check.h"
#include "server/parse.h"

namespace invar {

inline bool fuzz_adapter(std::span<const std::byte> bytes, const server::Served& served) {
  using namespace server;
  if (bytes.empty()) return false;
  const auto api = size_t(bytes[0]) % 4;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  const auto json = parse_ordered_json(text, "body");
  if (!json) return false;
  Question q;
  ResponsesForm form;
  const auto fault = api == 0   ? read_completions(*json, served, q)
                     : api == 1 ? read_chat(*json, served, q)
                     : api == 2 ? read_responses(*json, served, q, form)
                                : read_messages(*json, served, q);
  if (fault) {
    CHECK(fault->status == 400 && !fault->param.empty());
    CHECK(fault->message.find(fault->param) != std::string::npos);
    return false;
  }
  CHECK(q.prompts.empty() == q.conversation.has_value());
  CHECK(q.n >= 1 && q.n <= served.options.most_choices);
  CHECK(q.logprobs <= served.options.most_logprobs);
  return true;
}

}  // namespace invar
