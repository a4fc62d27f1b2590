// Answers of /v1/responses, whole and as events.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/answer.h"
#include "text/json.h"
#include "text/tokenizer.h"

namespace invar::server {

struct ResponsesForm {
  Json echo = Json::object();  // fields of the request that the response repeats
  bool encrypted = false;      // thoughts also as encrypted_content
  int logprobs = -1;
  struct Tool {  // where the name that the model sees is not the client's
    std::string name, space;
    bool custom = false;  // free text in place of arguments
  };
  std::map<std::string, Tool> tools;
};

std::unique_ptr<Writer> responses_writer(ResponsesForm form, const Tokenizer& tokenizer);

// Text as base64 and back; nothing if it is none.
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace invar::server
