// The program `invar`: see cli/command.h.
#include <invar_commit.h>  // written by cmake/commit.cmake
#include <string>
#include <vector>

#include "cli/command.h"

int main(int count, char** arguments) {
  std::vector<std::string> after(arguments + (count > 0), arguments + count);
  return invar::cli::main(after, {INVAR_VERSION, INVAR_COMMIT});
}
