// `invar template`: a conversation as the prompt that the model's chat template makes of it.
#include "base/file.h"
#include "cli/command.h"
#include "cli/settings.h"

namespace invar::cli {
namespace {

constexpr uint64_t kMessagesLimit = 64 << 20;

// An object with `messages` and perhaps `tools`, `documents` and variables; or the array of messages alone.
Result<ChatInput> read_conversation(const std::string& path) {
  Json whole = TRY(parse_ordered_json(TRY(read_file(path, kMessagesLimit)), path));
  ChatInput input;
  if (whole.is_array()) whole = Json{{"messages", whole}};
  if (!whole.is_object() || !whole.contains("messages") || !whole["messages"].is_array())
    return Error{Code::BadRequest, path, "expected an object with the array 'messages'"};
  for (auto& [key, value] : whole.items()) {
    if (key == "messages") input.messages = value;
    else if (key == "tools") input.tools = value;
    else if (key == "documents") input.documents = value;
    else input.options[key] = value;
  }
  return input;
}

Result<int> run(std::span<const std::string> arguments) {
  std::string model, messages;
  std::vector<std::string> variables;
  bool no_prompt = false;
  Voice voice;
  Options options("template MODEL --messages FILE.json [options]",
                  "Prints exactly the prompt that the model's chat template makes of a conversation.",
                  {"invar template model.gguf --messages talk.json",
                   "invar template model.gguf --messages talk.json --var enable_thinking=false",
                   "invar template model.gguf --messages talk.json --no-generation-prompt --json"});
  options.text("MODEL", model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  options.text("--messages", messages, "FILE", "JSON with messages, and perhaps tools and variables");
  options.texts("--var", variables, "NAME=JSON", "A variable of the template; repeatable");
  options.flag("--no-generation-prompt", no_prompt, "Without the beginning of the answer");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;
  if (messages.empty()) return Error{Code::Usage, "--messages", "expected a file, not given"};

  Chat chat = TRY(Chat::make(TRY(ModelFile::open(model, Need::Header))));
  ChatInput input = TRY(read_conversation(messages));
  input.add_generation_prompt = !no_prompt;
  for (const std::string& variable : variables) {
    size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos)
      return Error{Code::Usage, "--var", "expected NAME=JSON, found '" + variable + "'"};
    auto value = parse_ordered_json(variable.substr(equals + 1), "--var");
    if (!value) return Error{Code::Usage, "--var", value.error().message};
    input.options[variable.substr(0, equals)] = value.take();
  }
  std::string prompt = TRY(chat.prompt_text(input));
  TRY(voice.json ? say_json({{"prompt", prompt}}) : say(prompt));
  return 0;
}

}  // namespace

const Command template_command = {"template", "a conversation as the prompt of the model", run};

}  // namespace invar::cli
