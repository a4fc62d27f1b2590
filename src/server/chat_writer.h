// Answers of /v1/chat/completions, whole and as chunks.
#pragma once

#include <string>
#include <vector>

#include "server/openai_format.h"

namespace invar::server {

class ChatWriter : public OpenAiWriter {
 public:
  struct Options {
    std::string reasoning_field = "both";  // reasoning_content, reasoning, both; content: part of the text
    bool legacy_call = false;  // function_call in place of tool_calls: the request had `functions`
  };
  ChatWriter(OpenAiForm form, Options options)
      : OpenAiWriter(std::move(form), {"chatcmpl-", "chat.completion", "chat.completion.chunk"}),
        options_(std::move(options)) {}

  std::string whole(const Answer& answer) override;
  void begin(const Answer& answer, const Write& write) override;
  void open(const Answer& answer, size_t choice, const Block& block, const Write& write) override;
  void add(const Answer& answer, size_t choice, const Block& block, std::string_view text,
           const Write& write) override;
  void end_choice(const Answer& answer, size_t choice, const Write& write) override;

 private:
  struct Sent {  // of one choice
    bool any = false;
    size_t tokens = 0;
    int calls = 0;
  };

  Json message(const Choice& choice) const;
  void add_reasoning(Json& to, std::string_view text) const;
  Json logprobs(std::span<const Said> said) const;
  const char* reason(const Choice& choice) const;
  void chunk(const Answer& answer, size_t choice, Json delta, const Write& write);

  const Options options_;
  std::vector<Sent> sent_;
};

}  // namespace invar::server
