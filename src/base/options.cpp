#include "base/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace invar {
namespace {

Error expected(const std::string& what, std::string_view found) {
  return {Code::Usage, "", "expected " + what + ", found '" + std::string(found) + "'"};
}

std::string plain(double x) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof text, x);
  return std::string(text, end);
}

std::string range(const std::string& kind, double low, double high) {
  bool below = high < 1e15;
  if (!std::isfinite(low)) return kind;
  return kind + (below ? " from " + plain(low) + " to " + plain(high) : " of " + plain(low) + " or more");
}

// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    return expected(range("a whole number", double(low), double(high)), text);
  return value;
}

Result<uint64_t> parse_unsigned(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    return expected("a whole number from 0 to 18446744073709551615", text);
  return value;
}

Result<double> parse_real(std::string_view text, double low, double high) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= low && value <= high))
    return expected(range("a number", low, high), text);
  return value;
}

Result<int64_t> parse_bytes(std::string_view text) {
  struct {
    const char* name;
    double factor;
  } constexpr kUnits[] = {{"", 1},         {"B", 1},      {"K", 0x1p10},   {"KB", 1e3},    {"KiB", 0x1p10},
                          {"M", 0x1p20},   {"MB", 1e6},   {"MiB", 0x1p20}, {"G", 0x1p30},  {"GB", 1e9},
                          {"GiB", 0x1p30}, {"T", 0x1p40}, {"TB", 1e12},    {"TiB", 0x1p40}};
  Error error = expected("bytes, such as 500MB or 8GiB", text);
  size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  auto number = parse_real(text.substr(0, digits), 0, 1e18);
  if (!number) return error;
  for (auto& [name, factor] : kUnits)
    if (unit.size() == std::strlen(name) && strncasecmp(unit.data(), name, unit.size()) == 0) {
      double bytes = *number * factor;
      if (bytes < 1 || bytes > 1e18) return error;
      return int64_t(bytes);
    }
  return error;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  word = word.substr(0, 64);
  size_t least = std::max<size_t>(word.size() / 3, 2) + 1;
  for (const std::string& candidate : candidates) {
    size_t d = distance(word, candidate);
    if (d < least) least = d, best = candidate;
  }
  return best;
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    char hex[8];
    if (c == '"' || c == '\\') out += std::string("\\") + c;
    else if (c == '\n') out += "\\n";
    else if (uint8_t(c) < 32 || c == 127) std::snprintf(hex, sizeof hex, "\\u%04x", c), out += hex;
    else out += c;
  }
  return out + "\"";
}

struct Options::App {
  CLI::App cli;
};

std::string Options::Entry::name() const { return names.substr(names.rfind(',') + 1); }

Options::Options(std::string usage, std::string summary, std::vector<std::string> examples)
    : app_(std::make_unique<App>()),
      usage_("invar " + usage),
      summary_(std::move(summary)),
      examples_(std::move(examples)) {
  CLI::App& cli = app_->cli;
  cli.set_help_flag();
  cli.allow_extras();
  cli.allow_config_extras(CLI::config_extras_mode::error);
  cli.add_flag("-h,--help", help_)->configurable(false);
  cli.add_flag("--print-config", print_config_)->configurable(false);
  cli.set_config("--config");
}

Options::~Options() = default;

void Options::add(const char* names, std::string label, const char* help,
                  std::function<Status(const std::string&)> set, std::function<std::string()> show,
                  Values values) {
  entries_.push_back({names, std::move(label), help, show, show()});
  const Entry& entry = entries_.back();
  CLI::callback_t take = [this, values, set = std::move(set),
                          name = entry.name()](const CLI::results_t& given) {
    for (const std::string& text : given)  // of OneOrNone: "{}" or nothing where the value was left out
      if (auto status = set(values == Values::OneOrNone && text == "{}" ? "" : text); !status && !fault_) {
        fault_ = status.error();
        fault_->where = name;
      }
    return true;
  };
  CLI::Option* option = app_->cli.add_option(names, take)->configurable(!entry.positional());
  if (values == Values::Many)
    option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false)->take_all();
  else option->take_last();
  if (values == Values::OneOrNone) option->expected(0, 1);
}

void Options::flag(const char* names, bool& value, const char* help) {
  app_->cli.add_flag(names, value);
  auto show = [&value] { return std::string(value ? "true" : "false"); };
  entries_.push_back({names, "", help, show, show()});
}

void Options::text(const char* names, std::string& value, const char* label, const char* help) {
  add(
      names, label, help,
      [&value](const std::string& given) -> Status {
        value = given;
        return Ok{};
      },
      [&value] { return value.empty() ? "" : toml_text(value); });
}

void Options::text(const char* names, std::optional<std::string>& value, const char* label,
                   const char* help) {
  add(
      names, label, help,
      [&value](const std::string& given) -> Status {
        value = given;
        return Ok{};
      },
      [&value] { return value ? toml_text(*value) : ""; });
}

void Options::text_or(const char* names, std::string& value, const std::string& otherwise, const char* label,
                      const char* help) {
  add(
      names, label, help,
      [&value, otherwise](const std::string& given) -> Status {
        value = given.empty() ? otherwise : given;
        return Ok{};
      },
      [&value] { return value.empty() ? "" : toml_text(value); }, Values::OneOrNone);
}

