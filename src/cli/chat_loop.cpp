#include "cli/chat_loop.h"

#include <cstdlib>
#include <editline/readline.h>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/options.h"
#include "cli/answer.h"

namespace invar::cli {
namespace {

constexpr const char* kHelp =
    "A line is a message; a line that ends with \\ goes on in the next.\n"
    "/clear   forget the conversation\n"
    "/help    this\n"
    "/quit    leave; so does Ctrl-D.  Ctrl-C stops an answer.\n";

class History {
 public:
  History() : folder_(state_folder()) {
    using_history();
    stifle_history(1000);
    if (!folder_.empty()) read_history(path().c_str());  // none yet: nothing to read
  }
  ~History() {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error || write_history(path().c_str()) != 0)
      note("note: the history could not be saved in " + path());
    std::filesystem::permissions(
        path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, error);
  }
  History(const History&) = delete;
  void add(const std::string& line) { add_history(line.c_str()); }

 private:
  std::string path() const { return folder_ + "/history"; }
  std::string folder_;
};

// Nothing at the end of input.
std::optional<std::string> read_message(History& history) {
  std::string message;
  for (const char* sign = "> ";; sign = "  ") {
    std::unique_ptr<char, decltype(&std::free)> line(readline(sign), &std::free);
    if (!line) return std::nullopt;
    std::string text = line.get();
    if (!text.empty()) history.add(text);
    bool goes_on = text.ends_with('\\');
    if (goes_on) text.back() = '\n';
    message += text;
    if (!goes_on) return message;
  }
}

Json opening(const std::string& system) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(message("system", system));
  return messages;
}

}  // namespace

Result<int> hold_chat(Engine& engine, const Chat& chat, Talk talk, const Voice& voice) {
  History history;
  Json messages = opening(talk.system);
  if (!voice.quiet) note("/help has the commands; Ctrl-D leaves");
  while (auto line = read_message(history)) {
    if (line->find_first_not_of(" \t\n") == std::string::npos) continue;
    if (*line == "/quit") break;
    if (*line == "/help") {
      TRY(say(kHelp));
      continue;
    }
    if (*line == "/clear") {
      messages = opening(talk.system);
      continue;
    }
    Json with_question = messages;
    with_question.push_back(message("user", *line));
    ChatInput input;
    input.messages = with_question;
    auto prompt = chat.prompt(input);
    auto told = prompt ? tell(engine, chat, talk.ask(prompt.take()), talk.stops, true, voice)
                       : Result<Told>(prompt.error());
    if (!told) {
      if (told.error().code == Code::Io) return told.error();
      report(told.error());  // the conversation goes on without this message
      continue;
    }
    TRY(say("\n"));
    if (!voice.quiet) note(summary(*told));
    messages = std::move(with_question);
    messages.push_back(message("assistant", told->text));
  }
  TRY(say("\n"));
  return 0;
}

}  // namespace invar::cli
