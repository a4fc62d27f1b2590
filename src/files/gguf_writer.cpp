#include "files/gguf_writer.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/file.h"
#include "files/model_file.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kAlignment = 32;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t(text.size()));
  out += text;
}

void put_value(std::string& out, const Value& value) {
  if (value.is_array) {
    put(out, int32_t(ValueType::Array));
    put(out, int32_t(value.type));
    put(out, value.count);
  } else {
    put(out, int32_t(value.type));
    if (value.type == ValueType::Text) put(out, uint64_t(value.bytes.size()));
  }
  out += value.bytes;
}

uint64_t padding_of(uint64_t size) { return (kAlignment - size % kAlignment) % kAlignment; }

bool of_the_layout(std::string_view key) { return key == "general.alignment" || key.starts_with("split."); }

void sort_by_layer(std::vector<NewTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const NewTensor& a, const NewTensor& b) {
    return layer_of(a.name) < layer_of(b.name);
  });
}

// All in front of the data, padding included.
std::string header_of(const Metadata& keys, std::span<const NewTensor> tensors) {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, uint64_t(tensors.size()));
  const auto entries = keys.entries();
  put(out, uint64_t(std::count_if(entries.begin(), entries.end(),
                                  [](const auto& e) { return !of_the_layout(e.key); })));
  for (const Metadata::Entry& entry : entries) {
    if (of_the_layout(entry.key)) continue;
    put_text(out, entry.key);
    put_value(out, entry.value);
  }
  uint64_t offset = 0;
  for (const NewTensor& tensor : tensors) {
    put_text(out, tensor.name);
    put(out, uint32_t(tensor.shape.size()));
    for (auto n = tensor.shape.rbegin(); n != tensor.shape.rend(); ++n) put(out, *n);
    put(out, tensor.type->id);
    put(out, offset);
    offset += tensor.bytes() + padding_of(tensor.bytes());
  }
  return out.append(padding_of(out.size()), '\0');
}

Status write_data(NewFile& file, const NewTensor& tensor, const TensorData& data) {
  constexpr std::array<std::byte, kAlignment> kZeros{};
  uint64_t written = 0;
  TRY(data(tensor, [&](std::span<const std::byte> bytes) {
    written += bytes.size();
    return file.write(bytes);
  }));
  CHECK(written == tensor.bytes());
  return file.write(std::span(kZeros).first(padding_of(written)));
}

Status write(const std::string& path, const Metadata& keys, std::vector<NewTensor> tensors,
             const TensorData* data) {
  sort_by_layer(tensors);
  NewFile file = TRY(NewFile::create(path));
  const std::string header = header_of(keys, tensors);
  TRY(file.write(std::as_bytes(std::span(header))));
  if (data)
    for (const NewTensor& tensor : tensors) TRY(write_data(file, tensor, *data));
  return file.finish();
}

}  // namespace

uint64_t NewTensor::bytes() const {
  CHECK(!shape.empty() && shape.size() <= 4 && shape.back() % type->block_values == 0);
  uint64_t blocks = uint64_t(shape.back() / type->block_values);
  for (size_t i = 0; i + 1 < shape.size(); ++i) blocks *= uint64_t(shape[i]);
  return blocks * uint64_t(type->block_bytes);
}

Status write_gguf(const std::string& path, const Metadata& keys, std::vector<NewTensor> tensors,
                  const TensorData& data) {
  return write(path, keys, std::move(tensors), &data);
}

Status write_gguf_header(const std::string& path, const Metadata& keys, std::vector<NewTensor> tensors) {
  return write(path, keys, std::move(tensors), nullptr);
}

}  // namespace invar
