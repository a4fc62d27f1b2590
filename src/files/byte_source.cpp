#include "files/byte_source.h"

#include <cstring>

namespace invar {

ByteSource source_of(const File& file) {
  return {file.path(), file.size(),
          [&file](uint64_t offset, std::span<std::byte> out) { return file.read_at(offset, out); }};
}

ByteSource source_of(std::span<const std::byte> bytes, std::string name) {
  auto read = [bytes, name](uint64_t offset, std::span<std::byte> out) -> Status {
    if (offset > bytes.size() || out.size() > bytes.size() - offset)
      return Error{Code::Io, name, "read past the end"};
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
    return Ok{};
  };
  return {std::move(name), bytes.size(), std::move(read)};
}

std::string printable(std::string_view name) {
  constexpr size_t kShown = 100;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : name.substr(0, kShown)) {
    const auto byte = uint8_t(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += "\\x";
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15];
    }
  }
  return name.size() > kShown ? text + "..." : text;
}

Error file_error(Code code, std::string_view where, const std::string& message, std::string_view file) {
  if (where.empty()) return {code, std::string(file), message};
  return {code, printable(where), message + " (in " + std::string(file) + ")"};
}

Error bad_file(std::string_view where, const std::string& message, std::string_view file) {
  return file_error(Code::BadFile, where, message, file);
}

}  // namespace invar
