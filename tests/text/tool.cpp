// The text layer for tests/text/compare.py: reads one JSON object per line, answers with one per line.
//
//   {"load": path} of a tokenizer.json, or of arrays as GGUF has them  -> {"size": n}
//   {"encode": [hex bytes], "mode": 0..2}                     -> {"ids": [[...]]}
//   {"schema": schema, "strict": bool, "seed": n}             -> {"answer": text, "ignored": [...]}: a random
//   one
//   {"grammar": kind, "text": text, "schema": schema, "choice": [...], "seed": n}
//       -> {"tokens": [...], "masks": [...]}: a random answer, and the mask before each token and at the end,
//   as hexadecimal digits of four tokens each
//   {"template": source, "variables": text, "now": seconds}  -> {"text": ...}
// A failure is answered by {"error": message}.
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "text/chat_template.h"
#include "text/grammar.h"
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
  spec.eos = json.value("eos", std::vector<Token>());
  return Tokenizer::make(spec);
}

struct Walk {
  std::string text;
  std::vector<Token> tokens;
  std::vector<std::string> masks;
};

std::string digits_of(const std::vector<uint64_t>& bits) {
  std::string out;
  for (const uint64_t word : bits)
    for (int at = 0; at < 64; at += 4) out += "0123456789abcdef"[word >> at & 15];
  return out;
}

// Any token that is allowed; after a while what ends a value.
Result<Walk> random_answer(const Grammar& grammar, const Tokenizer& tokenizer, unsigned seed,
                           int steps = 4000) {
  std::mt19937 random(seed);
  const std::unique_ptr<Matcher> matcher = grammar.start();
  Walk walk;
  for (int step = 0; step <= steps; step++) {
    std::vector<uint64_t> bits(size_t(tokenizer.size()) / 64 + 1, ~uint64_t(0));
    TRY(matcher->mask(bits));
    walk.masks.push_back(digits_of(bits));
    std::vector<Token> tokens, closers;
    bool may_end = false;
    for (Token t = 0; t < tokenizer.size(); t++) {
      if ((bits[size_t(t) / 64] >> (t % 64) & 1) == 0) continue;
      const std::string_view piece = tokenizer.piece(t);
      if (tokenizer.is_eos(t)) may_end = true;
      else if (piece == "\"" || piece == "}" || piece == "]") closers.push_back(t);
      if (!tokenizer.is_eos(t)) tokens.push_back(t);
    }
    if (tokens.empty() || step == steps || (may_end && random() % 3 == 0)) return walk;
    const std::vector<Token>& from = step > 30 && !closers.empty() && random() % 4 != 0 ? closers : tokens;
    const Token chosen = from[random() % from.size()];
    if (!TRY(matcher->accept(chosen)))
      return Error{Code::BadRequest, "token " + std::to_string(chosen), "allowed, but not accepted"};
    walk.tokens.push_back(chosen);
    walk.text += tokenizer.piece(chosen);
  }
  return walk;
}

GrammarSpec spec_of(const Json& request) {
  using Kind = GrammarSpec::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"json_schema", Kind::JsonSchema},
                                                          {"regex", Kind::Regex},
                                                          {"choice", Kind::Choice},
                                                          {"lark", Kind::Lark},
                                                          {"gbnf", Kind::Gbnf},
                                                          {"tags", Kind::Tags}};
  GrammarSpec spec;
  const std::string name = request.value("grammar", "json_schema");
  for (const auto& [known, kind] : kKinds)
    if (known == name) spec.kind = kind;
  spec.schema = request.value("schema", Json());
  spec.text = request.value("text", "");
  spec.choice = request.value("choice", std::vector<std::string>());
  spec.strict = request.value("strict", true);
  return spec;
}

Result<Json> random_answer(const Json& request, const Tokenizer& tokenizer) {
  const GrammarCompiler compiler = TRY(GrammarCompiler::make(tokenizer, tokenizer.eos()));
  const Grammar grammar = TRY(compiler.compile(spec_of(request)));
  const unsigned seed = request.value("seed", 0u);
  const bool masks = request.contains("grammar");
  const Walk walk = TRY(random_answer(grammar, tokenizer, seed, masks ? 120 : 4000));
  if (masks) return Json{{"tokens", walk.tokens}, {"masks", walk.masks}};
  return Json{{"answer", walk.text}, {"ignored", grammar.ignored()}};
}

Result<Json> answer(const Json& request, std::optional<Tokenizer>& tokenizer) {
  if (request.contains("schema") || request.contains("grammar")) return random_answer(request, *tokenizer);
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
