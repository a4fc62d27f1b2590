#include "text/tokenizer.h"

#include <algorithm>

#include "text/textkit_error.h"
#include "textkit.h"

namespace invar {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

tk_str view(std::string_view text) { return {text.data(), text.size()}; }

std::vector<tk_str> views(const std::vector<std::string>& texts) {
  std::vector<tk_str> out;
  out.reserve(texts.size());
  for (const std::string& text : texts) out.push_back(view(text));
  return out;
}

int32_t as_int(std::optional<bool> choice) { return choice ? *choice : -1; }

// One byte sequence at the front of `bytes` (Unicode 15, table 3-7): how long it is, and whether it is a
// character, the beginning of one that more bytes may complete, or a maximal invalid part.
struct Sequence {
  enum { Character, Cut, Invalid } kind;
  size_t length;
};

Sequence first_sequence(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0) return {Sequence::Invalid, 1};
  for (size_t i = 1; i < length; i++) {
    if (i == bytes.size()) return {Sequence::Cut, i};
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {  // no overlong forms, no surrogates, nothing above U+10FFFF
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (at(i) < low || at(i) > high) return {Sequence::Invalid, i};
  }
  return {Sequence::Character, length};
}

Status check_ids(const TokenizerSpec& spec, int size) {
  const auto check = [&](Token id, const char* key) -> Status {
    if (id >= 0 && id < size) return Ok{};
    return Error{Code::BadFile, key,
                 "expected a token below " + std::to_string(size) + ", found " + std::to_string(id)};
  };
  if (spec.bos) TRY(check(*spec.bos, "tokenizer.ggml.bos_token_id"));
  for (Token id : spec.eos) TRY(check(id, "tokenizer.ggml.eos_token_id"));
  return Ok{};
}

}  // namespace

void Tokenizer::Free::operator()(tk_tokenizer* t) const { tk_tokenizer_free(t); }

Result<Tokenizer> Tokenizer::make(const TokenizerSpec& spec) {
  tk_tokenizer* kit = nullptr;
  char* message = nullptr;
  tk_code code;
  if (!spec.tokenizer_json.empty()) {
    const std::string& json = spec.tokenizer_json;
    code = tk_tokenizer_from_json(json.data(), json.size(), as_int(spec.nfc), &kit, &message);
  } else {
    const std::vector<tk_str> pieces = views(spec.pieces), merges = views(spec.merges);
    const tk_vocab vocab = {.model = view(spec.model),
                            .pre = view(spec.pre),
                            .pieces = pieces.data(),
                            .n_pieces = pieces.size(),
                            .types = spec.types.data(),
                            .n_types = spec.types.size(),
                            .scores = spec.scores.data(),
                            .n_scores = spec.scores.size(),
                            .merges = merges.data(),
                            .n_merges = merges.size(),
                            .nfc = as_int(spec.nfc),
                            .add_space_prefix = spec.add_space_prefix};
    code = tk_tokenizer_new(&vocab, &kit, &message);
  }
  if (code != TK_OK) return textkit_error(code, message, "tokenizer");
  Tokenizer out;
  out.kit_.reset(kit);
  TRY(check_ids(spec, out.size()));
  out.bos_ = spec.bos;
  out.eos_ = spec.eos;
  out.add_bos_ = spec.add_bos;
  return out;
}

Result<std::vector<Token>> Tokenizer::encode_as(int mode, std::string_view text) const {
  std::vector<uint32_t> ids(text.size() + 16);
  for (;;) {
    size_t count = 0;
    char* message = nullptr;
    const tk_code code =
        tk_encode(kit_.get(), text.data(), text.size(), mode, ids.data(), ids.size(), &count, &message);
    if (code != TK_OK) return textkit_error(code, message, "text");
    const bool fits = count <= ids.size();
    ids.resize(count);
    if (fits) return std::vector<Token>(ids.begin(), ids.end());
  }
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  const tk_mode mode = added == AddedTokens::All ? TK_ALL : added == AddedTokens::User ? TK_USER : TK_NONE;
  return encode_as(mode, text);
}

Result<std::vector<Token>> Tokenizer::encode_marked(std::string_view prompt) const {
  return encode_as(TK_MARKED, prompt);
}

Result<std::string> Tokenizer::mark_control(std::string_view text) const {
  tk_buf buf;
  char* message = nullptr;
  const tk_code code = tk_mark_control(kit_.get(), text.data(), text.size(), &buf, &message);
  if (code != TK_OK) return textkit_error(code, message, "text");
  return take_text(buf);
}

std::string_view Tokenizer::piece(Token id) const {
  const char* data = nullptr;
  size_t size = 0;
  tk_piece(kit_.get(), static_cast<uint32_t>(id), &data, &size);  // a negative id is an unknown one
  return {data, size};
}

TokenType Tokenizer::type(Token id) const {
  return static_cast<TokenType>(tk_token_type(kit_.get(), static_cast<uint32_t>(id)));
}

std::optional<Token> Tokenizer::find(std::string_view text) const {
  const int64_t id = tk_find(kit_.get(), text.data(), text.size());
  return id < 0 ? std::nullopt : std::optional(static_cast<Token>(id));
}

int Tokenizer::size() const { return static_cast<int>(tk_size(kit_.get())); }

bool Tokenizer::adds_space() const { return tk_adds_space(kit_.get()); }

bool Tokenizer::is_eos(Token id) const { return std::find(eos_.begin(), eos_.end(), id) != eos_.end(); }

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Sequence next = first_sequence(rest);
    if (next.kind == Sequence::Cut) break;
    out += next.kind == Sequence::Character ? rest.substr(0, next.length) : kReplacement;
    rest.remove_prefix(next.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? std::string(kReplacement) : std::string();
}

std::string TextStream::push(Token id) {
  if (tokenizer_.type(id) == TokenType::Control) return {};
  std::string_view piece = tokenizer_.piece(id);
  if (drop_space_ && piece.starts_with(' ')) piece.remove_prefix(1);
  drop_space_ = false;
  return bytes_.push(piece);
}

std::string decode(const Tokenizer& tokenizer, std::span<const Token> ids) {
  TextStream stream(tokenizer, true);
  std::string text;
  for (Token id : ids) text += stream.push(id);
  return text + stream.finish();
}

}  // namespace invar
