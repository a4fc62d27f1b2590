// The tools of a request: their names, and which JSON types the value of a parameter may have.  Turns the
// text of a value into JSON by these types.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "text/json.h"

namespace invar {

// Types, one bit each.
constexpr unsigned kNull = 1, kInteger = 2, kNumber = 4, kBoolean = 8, kObject = 16, kArray = 32,
                   kString = 64;

unsigned named_types(const Json& type);  // what `type` says: "string", or ["string", "null"]

// JSON text of a value.  Strings stay as they are; other types only if the text is one; else a string.
// `types` 0: nothing is known, and text that is written as JSON would write it counts.
std::string typed_json(std::string_view text, unsigned types);

class ToolTable {
 public:
  ToolTable() = default;
  explicit ToolTable(const Json& tools);  // the form of OpenAI's API; what has another form is no tool

  bool empty() const { return parameters_.empty(); }
  bool known(std::string_view name) const { return parameters_.find(name) != parameters_.end(); }
  bool begins(std::string_view prefix) const;                         // of a name
  unsigned types(std::string_view tool, std::string_view key) const;  // bits; 0: not told

 private:
  std::map<std::string, Json, std::less<>> parameters_;  // schemas by name
};

}  // namespace invar
