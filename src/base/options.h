// Command-line options: flags into the members of a struct, with help, a TOML file (--config) and
// --print-config all from one list.  Every value is checked as it is read; the error names the flag.
// Also the few things that are asked of the environment: none of them changes a result.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar {

// Strict: the whole text is one number of the type and in range; the error says what was expected.
Result<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high);
Result<uint64_t> parse_unsigned(std::string_view text);
Result<double> parse_real(std::string_view text, double low, double high);
Result<int64_t> parse_bytes(std::string_view text);  // 1048576, 500MB, 1.5GiB; at least 1

// The candidate that `word` most likely means; empty if none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

class Options {
 public:
  // `usage` is what follows "invar", for example "run MODEL [options]".  Each example is a whole command.
  Options(std::string usage, std::string summary, std::vector<std::string> examples);
  Options(const Options&) = delete;
  ~Options();

  // `names` as in "-n,--tokens".  A name without dashes is a positional argument, and must be given unless
  // its label is in brackets.
  // `label` stands for the value in the help.  Values keep what they hold unless the flag is given.
  void flag(const char* names, bool& value, const char* help);
  void text(const char* names, std::string& value, const char* label, const char* help);
  void text(const char* names, std::optional<std::string>& value, const char* label, const char* help);
  // A text that may be left out after the flag; it is `otherwise` then.
  void text_or(const char* names, std::string& value, const std::string& otherwise, const char* label,
               const char* help);
  void texts(const char* names, std::vector<std::string>& values, const char* label, const char* help);
  void choice(const char* names, std::string& value, std::vector<std::string> choices, const char* help);
  template <class Int>  // int, int64_t, or optional of them
  void integer(const char* names, Int& value, int64_t low, int64_t high, const char* help);
  void real(const char* names, std::optional<float>& value, double low, double high, const char* help);
  void seed(const char* names, uint64_t& value, const char* help);
  void bytes(const char* names, int64_t& value, const char* help);  // shown as automatic while 0

  // Reads the arguments after the command's name, and the file of --config.  What is on the command line
  // wins.
  Status parse(std::span<const std::string> arguments);

  bool wants_help() const { return help_; }
  bool wants_config() const { return print_config_; }
  std::string help() const;
  std::string config() const;  // TOML: what is in force; what follows the model or the machine is a comment

 private:
  struct App;
  struct Entry {
    std::string names, label, help;
    std::function<std::string()> show;  // the value as TOML; empty: unset
    std::string before;                 // what `show` said before parsing
    std::string name() const;           // the long one, with its dashes
    bool positional() const { return names[0] != '-'; }
  };
  enum class Values { One, OneOrNone, Many };
  void add(const char* names, std::string label, const char* help,
           std::function<Status(const std::string&)> set, std::function<std::string()> show,
           Values values = Values::One);

  Status unknown(const std::string& argument) const;

  std::unique_ptr<App> app_;
  std::string usage_, summary_;
  std::vector<std::string> examples_;
  std::vector<Entry> entries_;
  std::optional<Error> fault_;  // the first
  bool help_ = false, print_config_ = false;
};

std::string toml_text(std::string_view text);

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class Int>
void Options::integer(const char* names, Int& value, int64_t low, int64_t high, const char* help) {
  add(
      names, "N", help,
      [&value, low, high](const std::string& given) -> Status {
        value = Int(TRY(parse_integer(given, low, high)));
        return Ok{};
      },
      [&value, low]() -> std::string {
        int64_t now;
        if constexpr (IsOptional<Int>::value) now = value ? int64_t(*value) : low - 1;
        else now = value;
        return now < low ? "" : std::to_string(now);  // a value below the range stands for automatic
      });
}

std::string key_of_environment(const char* name);  // may be empty
bool colours_wanted(int descriptor);               // a terminal, and no NO_COLOR
// Where this user's programs keep state, with our folder; empty if the user has no home.
std::string state_folder();
// Where they keep what can be made again; likewise.
std::string cache_folder();

}  // namespace invar
