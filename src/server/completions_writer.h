// Answers of /v1/completions, whole and as chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/openai_format.h"

namespace invar::server {

class CompletionsWriter : public OpenAiWriter {
 public:
  // `prompts`: those that are text are repeated as they are, unless they were cut to `most` tokens.
  CompletionsWriter(std::vector<RawPrompt> prompts, OpenAiForm form, std::optional<int64_t> most = {})
      : OpenAiWriter(std::move(form), {"cmpl-", "text_completion", "text_completion"}),
        prompts_(std::move(prompts)),
        most_prompt_(most.value_or(INT64_MAX)) {}

  std::string whole(const Answer& answer) override;
  void begin(const Answer& answer, const Write& write) override;
  void add(const Answer& answer, size_t choice, const Block& block, std::string_view text,
           const Write& write) override;
  void end_choice(const Answer& answer, size_t choice, const Write& write) override;

 private:
  struct Sent {  // of one choice
    bool prompt = false, stopped = false;
    size_t tokens = 0;
    int64_t offset = 0;  // in characters
  };

  std::string prompt_text(const Answer& answer, size_t choice) const;
  Json part(const Answer& answer, size_t choice, std::string_view text, Sent& sent) const;
  void chunk(const Answer& answer, size_t choice, std::string_view text, const Write& write);

  const std::vector<RawPrompt> prompts_;
  const int64_t most_prompt_;  // tokens
  std::vector<Sent> sent_;
};

}  // namespace invar::server
