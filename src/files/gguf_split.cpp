#include "files/gguf_split.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace invar {
namespace {

constexpr int kDigits = 5;
constexpr int64_t kMaxParts = 65535;

// PREFIX-00002-of-00003.gguf: prefix, 2, 3.
struct PartName {
  std::string prefix;
  int number, count;

  std::string path_of(int part) const {
    return prefix + "-" + digits(part) + "-of-" + digits(count) + ".gguf";
  }
  static std::string digits(int number) {
    const std::string text = std::to_string(number);
    return std::string(size_t(kDigits) - text.size(), '0') + text;
  }
};

std::optional<int> read_digits(std::string_view text) {
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  return number;
}

std::optional<PartName> part_name(const std::string& path) {
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() < kTail || !path.ends_with(kEnd)) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const std::optional<int> number = read_digits(tail.substr(1, kDigits));
  const std::optional<int> count = read_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return PartName{path.substr(0, path.size() - kTail), *number, *count};
}

Result<GgufPart> open_part(const std::string& path, bool data_needed) {
  File file = TRY(File::open(path));
  GgufIndex index = TRY(parse_gguf(source_of(file), data_needed));
  return GgufPart{std::move(file), std::move(index)};
}

Status expect_key(const Metadata& keys, std::string_view key, int64_t expected) {
  const int64_t found = TRY(keys.integer(key));
  if (found != expected)
    return keys.error(key, "expected " + std::to_string(expected) + ", found " + std::to_string(found));
  return Ok{};
}

Status check_union(const std::vector<GgufPart>& parts, int64_t total) {
  std::unordered_set<std::string_view> names;
  for (const GgufPart& part : parts)
    for (const GgufTensor& tensor : part.index.tensors)
      if (!names.insert(tensor.name).second)
        return bad_file(tensor.name, "the tensor is in another part as well", part.file.path());
  if (int64_t(names.size()) == total) return Ok{};
  return bad_file(
      "split.tensors.count",
      "expected " + std::to_string(total) + " tensors in all parts, found " + std::to_string(names.size()),
      parts[0].file.path());
}

}  // namespace

Result<std::vector<GgufPart>> open_gguf_parts(const std::string& path, bool data_needed) {
  std::vector<GgufPart> parts;
  parts.push_back(TRY(open_part(path, data_needed)));
  const Metadata& given = parts[0].index.keys;
  const int64_t count = TRY(given.integer_or("split.count", 1, 0, kMaxParts));
  if (count <= 1) return parts;

  const std::optional<PartName> name = part_name(path);
  if (!name || name->count != count)
    return bad_file("",
                    "split.count is " + std::to_string(count) + ", so the name must end in -00001-of-" +
                        PartName::digits(int(count)) + ".gguf",
                    path);
  const int64_t total = TRY(given.integer("split.tensors.count", 0, int64_t(kMaxGgufEntries)));
  GgufPart first_found = std::move(parts[0]);
  parts.clear();
  for (int number = 1; number <= count; ++number) {
    parts.push_back(number == name->number ? std::move(first_found)
                                           : TRY(open_part(name->path_of(number), data_needed)));
    const Metadata& keys = parts.back().index.keys;
    TRY(expect_key(keys, "split.no", number - 1));
    TRY(expect_key(keys, "split.count", count));
    TRY(expect_key(keys, "split.tensors.count", total));
  }
  TRY(check_union(parts, total));
  return parts;
}

}  // namespace invar
