// From the arguments to a command, and from what it gives back to the exit status.
#include <algorithm>
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/command.h"
#include "cli/output.h"

namespace invar::cli {
namespace {

#define INVAR_POINTER(name) &name##_command,
constexpr const Command* kCommands[] = {INVAR_COMMANDS(INVAR_POINTER)};
#undef INVAR_POINTER

Build the_build;

std::string overview() {
  std::string text =
      "Usage: invar COMMAND [options]\n\nRuns language models on the CPU; the same answer bit by bit on "
      "any.\n\n";
  for (const Command* command : kCommands) {
    std::string left = command->name;
    left.resize(14, ' ');
    text += "  " + left + command->summary + "\n";
  }
  return text +
         "\n'invar COMMAND --help' has the options and examples of each, 'invar --version' the version.\n";
}

Result<int> run(std::span<const std::string> arguments) {
  if (arguments.empty()) return Error{Code::Usage, "invar", "expected a command; 'invar --help' lists them"};
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    TRY(say(overview()));
    return 0;
  }
  if (name == "--version" || name == "version") {
    TRY(say(std::string("invar ") + the_build.version + "\n"));
    return 0;
  }
  std::vector<std::string> names;
  for (const Command* command : kCommands) {
    if (name == command->name) return command->run(arguments.subspan(1));
    names.push_back(command->name);
  }
  std::string near = nearest(name, names);
  return Error{Code::Usage, name,
               near.empty() ? "unknown command; 'invar --help' lists them"
                            : "unknown command; did you mean " + near + "?"};
}

}  // namespace

const Build& build() { return the_build; }

int main(std::span<const std::string> arguments, const Build& build) {
  the_build = build;
  set_signals();
  Result<int> result = run(arguments);
  if (result) return *result;
  const Error& error = result.error();
  report(error);
  // The options may not have been understood, so the flag is looked for here.
  if (std::find(arguments.begin(), arguments.end(), "--json") == arguments.end())
    return status_of(error.code);
  Status written = say_json(json_of(error));
  if (!written && error.code != Code::Io) report(written.error());
  return status_of(written ? error.code : Code::Io);
}

}  // namespace invar::cli
