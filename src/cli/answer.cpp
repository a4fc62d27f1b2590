#include "cli/answer.h"

#include <cstdio>
#include <optional>

#include "base/machine.h"
#include "cli/settings.h"

namespace invar::cli {

Result<Told> tell(Engine& engine, const Chat& chat, Request request, const std::vector<std::string>& stops,
                  bool stream, const Voice& voice) {
  Interrupt interrupt;
  AnswerText text(chat.tokenizer(), stops);
  Status written = Ok{};
  auto show = [&](const std::string& part) {
    if (stream && !part.empty() && written) written = say(part);
  };
  std::optional<Progress> progress;
  progress.emplace("prompt", voice);
  Told told;
  std::optional<Error> failure;
  request.digest = true;
  request.on_event = [&](const Event& e) {
    told.usage = e.usage;
    told.finish = e.finish;
    told.logits = e.logits;
    failure = e.error;
    const int64_t rows = e.usage.prompt_tokens - e.usage.cached_tokens;
    if (progress && e.tokens.empty()) progress->set(double(e.usage.prompt_rows) / double(rows));
    for (Token token : e.tokens) {
      progress.reset();
      told.tokens.push_back(token);
      show(text.push(token));
    }
    return written && !text.stopped();
  };
  const uint64_t id = TRY(engine.submit(std::move(request)));
  while (engine.step())
    if (Interrupt::flag()) engine.cancel(id);
  progress.reset();
  if (failure) return *std::move(failure);
  show(text.finish());
  TRY(std::move(written));
  told.text = text.text();
  for (int64_t i = 0; i < told.usage.answer_rows; ++i)
    told.bytes_moved += double(engine.runner().bytes_per_token(told.usage.prompt_tokens + i));
  return told;
}

std::vector<Token> joined(std::vector<Token> prompt, const std::vector<Token>& answer) {
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  return prompt;
}

Status save(Engine& engine, const std::string& name, std::vector<Token> conversation) {
  Request request;
  request.prompt = std::move(conversation);
  request.max_tokens = 0;
  request.save_as = name;
  std::optional<Error> failure;
  request.on_event = [&](const Event& e) {
    failure = e.error;
    return true;
  };
  TRY(engine.submit(std::move(request)));
  engine.run_until_idle();
  if (failure) return *std::move(failure);
  return Ok{};
}

std::string summary(const Told& t) {
  char line[320];
  double tokens = double(t.tokens.size());
  std::snprintf(
      line, sizeof line,
      "prompt %lld tokens, %.2f tok/s; answer %zu tokens, %.2f tok/s, %.2f GB/s; peak memory %.3f GiB; "
      "logits sha256 %s",
      static_cast<long long>(t.usage.prompt_tokens), rate(double(t.usage.prompt_rows), t.usage.prompt_s),
      t.tokens.size(), rate(tokens, t.usage.answer_s), rate(t.bytes_moved, t.usage.answer_s) / 1e9,
      double(peak_rss_bytes()) / 0x1p30, hex(t.logits).c_str());
  return line;
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace invar::cli
