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

// The conversation so far: messages, for the template to write; or the tokens of a saved one, which go on as
// they are.
struct SoFar {
  Json messages;
  std::vector<Token> tokens;
  std::string from;  // not yet taken up

  Result<std::vector<Token>> prompt(const Chat& chat, const std::string& line) const {
    if (!tokens.empty()) return joined(tokens, TRY(chat.next_turn(line)));
    ChatInput input;
    input.messages = messages;
    input.messages.push_back(message("user", line));
    return chat.prompt(input);
  }
};

Status answer(Engine& engine, const Chat& chat, const Talk& talk, SoFar& so_far, const std::string& line,
              const Voice& voice) {
  const std::vector<Token> prompt = TRY(so_far.prompt(chat, line));
  Request request = talk.ask(prompt);
  request.from = so_far.from;
  const Told told = TRY(tell(engine, chat, std::move(request), talk.stops, true, voice));
  TRY(say("\n"));
  if (!voice.quiet) note(summary(told));
  so_far.from.clear();
  const std::vector<Token> conversation = joined(prompt, told.tokens);
  if (!so_far.tokens.empty()) {
    so_far.tokens = conversation;
  } else {
    so_far.messages.push_back(message("user", line));
    so_far.messages.push_back(message("assistant", told.text));
  }
  if (!talk.save_as.empty()) TRY(save(engine, talk.save_as, conversation));
  return Ok{};
}

}  // namespace

Result<int> hold_chat(Engine& engine, const Chat& chat, Talk talk, const Voice& voice) {
  SoFar so_far{opening(talk.system), {}, talk.from};
  if (!talk.from.empty()) so_far.tokens = TRY(engine.saved_tokens(talk.from));
  History history;
  if (!voice.quiet) note("/help has the commands; Ctrl-D leaves");
  while (auto line = read_message(history)) {
    if (line->find_first_not_of(" \t\n") == std::string::npos) continue;
    if (*line == "/quit") break;
    if (*line == "/help") {
      TRY(say(kHelp));
      continue;
    }
    if (*line == "/clear") {
      so_far = {opening(talk.system), {}, {}};
      continue;
    }
    auto answered = answer(engine, chat, talk, so_far, *line, voice);
    if (!answered) {
      if (answered.error().code == Code::Io) return answered.error();
      report(answered.error());  // the conversation goes on without this message
    }
  }
  TRY(say("\n"));
  return 0;
}

}  // namespace invar::cli
