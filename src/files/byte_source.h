// Where the bytes of a container come from: a file, memory, or in a test a source that fails at a chosen
// byte.  The parsers see nothing else.  Also the errors all parsers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace invar {

struct ByteSource {
  std::string name;  // of the file, for errors
  uint64_t size = 0;
  std::function<Status(uint64_t offset, std::span<std::byte> out)> read;
};

ByteSource source_of(const File& file);  // the file must outlive its source
ByteSource source_of(std::span<const std::byte> bytes, std::string name);

// A name out of a file, safe to print: odd bytes as \xNN, cut after 100 characters.
std::string printable(std::string_view name);

// `where`: the key or tensor concerned; empty means the file itself.
Error file_error(Code code, std::string_view where, const std::string& message, std::string_view file);
Error bad_file(std::string_view where, const std::string& message, std::string_view file);

}  // namespace invar
