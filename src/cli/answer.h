// One answer to the terminal or a pipe: streams the text while it grows, and sums the run up.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "engine/chat.h"
#include "engine/generate.h"

namespace invar::cli {

struct Told {
  Answer answer;
  std::string text;
};

// With `stream` the text goes to standard output as it comes.  Ctrl-C ends the answer, not the program.
Result<Told> tell(Engine& engine, const Chat& chat, Story& story, const Request& request,
                  const std::vector<std::string>& stops, bool stream, const Voice& voice);

// Tokens, speeds, memory and digest in one line.
std::string summary(const Answer& answer, int64_t prompt_tokens);

double rate(double amount, double seconds);  // 0 for no time

}  // namespace invar::cli
