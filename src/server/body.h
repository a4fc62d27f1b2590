// The fields of a request's JSON, read by name and type.  A field that is absent or null is not there; the
// first that is wrong is kept, with its path, and the reader goes on as if it were not there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/errors.h"
#include "text/json.h"

namespace invar::server {

class Body {
 public:
  // `fault`: where the first is kept.  Both outlive the body.  A value that is no object has no fields.
  Body(const Json& value, std::optional<ApiError>& fault, std::string path = {});

  const Json* any(const char* name) const;
  std::optional<std::string> text(const char* name);
  std::string needed_text(const char* name);  // one that is not there is wrong
  std::optional<double> number(const char* name);
  std::optional<int64_t> integer(const char* name, int64_t least = INT64_MIN, int64_t most = INT64_MAX);
  std::optional<bool> flag(const char* name);
  std::vector<std::string> texts(const char* name);  // a string alone counts as a list of one
  const Json* list(const char* name);
  const Json* object(const char* name);
  Body inside(const char* name);  // of an object; one without fields if there is none
  // Of the list of this name, which the caller has; wrong if it is no object.
  Body item(const Json& list, const char* name, size_t i);

  // 400 about a field of this body.
  void wrong(const std::string& name, std::string message, std::string code = {});
  void unsupported(const std::string& name, const std::string& why);
  std::string path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }
  const std::string& path() const { return path_; }
  bool fine() const { return !fault_->has_value(); }
  const std::optional<ApiError>& fault() const { return *fault_; }
  const Json& value() const { return *value_; }

 private:
  const Json* typed(const char* name, bool fits, const char* expected);

  const Json* value_;
  std::optional<ApiError>* fault_;
  std::string path_;
};

// The content of a message of this role.  Parts of system messages stay apart: each may begin with headers
// that are dropped later.
Json content_of(const std::string& role, const std::vector<std::string>& parts);

// What a value is, for messages.
std::string kind_of(const Json& value);

}  // namespace invar::server
