#include "engine/chat.h"

#include <algorithm>
#include <ctime>

namespace invar {
namespace {

const std::string kKey = "tokenizer.ggml.";

// Tokens that end a turn or a text in the families served here.  Files often name one of several.
constexpr std::string_view kEndTexts[] = {"<|im_end|>",      "<|endoftext|>",   "<|eot_id|>",
                                          "<|eom_id|>",      "<|end_of_text|>", "<|user|>",
                                          "<|observation|>", "<end_of_turn>"};

Result<std::vector<Token>> end_tokens(const Metadata& keys) {
  std::vector<Token> ends;
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (keys.has(kKey + name)) ends.push_back(Token(TRY(keys.integer(kKey + name, 0, INT32_MAX))));
  return ends;
}

Result<TokenizerSpec> spec_of_keys(const Metadata& keys) {
  TokenizerSpec spec;
  spec.model = TRY(keys.text(kKey + "model"));
  spec.pre = TRY(keys.text_or(kKey + "pre", ""));
  spec.pieces = TRY(keys.texts(kKey + "tokens"));
  for (int64_t type : TRY(keys.integers_or(kKey + "token_type", {}, 0, INT32_MAX)))
    spec.types.push_back(int32_t(type));
  for (double score : TRY(keys.reals_or(kKey + "scores", {}))) spec.scores.push_back(float(score));
  spec.merges = TRY(keys.texts_or(kKey + "merges", {}));
  spec.add_space_prefix = TRY(keys.boolean_or(kKey + "add_space_prefix", true));
  if (keys.has(kKey + "bos_token_id"))
    spec.bos = Token(TRY(keys.integer(kKey + "bos_token_id", 0, INT32_MAX)));
  spec.eos = TRY(end_tokens(keys));
  bool begins = spec.model == "llama" || spec.pre == "llama-bpe";  // where the file does not say
  spec.add_bos = TRY(keys.boolean_or(kKey + "add_bos_token", begins)) && spec.bos.has_value();
  return spec;
}

constexpr uint64_t kTokenizerLimit = 256 << 20;

Result<TokenizerSpec> spec_of_folder(const FolderText& folder) {
  TokenizerSpec spec;
  spec.tokenizer_json = TRY(read_file(folder.tokenizer_path, kTokenizerLimit));
  for (int64_t id : folder.eos_ids) spec.eos.push_back(Token(id));
  return spec;
}

// A folder names the tokens that templates print by their text; the ids are known once the vocabulary is.
// False if that adds nothing.
bool add_named(const Tokenizer& tokenizer, const FolderText& folder, TokenizerSpec& spec) {
  auto bos = folder.bos_token.empty() ? std::nullopt : tokenizer.find(folder.bos_token);
  auto eos = folder.eos_token.empty() ? std::nullopt : tokenizer.find(folder.eos_token);
  bool first = !eos || (!spec.eos.empty() && spec.eos[0] == *eos);
  if (first && (!bos || spec.bos == bos)) return false;
  if (bos) spec.bos = bos;
  if (!first) {
    std::erase(spec.eos, *eos);
    spec.eos.insert(spec.eos.begin(), *eos);
  }
  return true;
}

Result<SamplingParams> recommended_sampling(const Metadata& keys) {
  const std::string key = "general.sampling.";
  SamplingParams p;
  p.temperature = float(TRY(keys.real_or(key + "temp", p.temperature)));
  p.top_k = int(TRY(keys.integer_or(key + "top_k", p.top_k, INT32_MIN, INT32_MAX)));
  p.top_p = float(TRY(keys.real_or(key + "top_p", p.top_p)));
  p.min_p = float(TRY(keys.real_or(key + "min_p", p.min_p)));
  p.repetition = float(TRY(keys.real_or(key + "penalty_repeat", p.repetition)));
  p.top_k = std::max(p.top_k, 0);  // files write -1 for off
  if (auto status = check_sampling(p, 0); !status) return keys.error(key + "*", status.error().message);
  return p;
}

}  // namespace

Result<Chat> Chat::make(const ModelFile& file) {
  const FolderText& folder = file.folder_text();
  bool from_folder = !folder.tokenizer_path.empty();
  TokenizerSpec spec = from_folder ? TRY(spec_of_folder(folder)) : TRY(spec_of_keys(file.keys()));
  Tokenizer tokenizer = TRY(Tokenizer::make(spec));
  if (from_folder && add_named(tokenizer, folder, spec)) tokenizer = TRY(Tokenizer::make(spec));

  const TensorEntry* table = file.find("token_embd.weight");
  if (table && tokenizer.size() > table->rows)
    return Error{Code::BadFile, "tokenizer.ggml.tokens",
                 "expected at most " + std::to_string(table->rows) +
                     " tokens, the rows of token_embd.weight; found " + std::to_string(tokenizer.size())};

  Chat chat(std::move(tokenizer));
  chat.stop_ = chat.tokenizer_.eos();
  for (std::string_view text : kEndTexts)
    if (auto id = chat.tokenizer_.find(text); id && chat.tokenizer_.type(*id) == TokenType::Control)
      if (!chat.tokenizer_.is_eos(*id)) chat.stop_.push_back(*id);
  chat.recommended_ = TRY(recommended_sampling(file.keys()));
  std::string source = TRY(file.keys().text_or("tokenizer.chat_template", ""));
  if (!source.empty()) chat.template_ = TRY(ChatTemplate::make(source));
  return chat;
}

std::vector<uint64_t> Chat::allowed(int64_t vocab) const {
  std::vector<uint64_t> bits((vocab + 63) / 64);
  int64_t on = 0;
  for (int64_t id = 0; id < std::min<int64_t>(vocab, tokenizer_.size()); ++id) {
    TokenType type = tokenizer_.type(Token(id));
    if (type == TokenType::Unused || type == TokenType::Undefined) continue;
    bits[id / 64] |= uint64_t(1) << (id % 64);
    ++on;
  }
  if (on == vocab) bits.clear();
  return bits;
}

std::vector<int64_t> Chat::marks(std::span<const Token> prompt) const {
  std::vector<int64_t> marks;
  for (size_t i = 0; i + 1 < prompt.size(); ++i)
    if (std::find(stop_.begin(), stop_.end(), prompt[i]) != stop_.end()) marks.push_back(int64_t(i) + 1);
  return marks;
}

Result<std::vector<Token>> Chat::raw_prompt(std::string_view text) const {
  std::vector<Token> tokens;
  if (tokenizer_.add_bos()) tokens.push_back(*tokenizer_.bos());
  std::vector<Token> rest = TRY(tokenizer_.encode(text, AddedTokens::User));
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

Result<std::string> Chat::render(const ChatInput& input, bool mark) const {
  if (!template_)
    return Error{Code::Unsupported, "tokenizer.chat_template",
                 "expected a chat template, the model has none; with --raw it continues text"};
  return template_->render(TRY(chat_variables(input, tokenizer_, mark)), int64_t(std::time(nullptr)));
}

Result<std::string> Chat::prompt_text(const ChatInput& input) const { return render(input, false); }

Result<std::vector<Token>> Chat::prompt(const ChatInput& input) const { return TRY(rendered(input)).tokens; }

Result<Chat::Rendered> Chat::rendered(const ChatInput& input, std::string_view opening) const {
  Rendered r;
  r.text = TRY(render(input, true)) + TRY(tokenizer_.mark_control(opening));
  r.tokens = TRY(tokenizer_.encode_marked(r.text));
  return r;
}

Result<std::vector<Token>> Chat::next_turn(std::string_view question) const {
  constexpr std::string_view kAnswer = "The-answer-before";  // the template shows where it ends
  ChatInput input;
  input.messages = {message("user", "-"), message("assistant", kAnswer), message("user", question)};
  const std::string text = TRY(render(input, true));
  const size_t at = text.find(kAnswer);
  if (at == text.npos)
    return Error{Code::Unsupported, "tokenizer.chat_template",
                 "expected a chat template that shows the answers before, found one that does not"};
  return tokenizer_.encode_marked(std::string_view(text).substr(at + kAnswer.size()));
}

std::string AnswerText::finish() {
  if (stopped()) return {};
  std::string shown = stops_.push(stream_.finish());
  if (!stopped()) shown += stops_.finish();
  return keep(shown);
}

Json message(const char* role, std::string_view text) {
  return {{"role", role}, {"content", std::string(text)}};
}

}  // namespace invar
