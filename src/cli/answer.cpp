#include "cli/answer.h"

#include <cstdio>

#include "cli/settings.h"

namespace invar::cli {

Result<Told> tell(Engine& engine, const Chat& chat, Story& story, const Request& request,
                  const std::vector<std::string>& stops, bool stream, const Voice& voice) {
  Interrupt interrupt;
  AnswerText text(chat.tokenizer(), stops);
  Status written = Ok{};
  auto show = [&](const std::string& part) {
    if (stream && !part.empty() && written) written = say(part);
  };
  auto progress = std::make_unique<Progress>("prompt", voice);
  Listener listener;
  listener.on_prompt = [&](int64_t done, int64_t rows) { progress->set(double(done) / double(rows)); };
  listener.on_token = [&](Token token) {
    progress.reset();
    show(text.push(token));
    return written && !text.stopped();
  };
  listener.interrupt = &Interrupt::flag();
  Answer answer = TRY(generate(engine, story, request, listener));
  progress.reset();
  show(text.finish());
  TRY(std::move(written));
  return Told{std::move(answer), text.text()};
}

std::string summary(const Answer& a, int64_t prompt_tokens) {
  char line[320];
  double tokens = double(a.tokens.size());
  std::snprintf(
      line, sizeof line,
      "prompt %lld tokens, %.2f tok/s; answer %zu tokens, %.2f tok/s, %.2f GB/s; peak memory %.3f GiB; "
      "logits sha256 %s",
      static_cast<long long>(prompt_tokens), rate(double(a.prompt_rows), a.prompt_s), a.tokens.size(),
      rate(tokens, a.generate_s), rate(a.bytes_moved, a.generate_s) / 1e9, double(peak_rss_bytes()) / 0x1p30,
      hex(a.logits).c_str());
  return line;
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace invar::cli
