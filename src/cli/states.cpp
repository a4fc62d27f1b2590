// `invar states`: the conversations that were saved by name in a cache folder.
#include <cstdio>
#include <ctime>

#include "cli/command.h"
#include "cli/settings.h"
#include "state/saved_states.h"

namespace invar::cli {
namespace {

std::string date_of(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[40];
  if (!gmtime_r(&time, &parts) || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "unknown";
  return text;
}

Json json_of(const SavedInfo& s) {
  if (s.damage) return {{"name", s.name}, {"error", s.damage->message}};
  return {{"name", s.name},
          {"tokens", s.tokens},
          {"bytes", s.bytes},
          {"fingerprint", s.model},
          {"saved_at", date_of(s.saved_at)}};
}

std::string line_of(const SavedInfo& s) {
  if (s.damage) return s.name + "  damaged: " + s.damage->message + "\n";
  return s.name + "  " + std::to_string(s.tokens) + " tokens  " + std::to_string(s.bytes) + " bytes  model " +
         s.model.substr(0, 12) + "  " + date_of(s.saved_at) + "\n";
}

Result<int> run(std::span<const std::string> arguments) {
  std::string folder, forget;
  Voice voice;
  Options options("states --cache-dir DIR [options]",
                  "Lists the conversations that `invar run --save-as` keeps in a cache folder.",
                  {"invar states --cache-dir ~/.cache/invar", "invar states --cache-dir DIR --forget trip"});
  options.text("--cache-dir", folder, "DIR", "The folder");
  options.text("--forget", forget, "NAME", "Remove this one instead");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;
  if (folder.empty()) return Error{Code::Usage, "--cache-dir", "expected a folder, found none"};
  folder = saved_folder(folder);
  if (!forget.empty()) {
    if (!TRY(forget_saved(folder, forget)))
      return Error{Code::NotFound, forget,
                   "expected a saved state of this name in " + folder + ", found none"};
    if (voice.json) TRY(say_json({{"forgotten", forget}}));
    return 0;
  }
  const std::vector<SavedInfo> list = TRY(list_saved(folder));
  Json states = Json::array();
  for (const SavedInfo& s : list) states.push_back(json_of(s));
  if (voice.json) TRY(say_json({{"states", states}}));
  else
    for (const SavedInfo& s : list) TRY(say(line_of(s)));
  return 0;
}

}  // namespace

const Command states_command = {"states", "lists and removes saved conversations", run};

}  // namespace invar::cli
