// A model whose greedy answers are known: after a byte comes the next byte, after 'z' the end.  A llama of
// one block that adds nothing; the embedding of a token is its own unit vector, and the output row of the
// token after it points there, so its logit is about 16 and all others are 0.  After 'A' come the two bytes
// of U+00E9, then 'z'.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/file.h"
#include "engine/chat.h"
#include "files/gguf_writer.h"
#include "text/byte_vocabulary.h"

namespace invar {

constexpr int kAlphabetWidth = 272, kAlphabetTokens = 260;  // bytes, then three control tokens and one unused
constexpr int kAlphabetEnd = 257;                           // <|im_end|>
constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline int after(int token) {
  if (token == 'A') return 0xC3;
  if (token == 0xC3) return 0xA9;
  if (token == 0xA9) return 'z';
  if (token == 'z') return kAlphabetEnd;
  if (token == '\n') return 'b';  // a chat's answer begins here
  return (token + 1) % 256;
}

using AlphabetChange = std::function<void(Metadata&)>;

// The path of the file; `chat_template` empty: the model has none.
inline std::string write_alphabet_model(const std::string& chat_template = kChatMl, uint32_t context = 4096,
                                        const AlphabetChange& change = {}) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types(256, 1);
  for (int b = 0; b < 256; ++b) tokens.push_back(byte_letter(b));
  for (const char* control : {"<|endoftext|>", "<|im_end|>", "<|im_start|>"})
    tokens.push_back(control), types.push_back(3);
  tokens.push_back("[PAD0]"), types.push_back(5);

  Metadata keys;
  auto number = [&](const char* name, uint32_t value) { keys.set(name, Value::u32(value)); };
  keys.set("general.architecture", Value::text("llama"));
  keys.set("general.name", Value::text("alphabet"));
  number("llama.block_count", 1);
  number("llama.context_length", context);
  number("llama.embedding_length", kAlphabetWidth);
  number("llama.feed_forward_length", 32);
  number("llama.attention.head_count", 17);
  number("llama.attention.head_count_kv", 1);
  keys.set("llama.attention.layer_norm_rms_epsilon", Value::f32(1e-5f));
  keys.set("tokenizer.ggml.model", Value::text("gpt2"));
  keys.set("tokenizer.ggml.pre", Value::text("llama-bpe"));
  keys.set("tokenizer.ggml.tokens", Value::texts(tokens));
  keys.set("tokenizer.ggml.token_type", Value::i32s(types));
  keys.set("tokenizer.ggml.merges", Value::texts({}));
  number("tokenizer.ggml.bos_token_id", 256);
  number("tokenizer.ggml.eos_token_id", kAlphabetEnd);
  keys.set("tokenizer.ggml.add_bos_token", Value::boolean(false));
  if (!chat_template.empty()) keys.set("tokenizer.chat_template", Value::text(chat_template));

  if (change) change(keys);

  const GgmlType* f32 = find_ggml_type(kGgmlF32);
  constexpr int64_t w = kAlphabetWidth, v = kAlphabetTokens;
  std::vector<NewTensor> tensors = {
      {"token_embd.weight", f32, {v, w}},        {"output.weight", f32, {v, w}},
      {"output_norm.weight", f32, {w}},          {"blk.0.attn_norm.weight", f32, {w}},
      {"blk.0.ffn_norm.weight", f32, {w}},       {"blk.0.attn_q.weight", f32, {w, w}},
      {"blk.0.attn_k.weight", f32, {16, w}},     {"blk.0.attn_v.weight", f32, {16, w}},
      {"blk.0.attn_output.weight", f32, {w, w}}, {"blk.0.ffn_gate.weight", f32, {32, w}},
      {"blk.0.ffn_up.weight", f32, {32, w}},     {"blk.0.ffn_down.weight", f32, {w, 32}}};
  auto data = [&](const NewTensor& tensor, const Emit& emit) {
    std::vector<float> values(tensor.bytes() / sizeof(float), tensor.shape.size() == 1 ? 1.0f : 0.0f);
    for (int t = 0; t < v; ++t) {
      if (tensor.name == "token_embd.weight") values[size_t(t * w + t)] = 1;
      if (tensor.name == "output.weight" && t < 256) values[size_t(after(t) * w + t)] = 1;
    }
    return emit(std::as_bytes(std::span(values)));
  };
  static int count = 0;
  std::string path =
      testing::TempDir() + "alphabet-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".gguf";
  Status written = write_gguf(path, keys, tensors, data);
  EXPECT_TRUE(written) << written.error().message;
  return path;
}

inline Chat alphabet_chat() {
  const std::string path = write_alphabet_model();
  auto file = ModelFile::open(path);
  EXPECT_TRUE(file);
  auto chat = Chat::make(*file);
  EXPECT_TRUE(chat);
  std::remove(path.c_str());
  return chat.take();
}

}  // namespace invar
