// A conversation on a terminal, with line editing and a history.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "engine/chat.h"
#include "engine/engine.h"

namespace invar::cli {

struct Talk {
  std::string system;  // empty: none
  std::vector<std::string> stops;
  std::function<Request(std::vector<Token> prompt)> ask;
  std::string save_as;  // each answer, and what led to it, is kept by this name
  std::string from;     // goes on from the conversation of this name
};

// Until the end of input, /quit, or Ctrl-C at the prompt.
Result<int> hold_chat(Engine& engine, const Chat& chat, Talk talk, const Voice& voice);

}  // namespace invar::cli
