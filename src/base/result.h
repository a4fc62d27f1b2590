// Errors as values: what the world got wrong comes back as an Error, what the code got wrong ends in
// base/check.h.  Our own code throws nothing; a library that throws is caught in the file that calls it.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace invar {

// Each has its exit status (cli/output.cpp) and its status of HTTP (server/errors.cpp).
enum class Code { Usage, BadFile, BadRequest, Unsupported, NotFound, NoRoom, Io, Cancelled };

struct Error {
  Code code;
  std::string where;             // the file, key, tensor or flag concerned; may be empty
  std::string message;           // one line: what was expected, what was found
  std::vector<Error> more = {};  // further faults of the same file, listed together
};

template <class T>
class [[nodiscard]] Result {  // the part of std::expected that is used here
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() { return std::get<0>(v_); }
  const T& operator*() const { return std::get<0>(v_); }
  T* operator->() { return &std::get<0>(v_); }
  const T* operator->() const { return &std::get<0>(v_); }
  Error& error() { return std::get<1>(v_); }
  const Error& error() const { return std::get<1>(v_); }
  T take() { return std::move(std::get<0>(v_)); }

 private:
  std::variant<T, Error> v_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace invar

// auto n = TRY(parse(text));  gives the value, or returns the error to our caller.
#define TRY(expr)                          \
  __extension__({                          \
    auto r_ = (expr);                      \
    if (!r_) return std::move(r_.error()); \
    r_.take();                             \
  })
