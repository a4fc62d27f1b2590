// One answer to the terminal or a pipe: streams the text while it grows, and sums the run up.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "engine/chat.h"
#include "engine/engine.h"

namespace invar::cli {

struct Told {
  std::vector<Token> tokens;
  std::string text;
  Finish finish = Finish::Running;
  TokenUsage usage;
  Digest logits{};
  double bytes_moved = 0;  // by the passes after the prompt
};

// With `stream` the text goes to standard output as it comes.  Ctrl-C ends the answer, not the program.
Result<Told> tell(Engine& engine, const Chat& chat, Request request, const std::vector<std::string>& stops,
                  bool stream, const Voice& voice);

std::vector<Token> joined(std::vector<Token> prompt, const std::vector<Token>& answer);

// Keeps the state behind a conversation by a name: as a request that asks for no more.
Status save(Engine& engine, const std::string& name, std::vector<Token> conversation);

// Tokens, speeds, memory and digest in one line.
std::string summary(const Told& told);

double rate(double amount, double seconds);  // 0 for no time

}  // namespace invar::cli
