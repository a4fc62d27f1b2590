#include "engine/request.h"

#include <bit>
#include <string>

namespace invar {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian values");

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::Running:
      return "running";
    case Finish::Stop:
      return "stop";
    case Finish::Length:
      return "length";
    case Finish::StopString:
      return "stop_string";
    case Finish::Cancelled:
      return "interrupt";
    case Finish::Deadline:
      return "deadline";
    case Finish::Failed:
      return "failed";
  }
  return "";
}

Status check_fits(int64_t prompt_tokens, int64_t context) {
  if (prompt_tokens <= context) return Ok{};
  return Error{Code::NoRoom, "prompt",
               "expected at most " + std::to_string(context) + " tokens, the context; found " +
                   std::to_string(prompt_tokens)};
}

Digest digest_tokens(std::span<const Token> tokens) { return sha256(std::as_bytes(tokens)); }

}  // namespace invar
