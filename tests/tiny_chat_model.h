// A tiny random model that speaks: the weights of `tiny_model`, another chat template and context length, and
// of its vocabulary only printable ASCII, newlines and what chat templates need are ever chosen.  So each
// text that it says has one way to be tokens, as with a trained model, and reads the same when it comes back.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "files/gguf_writer.h"
#include "questions.h"
#include "text/byte_vocabulary.h"

namespace invar {

inline bool plain_piece(const std::string& piece) {
  for (const char* needed :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"})
    if (piece == needed) return true;
  if (piece == byte_letter(' ') || piece == byte_letter('\n')) return true;
  return piece.size() == 1 && piece[0] > ' ' && piece[0] < 0x7F;
}

// The path of the file.
inline std::string tiny_chat_model(const std::string& shape, const std::string& chat_template,
                                   uint32_t context) {
  constexpr int32_t kUnused = 5;
  const std::string silent = tiny_model(shape);
  const ModelFile file = ModelFile::open(silent).take();
  Metadata keys = file.keys();
  const auto pieces = keys.texts("tokenizer.ggml.tokens").take();
  std::vector<int32_t> types;
  const auto before = keys.integers("tokenizer.ggml.token_type").take();
  for (size_t i = 0; i < pieces.size(); ++i)
    types.push_back(plain_piece(pieces[i]) ? int32_t(before[i]) : kUnused);
  keys.set("tokenizer.ggml.token_type", Value::i32s(types));
  keys.set("tokenizer.chat_template", Value::text(chat_template));
  keys.set(file.arch_key("context_length"), Value::u32(context));
  std::vector<NewTensor> tensors;
  for (const TensorEntry& t : file.tensors()) tensors.push_back({t.name, find_ggml_type(t.type), t.shape});
  const std::string path = silent + "-chat.gguf";
  const Status written = write_gguf(path, keys, tensors, [&](const NewTensor& t, const Emit& emit) -> Status {
    const TensorEntry& entry = *file.find(t.name);
    std::vector<std::byte> bytes(entry.bytes);
    TRY(file.read(entry, 0, bytes));
    return emit(bytes);
  });
  EXPECT_TRUE(written) << written.error().message;
  std::remove(silent.c_str());
  return path;
}

}  // namespace invar
