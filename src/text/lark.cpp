#include "text/lark.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "text/schema.h"

namespace invar {

namespace {

constexpr int64_t kMaxLength = 100000;  // of a string, as a bound in a grammar

constexpr int kMaxBoth = 12;  // &: what a state of several at once can be doubles with each

Error bad(std::string keyword, std::string message) {
  return Error{Code::BadRequest, std::move(keyword), std::move(message)};
}

// A pattern cut at its outermost bars; nothing if a part cannot be enforced: look-around, back references,
// anchors inside.
class Pattern {
 public:
  explicit Pattern(std::string_view text) : text_(text) {}

  Result<std::string> whole_texts() {
    parts_.emplace_back();
    while (at_ < text_.size()) TRY(step());
    std::string out;
    for (const Part& part : parts_) {
      const char *before = part.from_start ? "" : "(?s:.*)", *behind = part.to_end ? "" : "(?s:.*)";
      out += (out.empty() ? "" : "|") + (before + ("(?:" + part.text + ")") + behind);
    }
    return out;
  }

 private:
  struct Part {
    std::string text;
    bool from_start = false, to_end = false;
  };

  Status step() {
    const char c = text_[at_++];
    Part& part = parts_.back();
    if (c == '\\') return escape(part.text);
    if (in_class_) {
      in_class_ = c != ']';
      part.text += c;
      return Ok{};
    }
    if (part.to_end && c != '|') return inside("$");
    const bool first = part.text.empty() && !part.from_start;
    switch (c) {
      case '^':
        if (!first) return inside("^");
        part.from_start = true;
        return Ok{};
      case '$':
        if (depth_ > 0) return inside("$");
        part.to_end = true;
        return Ok{};
      case '|':
        if (depth_ > 0) break;
        parts_.emplace_back();
        return Ok{};
      case '(':
        if (text_.substr(at_).starts_with('?') && !text_.substr(at_).starts_with("?:"))
          return bad("/pattern", "expected a pattern without look-around and named groups");
        ++depth_;
        break;
      case ')':
        --depth_;
        break;
      case '[':
        in_class_ = true;
        part.text += c;
        while (at_ < text_.size() && (text_[at_] == '^' || text_[at_] == ']')) {  // a ] in front is a letter
          const bool letter = text_[at_] == ']';
          part.text += letter ? "\\]" : "^";
          ++at_;
          if (letter) break;
        }
        return Ok{};
    }
    part.text += c;
    return Ok{};
  }

  // Classes are those of ECMAScript: letters and digits of ASCII.
  Status escape(std::string& out) {
    if (at_ == text_.size()) return bad("/pattern", "expected a character behind the last \\");
    const char c = text_[at_++];
    constexpr std::pair<char, const char*> kClasses[] = {
        {'d', "[0-9]"}, {'D', "[^0-9]"}, {'w', "[0-9a-zA-Z_]"}, {'W', "[^0-9a-zA-Z_]"}};
    for (const auto& [name, letters] : kClasses)
      if (c == name) {
        out += letters;
        return Ok{};
      }
    if (!in_class_ && (c == 'b' || c == 'B' || c == 'k' || (c >= '1' && c <= '9')))
      return bad("/pattern", std::string("expected a pattern without \\") + c);
    out += {'\\', c};
    return Ok{};
  }

  static Error inside(const char* anchor) {
    return bad("/pattern", std::string("expected ") + anchor + " at an end of the pattern only");
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_class_ = false;
  std::vector<Part> parts_;
};

// A regex for each `format` that can be enforced; each gives values that are valid, not all of them.
const std::map<std::string, std::string>& formats() {
  static const std::map<std::string, std::string> kFormats = [] {
    const std::string date = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])", hour = "([01][0-9]|2[0-3])",
                      time = hour + ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" + hour + ":[0-5][0-9])",
                      octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
                      label = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?", hex = "[0-9a-fA-F]";
    return std::map<std::string, std::string>{
        {"date", date},
        {"time", time},
        {"date-time", date + "T" + time},
        {"duration", "P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}[HMS])?|T[0-9]{1,9}[HMS])"},
        {"email", "[a-zA-Z0-9_+-]{1,30}(\\.[a-zA-Z0-9_+-]{1,30}){0,1}@" + label + "(\\." + label + "){1,4}"},
        {"hostname", label + "(\\." + label + "){0,4}"},
        {"ipv4", octet + "(\\." + octet + "){3}"},
        {"ipv6", "(" + hex + "{1,4}:){7}" + hex + "{1,4}"},
        {"uuid", hex + "{8}(-" + hex + "{4}){3}-" + hex + "{12}"}};
  }();
  return kFormats;
}

