// The commands of the program.  A new one is a file that defines NAME_command, and a line in INVAR_COMMANDS.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace invar::cli {

struct Command {
  const char* name;
  const char* summary;
  // Takes the arguments after the command's name; gives the exit status.  What comes back as an error was not
  // reported yet.
  Result<int> (*run)(std::span<const std::string> arguments);
};

#define INVAR_COMMANDS(command)                                                                         \
  command(run) command(logits) command(tokenize) command(detokenize) command(template) command(inspect) \
      command(synth) command(bench) command(states) command(serve) command(models)

#define INVAR_DECLARE(name) extern const Command name##_command;
INVAR_COMMANDS(INVAR_DECLARE)
#undef INVAR_DECLARE

struct Build {
  const char* version = "";
  const char* commit = "";  // empty: not known
};

// `arguments` without the program's name.
int main(std::span<const std::string> arguments, const Build& build);

const Build& build();  // as given to main

}  // namespace invar::cli
