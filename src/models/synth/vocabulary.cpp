#include "models/synth/vocabulary.h"

#include <array>

#include "base/check.h"

namespace invar {
namespace {

enum TokenKind : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };  // numbers of GGUF

// The added tokens of the Qwen family in the order of their ids; older ones have the first so many.
struct Added {
  const char* text;
  TokenKind kind;
};
constexpr Added kAdded[] = {
    {"<|endoftext|>", kControl},       {"<|im_start|>", kControl},
    {"<|im_end|>", kControl},          {"<|object_ref_start|>", kControl},
    {"<|object_ref_end|>", kControl},  {"<|box_start|>", kControl},
    {"<|box_end|>", kControl},         {"<|quad_start|>", kControl},
    {"<|quad_end|>", kControl},        {"<|vision_start|>", kControl},
    {"<|vision_end|>", kControl},      {"<|vision_pad|>", kControl},
    {"<|image_pad|>", kControl},       {"<|video_pad|>", kControl},
    {"<tool_call>", kUserDefined},     {"</tool_call>", kUserDefined},
    {"<|fim_prefix|>", kUserDefined},  {"<|fim_middle|>", kUserDefined},
    {"<|fim_suffix|>", kUserDefined},  {"<|fim_pad|>", kUserDefined},
    {"<|repo_name|>", kUserDefined},   {"<|file_sep|>", kUserDefined},
    {"<tool_response>", kUserDefined}, {"</tool_response>", kUserDefined},
    {"<think>", kUserDefined},         {"</think>", kUserDefined},
    {"<|audio_start|>", kControl},     {"<|audio_end|>", kControl},
    {"<tts_pad>", kControl},           {"<tts_text_bos>", kControl},
    {"<tts_text_eod>", kControl},      {"<tts_text_bos_single>", kControl},
    {"<|audio_pad|>", kControl},
};

struct Family {
  const char* arch;
  const char* pre;
  int64_t first;  // id of the first added token where the vocabulary has the family's size
  int64_t vocab;
  size_t added;
};
constexpr Family kFamilies[] = {
    {"qwen35", "qwen35", 248044, 248320, 33}, {"qwen35moe", "qwen35", 248044, 248320, 33},
    {"llama", "smollm", 49149, 49152, 3},     {"qwen2", "qwen2", 151643, 151936, 22},
    {"qwen3", "qwen2", 151643, 151936, 26},
};

const char* const kTemplate =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string utf8(int code_point) {  // below 0x800
  if (code_point < 0x80) return std::string(1, char(code_point));
  return {char(0xC0 | code_point >> 6), char(0x80 | (code_point & 63))};
}

// The letters of GPT-2's bytes: printable ones stand for themselves and come first, the others follow from
// U+0100 on.
std::vector<std::string> byte_pieces() {
  auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  std::vector<std::string> pieces;
  for (int b = 0; b < 256; ++b)
    if (printable(b)) pieces.push_back(utf8(b));
  for (int b = 0, next = 0x100; b < 256; ++b)
    if (!printable(b)) pieces.push_back(utf8(next++));
  return pieces;
}

// A word of at least two syllables, another one for each number; every other one begins with a space.
std::string filler(int64_t number) {
  constexpr std::string_view kConsonants = "bdfghjklmnprst", kVowels = "aeiou";
  constexpr int64_t kSyllables = 14 * 5;
  std::string word;
  for (int64_t rest = number / 2 + kSyllables; rest > 0; rest /= kSyllables) {
    const size_t syllable = size_t(rest % kSyllables);
    word += {kConsonants[syllable / 5], kVowels[syllable % 5]};
  }
  return number % 2 == 0 ? utf8(0x120) + word : word;  // U+0120 is the letter of the space
}

}  // namespace

void add_vocabulary(const Shape& shape, Metadata& keys) {
  const Family* family = nullptr;
  for (const Family& f : kFamilies)
    if (std::string_view(f.arch) == shape.arch) family = &f;
  CHECK(family);
  const bool full = shape.vocab == family->vocab;
  const int64_t first = full ? family->first : shape.vocab - int64_t(family->added);
  std::vector<std::string> pieces = byte_pieces();
  std::vector<int32_t> kinds(size_t(shape.vocab), kNormal);
  CHECK(first >= int64_t(pieces.size()));
  while (int64_t(pieces.size()) < first) pieces.push_back(filler(int64_t(pieces.size()) - 256));
  for (size_t i = 0; i < family->added; ++i) {
    kinds[pieces.size()] = kAdded[i].kind;
    pieces.push_back(kAdded[i].text);
  }
  for (int64_t id = int64_t(pieces.size()); id < shape.vocab; ++id) {
    kinds[size_t(id)] = kUnused;
    pieces.push_back("[PAD" + std::to_string(id) + "]");
  }
  keys.set("tokenizer.ggml.model", Value::text("gpt2"));
  keys.set("tokenizer.ggml.pre", Value::text(family->pre));
  keys.set("tokenizer.ggml.tokens", Value::texts(pieces));
  keys.set("tokenizer.ggml.token_type", Value::i32s(kinds));
  keys.set("tokenizer.ggml.merges", Value::texts({}));
  keys.set("tokenizer.ggml.bos_token_id", Value::u32(uint32_t(first)));      // <|endoftext|>
  keys.set("tokenizer.ggml.eos_token_id", Value::u32(uint32_t(first + 2)));  // <|im_end|>
  keys.set("tokenizer.ggml.padding_token_id", Value::u32(uint32_t(first)));
  keys.set("tokenizer.ggml.add_bos_token", Value::boolean(false));
  keys.set("tokenizer.chat_template", Value::text(kTemplate));
}

}  // namespace invar