Result<std::string> length_regex(const Json& schema) {
  int64_t bounds[2] = {0, -1};
  constexpr const char* kNames[] = {"minLength", "maxLength"};
  for (int i : {0, 1}) {
    const auto bound = schema.find(kNames[i]);
    if (bound == schema.end()) continue;
    const char* const where = i == 0 ? "/minLength" : "/maxLength";
    if (!bound->is_number_integer() || *bound < 0 || *bound > kMaxLength)
      return bad(where, "expected a number up to " + std::to_string(kMaxLength));
    bounds[i] = bound->get<int64_t>();
  }
  if (bounds[0] == 0 && bounds[1] < 0) return std::string();
  const std::string most = bounds[1] < 0 ? "" : std::to_string(bounds[1]);
  return "(?s:.{" + std::to_string(bounds[0]) + "," + most + "})";
}

// Of a text or a pattern, its last character; of a comment, which begins with two slashes, the end of the
// line.
size_t behind_quoted(std::string_view text, size_t at) {
  const char mark = text[at];
  if (text.substr(at).starts_with("//")) return std::min(text.find('\n', at), text.size());
  for (at++; at < text.size() && text[at] != mark && text[at] != '\n'; at++)
    if (text[at] == '\\') at++;
  return std::min(at, text.size());
}

// Behind the object that begins here, or the end.
size_t behind_object(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); at++) {
    if (text[at] == '"') at = behind_quoted(text, at);
    else if (text[at] == '{') depth++;
    else if (text[at] == '}' && --depth == 0) return at + 1;
  }
  return text.size();
}

}  // namespace

std::string lark_text(std::string_view literal) { return json_text(std::string(literal)); }

std::string lark_regex(std::string_view regex) {
  std::string out = "/";
  for (size_t i = 0; i < regex.size(); i++) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) out += {c, regex[++i]};
    else if (c == '/') out += "\\/";
    else if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "/";
}

std::string lark_json(Json schema, const std::string& whitespace) {
  if (!schema.is_object()) schema = schema == false ? Json{{"enum", Json::array()}} : Json::object();
  schema["x-guidance"] = {{"whitespace_flexible", false}, {"lenient", true}, {"coerce_one_of", true}};
  if (!whitespace.empty()) schema["x-guidance"]["whitespace_pattern"] = whitespace;
  return "%json " + json_text(schema);
}

std::string lark_nested(const std::string& grammar) { return "%lark {\n" + grammar + "\n}"; }

void add_alternative(std::string& list, const std::string& one) {
  list += list.empty() ? "" : " | ";
  list += one;
}

std::string regex_literal(std::string_view text) {
  constexpr std::string_view kSpecial = "\\^$.|?*+()[]{}/-&~#";
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (kSpecial.find(c) != kSpecial.npos) out += {'\\', c};
    else out += c;
  }
  return out;
}

Result<std::string> lark_string(const Json& schema) {
  std::vector<std::string> all;
  if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
    if (!pattern->is_string()) return bad("/pattern", "expected a text");
    all.push_back(TRY(Pattern(pattern->get_ref<const std::string&>()).whole_texts()));
  }
  if (const auto format = schema.find("format"); format != schema.end()) {
    const auto known = formats().find(format->is_string() ? format->get<std::string>() : "");
    if (known == formats().end()) return bad("/format", "expected a format that can be enforced");
    all.push_back(known->second);
  }
  if (std::string length = TRY(length_regex(schema)); !length.empty()) all.push_back(std::move(length));
  std::string out;
  for (const std::string& regex : all) out += (out.empty() ? "" : " & ") + lark_regex(regex);
  return out;
}

Status check_lark(std::string_view text, const std::string& where) {
  int both = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '"' || text[i] == '/') {
      i = behind_quoted(text, i);
    } else if (text[i] == '&') {
      if (++both > kMaxBoth)
        return bad(where, "expected at most " + std::to_string(kMaxBoth) + " times &, found more");
    } else if (text.substr(i).starts_with("%json")) {
      const size_t begin = std::min(text.find('{', i), text.size());
      i = behind_object(text, begin);
      const auto schema = parse_ordered_json(text.substr(begin, i - begin), where);
      if (!schema) continue;  // the compiler says what is wrong
      TRY(check_schema(*schema, "", where.c_str()));
      TRY(check_numbers(*schema, where));
    }
  }
  return Ok{};
}

}  // namespace invar
