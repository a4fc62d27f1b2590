// `invar tokenize` and `invar detokenize`: text to ids and back.
#include "base/sha256.h"
#include "cli/command.h"
#include "cli/settings.h"

namespace invar::cli {
namespace {

std::string hex_of(std::string_view bytes) {
  return hex(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

Result<int> tokenize(std::span<const std::string> arguments) {
  std::string model, file;
  std::optional<std::string> prompt;
  bool special = false;
  Voice voice;
  Options options(
      "tokenize MODEL [-p TEXT] [options]",
      "The token ids of a text, and the bytes of each as hexadecimal text.",
      {"invar tokenize model.gguf -p 'hello world'", "invar tokenize model.gguf --json < text.txt"});
  options.text("MODEL", model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  options.text("-p,--prompt", prompt, "TEXT", "The text (default: standard input)");
  options.text("-f,--file", file, "FILE", "Read it from a file");
  options.flag("--special", special, "Control tokens in the text become control tokens");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;

  Chat chat = TRY(Chat::make(TRY(ModelFile::open(model, Need::Header))));
  std::string text = TRY(read_text(prompt, file));
  std::vector<Token> ids = TRY(chat.tokenizer().encode(text, special ? AddedTokens::All : AddedTokens::User));
  std::string lines;
  Json pieces = Json::array();
  for (Token id : ids) {
    std::string piece = hex_of(chat.tokenizer().piece(id));
    lines += std::to_string(id) + " " + piece + "\n";
    pieces.push_back(std::move(piece));
  }
  TRY(voice.json ? say_json({{"ids", ids}, {"pieces", pieces}}) : say(lines));
  return 0;
}

Result<int> detokenize(std::span<const std::string> arguments) {
  std::string model, ids;
  Voice voice;
  Options options(
      "detokenize MODEL IDS [options]", "The text of token ids: exactly their bytes.",
      {"invar detokenize model.gguf 9707,1879", "invar detokenize model.gguf '9707 1879' --json"});
  options.text("MODEL", model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  options.text("IDS", ids, "IDS", "Decimal ids, separated by commas or blanks");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;

  Chat chat = TRY(Chat::make(TRY(ModelFile::open(model, Need::Header))));
  const Tokenizer& tokenizer = chat.tokenizer();
  std::string text;
  for (Token id : TRY(parse_tokens(ids, tokenizer.size(), "IDS"))) text += tokenizer.piece(id);
  if (tokenizer.adds_space() && text.starts_with(' ')) text.erase(0, 1);
  TRY(voice.json ? say_json({{"text", text}}) : say(text));
  return 0;
}

}  // namespace

const Command tokenize_command = {"tokenize", "a text to token ids", tokenize};
const Command detokenize_command = {"detokenize", "token ids to their text", detokenize};

}  // namespace invar::cli
