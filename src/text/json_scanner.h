// One JSON value that comes in pieces, as a model writes it: read character by character, given out compact
// and valid.  Control characters in strings, wrong escapes, lone surrogates, trailing commas and Python's
// True, False and None are put right.
#pragma once

#include <string>
#include <string_view>

namespace invar {

class JsonScanner {
 public:
  enum class State { More, Done, Broken };

  // Reads from the front of `text` and appends to `out`; `used` bytes were taken.  Behind the end of the
  // value nothing is taken: a number or word ends with the character behind it.
  State feed(std::string_view text, size_t& used, std::string& out);
  // No more text: a number or word at the end is complete.
  State finish(std::string& out);
  // Closes all that is open, so that `out` is valid after Broken or an end of the text.
  void repair(std::string& out);

  bool inside() const { return !open_.empty() || expect_ == Expect::String; }  // something was begun

 private:
  enum class Expect { Value, FirstKey, Key, Colon, Comma, FirstItem, String, Scalar, Nothing };

  bool take(char c, std::string& out);  // false: the character is not part of it
  bool begin_value(char c, std::string& out);
  bool string_char(char c, std::string& out);
  bool escape_char(char c, std::string& out);
  void unicode_done(std::string& out);
  void end_escape(std::string& out);
  bool end_scalar(std::string& out);
  void end_value();

  std::string open_;    // { and [ that are open
  std::string scalar_;  // a number or word so far
  std::string escape_;  // of a string: from the backslash on
  unsigned high_ = 0;   // first half of a surrogate pair
  bool key_ = false;    // the string is a key
  bool comma_ = false;  // belongs before the next key or item
  Expect expect_ = Expect::Value;
  bool broken_ = false;
};

// `text` (UTF-8) as it stands between the quotes of a JSON string.
std::string json_escaped(std::string_view text);

}  // namespace invar