void Options::texts(const char* names, std::vector<std::string>& values, const char* label,
                    const char* help) {
  add(
      names, label, help,
      [&values](const std::string& given) -> Status {
        values.push_back(given);
        return Ok{};
      },
      [&values] {
        std::vector<std::string> quoted;
        for (const std::string& value : values) quoted.push_back(toml_text(value));
        return quoted.empty() ? "" : "[" + joined(quoted, ", ") + "]";
      },
      Values::Many);
}

void Options::choice(const char* names, std::string& value, std::vector<std::string> choices,
                     const char* help) {
  std::string label = joined(choices, "|");
  add(
      names, label, help,
      [&value, choices, label](const std::string& given) -> Status {
        if (std::find(choices.begin(), choices.end(), given) == choices.end()) return expected(label, given);
        value = given;
        return Ok{};
      },
      [&value] { return toml_text(value); });
}

void Options::real(const char* names, std::optional<float>& value, double low, double high,
                   const char* help) {
  add(
      names, "X", help,
      [&value, low, high](const std::string& given) -> Status {
        value = float(TRY(parse_real(given, low, high)));
        return Ok{};
      },
      [&value] { return value ? plain(*value) : ""; });
}

void Options::seed(const char* names, uint64_t& value, const char* help) {
  add(
      names, "N", help,
      [&value](const std::string& given) -> Status {
        value = TRY(parse_unsigned(given));
        return Ok{};
      },
      [&value] { return std::to_string(value); });
}

void Options::bytes(const char* names, int64_t& value, const char* help) {
  add(
      names, "BYTES|GiB", help,
      [&value](const std::string& given) -> Status {
        value = TRY(parse_bytes(given));
        return Ok{};
      },
      [&value] { return value ? std::to_string(value) : ""; });
}

Status Options::parse(std::span<const std::string> arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  const CLI::App& cli = app_->cli;
  try {
    app_->cli.parse(reversed);
  } catch (const CLI::FileError& e) {
    return Error{Code::Io, "--config", e.what()};
  } catch (const CLI::ConfigError& e) {
    return Error{Code::Usage, "--config", e.what()};
  } catch (const CLI::ParseError& e) { return Error{Code::Usage, usage_, e.what()}; }
  if (help_) return Ok{};
  if (!cli.remaining().empty()) return unknown(cli.remaining()[0]);
  if (fault_) return *fault_;
  for (const Entry& entry : entries_)
    if (entry.positional() && entry.label[0] != '[' && !print_config_ && cli.count(entry.names) == 0)
      return Error{Code::Usage, entry.names, "expected by '" + usage_ + "', not given"};
  return Ok{};
}

Status Options::unknown(const std::string& argument) const {
  if (argument.size() < 2 || argument[0] != '-')
    return Error{Code::Usage, argument, "expected no further argument: '" + usage_ + "'"};
  std::vector<std::string> names = {"--help", "--config", "--print-config"};
  for (const Entry& entry : entries_) names.push_back(entry.name());
  std::string near = nearest(argument.substr(0, argument.find('=')), names);
  return Error{Code::Usage, argument,
               near.empty() ? "unknown flag; --help lists them" : "unknown flag; did you mean " + near + "?"};
}

std::string Options::help() const {
  std::string text = "Usage: " + usage_ + "\n\n" + summary_ + "\n\n";
  auto line = [&text](std::string left, const std::string& help) {
    left.resize(std::max<size_t>(left.size() + 2, 34), ' ');
    text += "  " + left + help + "\n";
  };
  for (const Entry& entry : entries_) {
    std::string left = entry.names;
    if (size_t comma = left.find(','); comma != std::string::npos) left.insert(comma + 1, " ");
    if (!entry.positional() && !entry.label.empty()) left += " " + entry.label;
    bool says = !entry.label.empty() && !entry.before.empty();
    line(left, entry.help + (says ? " (default: " + entry.before + ")" : ""));
  }
  line("--config FILE", "Settings from a TOML file; its keys are the long names above");
  line("--print-config", "Show the settings in force as TOML, and leave");
  line("-h, --help", "Show this help, and leave");
  return text + "\nExamples:\n  " + joined(examples_, "\n  ") + "\n";
}

std::string Options::config() const {
  std::string text;
  for (const Entry& entry : entries_) {
    if (entry.positional()) continue;
    std::string name = entry.name().substr(entry.name().find_first_not_of('-')), value = entry.show();
    text += value.empty() ? "# " + name + " =\n" : name + " = " + value + "\n";
  }
  return text;
}

bool colours_wanted(int descriptor) {
  const char* no = std::getenv("NO_COLOR");
  return isatty(descriptor) && !(no && *no);
}

namespace {

std::string user_folder(const char* variable, const char* below_home) {
  if (const char* folder = std::getenv(variable); folder && *folder == '/')
    return std::string(folder) + "/invar";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + below_home + "/invar";
  return {};
}

}  // namespace

std::string key_of_environment(const char* name) {
  const char* key = std::getenv(name);
  return key ? key : "";
}

std::string state_folder() { return user_folder("XDG_STATE_HOME", "/.local/state"); }
std::string cache_folder() { return user_folder("XDG_CACHE_HOME", "/.cache"); }

}  // namespace invar
