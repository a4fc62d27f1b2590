// The text layer for tests/text/compare.py: reads one JSON object per line, answers with one per line.
//
//   {"load": path} of a tokenizer.json, or of arrays as GGUF has them  -> {"size": n}
//   {"encode": [hex bytes], "mode": 0..2}                     -> {"ids": [[...]]}
//   {"template": source, "variables": text, "now": seconds}  -> {"text": ...}
// A failure is answered by {"error": message}.
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace invar {

namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

Result<Tokenizer> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  TokenizerSpec spec;
  const Json json = TRY(parse_ordered_json(text, path));
  if (!json.contains("tokens")) {
    spec.tokenizer_json = std::move(text);
    return Tokenizer::make(spec);
  }
  spec.model = json.value("model", "");
  spec.pre = json.value("pre", "");
  spec.pieces = json["tokens"].get<std::vector<std::string>>();
  spec.types = json["types"].get<std::vector<int32_t>>();
  spec.scores = json.value("scores", std::vector<float>());
  spec.merges = json.value("merges", std::vector<std::string>());
  spec.add_space_prefix = json.value("add_space_prefix", true);
  return Tokenizer::make(spec);
}

Result<Json> answer(const Json& request, std::optional<Tokenizer>& tokenizer) {
  if (request.contains("load")) {
    tokenizer.reset();
    tokenizer.emplace(TRY(load(request["load"])));
    return Json{{"size", tokenizer->size()}};
  }
  if (request.contains("encode")) {
    const auto mode = static_cast<AddedTokens>(request.value("mode", 0));
    Json ids = Json::array();
    for (const Json& text : request["encode"]) ids.push_back(TRY(tokenizer->encode(from_hex(text), mode)));
    return Json{{"ids", ids}};
  }
  const ChatTemplate chat = TRY(ChatTemplate::make(request["template"].get<std::string>()));
  return Json{
      {"text", TRY(chat.render_text(request["variables"].get<std::string>(), request.value("now", 0)))}};
}

}  // namespace

}  // namespace invar

int main() {
  std::optional<invar::Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    const invar::Json request = invar::Json::parse(line);
    auto result = invar::answer(request, tokenizer);
    const invar::Json out = result ? *result : invar::Json{{"error", result.error().message}};
    std::cout << invar::json_text(out) << std::endl;
  }
}
