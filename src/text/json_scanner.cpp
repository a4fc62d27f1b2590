#include "text/json_scanner.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "text/json.h"

namespace invar {

namespace {

constexpr size_t kMaxNesting = 128;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool ends_scalar(char c) { return is_space(c) || c == ',' || c == '}' || c == ']' || c == ';' || c == '<'; }

std::string unicode_escape(unsigned unit) {
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", unit & 0xFFFF);
  return text;
}

}  // namespace

JsonScanner::State JsonScanner::feed(std::string_view text, size_t& used, std::string& out) {
  for (used = 0; used < text.size(); used++) {
    if (broken_) return State::Broken;
    if (expect_ == Expect::Nothing) return State::Done;
    if (expect_ == Expect::Scalar && ends_scalar(text[used])) {
      broken_ = !end_scalar(out);
      if (broken_) return State::Broken;
      if (expect_ == Expect::Nothing) return State::Done;
    }
    broken_ = !take(text[used], out);
    if (broken_) return State::Broken;
  }
  return expect_ == Expect::Nothing ? State::Done : State::More;
}

JsonScanner::State JsonScanner::finish(std::string& out) {
  if (!broken_ && expect_ == Expect::Scalar) broken_ = !end_scalar(out);
  return !broken_ && expect_ == Expect::Nothing ? State::Done : State::Broken;
}

bool JsonScanner::take(char c, std::string& out) {
  if (expect_ == Expect::String) return string_char(c, out);
  if (expect_ == Expect::Scalar) {
    scalar_ += c;
    return scalar_.size() <= 400;
  }
  if (is_space(c)) return true;
  switch (expect_) {
    case Expect::FirstKey:
    case Expect::Key:
      if (c == '}') {  // also after a comma too many
        out += c;
        open_.pop_back();
        end_value();
        return true;
      }
      if (c != '"') return false;
      if (comma_) out += ',';
      comma_ = false;
      out += '"';
      key_ = true;
      expect_ = Expect::String;
      return true;
    case Expect::Colon:
      if (c != ':') return false;
      out += ':';
      expect_ = Expect::Value;
      return true;
    case Expect::Comma:
      if (c == ',') {
        comma_ = true;
        expect_ = open_.back() == '{' ? Expect::Key : Expect::FirstItem;
        return true;
      }
      if (c != (open_.back() == '{' ? '}' : ']')) return false;
      out += c;
      open_.pop_back();
      end_value();
      return true;
    case Expect::FirstItem:
      if (c == ']') {
        comma_ = false;
        out += c;
        open_.pop_back();
        end_value();
        return true;
      }
      [[fallthrough]];
    default:
      return begin_value(c, out);
  }
}

bool JsonScanner::begin_value(char c, std::string& out) {
  const bool scalar = c != '"' && c != '{' && c != '[';
  if (!scalar) {
    if (comma_) out += ',';
    comma_ = false;
    out += c;
  }
  if (c == '"') {
    key_ = false;
    expect_ = Expect::String;
  } else if (scalar) {
    scalar_ = c;
    expect_ = Expect::Scalar;
  } else {
    open_ += c;
    expect_ = c == '{' ? Expect::FirstKey : Expect::FirstItem;
  }
  return open_.size() <= kMaxNesting;
}

bool JsonScanner::end_scalar(std::string& out) {
  if (scalar_ == "True") scalar_ = "true";
  if (scalar_ == "False") scalar_ = "false";
  if (scalar_ == "None") scalar_ = "null";
  if (!Json::accept(scalar_)) return false;
  if (comma_) out += ',';
  comma_ = false;
  out += scalar_;
  scalar_.clear();
  end_value();
  return true;
}

void JsonScanner::end_value() {
  comma_ = false;
  expect_ = open_.empty() ? Expect::Nothing : Expect::Comma;
}

bool JsonScanner::string_char(char c, std::string& out) {
  if (!escape_.empty()) return escape_char(c, out);
  if (c == '\\') {
    escape_ = c;
    return true;
  }
  if (high_ != 0) end_escape(out);
  if (c == '"') {
    out += c;
    if (key_) expect_ = Expect::Colon;
    else end_value();
  } else if (static_cast<unsigned char>(c) < 0x20) {
    out += json_escaped({&c, 1});
  } else {
    out += c;
  }
  return true;
}

bool JsonScanner::escape_char(char c, std::string& out) {
  constexpr std::string_view kSimple = "\"\\/bfnrt", kHex = "0123456789abcdefABCDEF";
  if (escape_.size() == 1 && c == 'u') {
    escape_ += c;
    return true;
  }
  if (escape_.size() >= 2 && kHex.find(c) != kHex.npos) {
    escape_ += c;
    if (escape_.size() == 6) unicode_done(out);
    return true;
  }
  if (high_ != 0) end_escape(out);
  const std::string begun = std::exchange(escape_, {});
  if (begun.size() == 1 && kSimple.find(c) != kSimple.npos) {
    out += begun;
    out += c;
    return true;
  }
  out += "\\" + begun;  // no escape: the backslash is meant
  return string_char(c, out);
}

void JsonScanner::unicode_done(std::string& out) {
  const unsigned unit = unsigned(std::strtoul(escape_.c_str() + 2, nullptr, 16));
  escape_.clear();
  const bool low = unit >= 0xDC00 && unit < 0xE000, high = unit >= 0xD800 && unit < 0xDC00;
  if (low && high_ != 0) {
    out += unicode_escape(high_) + unicode_escape(unit);
    high_ = 0;
    return;
  }
  if (high_ != 0) end_escape(out);
  if (high) high_ = unit;
  else out += low ? "\\ufffd" : unicode_escape(unit);
}

void JsonScanner::end_escape(std::string& out) {
  if (high_ != 0) out += "\\ufffd";
  high_ = 0;
}

void JsonScanner::repair(std::string& out) {
  if (expect_ == Expect::String) {
    end_escape(out);
    if (!escape_.empty()) (out += '\\') += std::exchange(escape_, {});
    out += '"';
    expect_ = key_ ? Expect::Colon : Expect::Comma;
  }
  if (expect_ == Expect::Colon) out += ":null";
  if (expect_ == Expect::Scalar || expect_ == Expect::Value) {
    const bool item = !open_.empty() && open_.back() == '[';
    if (!item) out += "null";
  }
  for (; !open_.empty(); open_.pop_back()) out += open_.back() == '{' ? '}' : ']';
  expect_ = Expect::Nothing;
}

std::string json_escaped(std::string_view text) {
  const std::string quoted = json_text(Json(std::string(text)));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace invar
