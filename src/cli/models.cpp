// `invar models`: the built-in names that stand for a MODEL.
#include "cli/command.h"
#include "cli/settings.h"

namespace invar::cli {
namespace {

Result<int> run(std::span<const std::string> arguments) {
  Voice voice;
  Options options("models [options]", "Lists the built-in models; there are none yet.",
                  {"invar models", "invar models --json"});
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;
  if (voice.json) TRY(say_json({{"models", Json::array()}}));
  if (!voice.quiet) note("no model is built in; give a GGUF file or a folder with safetensors");
  return 0;
}

}  // namespace

const Command models_command = {"models", "lists the built-in models", run};

}  // namespace invar::cli
