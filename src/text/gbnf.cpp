#include "text/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace invar {

namespace {

constexpr int kMaxNesting = 200;
constexpr size_t kMaxRules = 1000;
constexpr int64_t kMaxRepeats = 2000;
constexpr uint32_t kMaxCharacter = 0x10FFFF;

// The right side of a rule in Lark, but for the names of other rules.
struct Piece {
  std::string text;
  int rule = -1;
};
using Body = std::vector<Piece>;

struct Rule {
  std::string name;
  std::optional<Body> body;
  int line = 0;  // where it was first named
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::string> lark() {
    skip();
    while (at_ < text_.size()) TRY(rule());
    if (rules_.size() > kMaxRules)
      return fault("expected at most " + std::to_string(kMaxRules) + " rules and groups, found " +
                   std::to_string(rules_.size()));
    for (const Rule& r : rules_)
      if (!r.body) return fault("rule '" + r.name + "' is used, but not there", r.line);
    const auto root = names_.find("root");
    if (root == names_.end()) return fault("expected a rule 'root', found none");
    return written(root->second);
  }

 private:
  Error fault(const std::string& message, int line = 0) const {
    const std::string where = line > 0 ? "line " + std::to_string(line) + ": " : "";
    return Error{Code::BadRequest, "grammar", where + message};
  }
  Error expected(const char* what) const {
    const std::string_view rest = text_.substr(at_, 12);
    return fault(std::string("expected ") + what + ", found " +
                     (rest.empty() ? "the end" : "'" + std::string(rest.substr(0, rest.find('\n'))) + "'"),
                 line());
  }
  int line() const { return 1 + int(std::count(text_.begin(), text_.begin() + long(at_), '\n')); }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') ++at_;
      else return;
    }
  }
  bool sees(std::string_view literal) const { return text_.substr(at_).starts_with(literal); }
  bool eat(std::string_view literal) {
    if (!sees(literal)) return false;
    at_ += literal.size();
    return true;
  }
  std::string name() {
    const size_t from = at_;
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
             c == '_';
    };
    while (at_ < text_.size() && fits(text_[at_])) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  bool begins_rule() {  // a name and ::=
    const size_t from = at_;
    const bool named = !name().empty();
    skip();
    const bool yes = named && sees("::=");
    at_ = from;
    return yes;
  }
  int index(const std::string& name) {
    const auto [it, fresh] = names_.emplace(name, int(rules_.size()));
    if (fresh) rules_.push_back({name, {}, line()});
    return it->second;
  }

  Status rule() {
    const std::string left = name();
    skip();
    if (left.empty() || !eat("::=")) return expected("NAME ::= ...");
    const int i = index(left);
    if (rules_[size_t(i)].body) return fault("rule '" + left + "' is there twice", line());
    Body body;
    TRY(choice(body, 0));
    if (at_ < text_.size() && !begins_rule()) return expected("a rule");
    rules_[size_t(i)].body = std::move(body);
    return Ok{};
  }

  Status choice(Body& out, int depth) {
    if (depth > kMaxNesting) return fault("nested too deep", line());
    TRY(sequence(out, depth));
    while (eat("|")) {
      out.push_back({" | "});
      TRY(sequence(out, depth));
    }
    return Ok{};
  }

  Status sequence(Body& out, int depth) {
    out.push_back({"\"\""});
    for (skip(); at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && !begins_rule(); skip()) {
      Body one;
      TRY(symbol(one, depth));
      TRY(repeat(one));
      out.push_back({" "});
      out.insert(out.end(), one.begin(), one.end());
    }
    return Ok{};
  }

  Status symbol(Body& out, int depth) {
    if (eat("(")) {
      Body inner;
      TRY(choice(inner, depth + 1));
      if (!eat(")")) return expected(")");
      out.push_back({"", int(rules_.size())});  // a rule of its own: Lark bounds the depth
      rules_.push_back({"(...)", std::move(inner), line()});
      return Ok{};
    }
    if (eat("\"")) return literal(out);
    if (eat("[")) return letters(out);
    if (eat(".")) {
      out.push_back({"/(?s:.)/"});
      return Ok{};
    }
    if (sees("<")) return token(out);
    if (sees("!")) return fault("a token that must not come (!<...>) is not supported", line());
    const std::string other = name();
    if (other.empty()) return expected("a symbol");
    out.push_back({"", index(other)});
    return Ok{};
  }

  // A token by its text or <[id]>, as Lark writes it too.
  Status token(Body& out) {
    const size_t end = text_.find('>', at_);
    const std::string_view all = text_.substr(at_, end == text_.npos ? end : end + 1 - at_);
    if (end == text_.npos || all.size() < 3 || all.find_first_of(" \t\r\n") != all.npos)
      return expected("a token as <text> or <[id]>");
    at_ += all.size();
    has_tokens_ = true;
    out.push_back({std::string(all)});
    return Ok{};
  }

  // Each character is a terminal: then no terminal can begin another, and nothing is cut greedily.
  Status literal(Body& out) {
    out.push_back({"(\"\""});
    while (!eat("\"")) out.push_back({" /" + in_class(TRY(character())) + "/"});
    out.push_back({")"});
    return Ok{};
  }

  Status letters(Body& out) {
    std::string all = eat("^") ? "[^" : "[";
    const size_t bare = all.size();
    while (!eat("]")) {
      const uint32_t low = TRY(character());
      all += in_class(low);
      if (!sees("-") || text_.substr(at_).starts_with("-]")) continue;
      ++at_;
      const uint32_t high = TRY(character());
      if (high < low) return fault("a range of characters ends before it begins", line());
      all += "-" + in_class(high);
    }
    if (all.size() == bare) return fault("a set of characters is empty", line());
    out.push_back({"/" + all + "]/"});
    return Ok{};
  }

  // The next one of a literal or a set.
  Result<uint32_t> character() {
    if (at_ >= text_.size()) return expected("the end of a literal");
    if (eat("\\")) return escape();
    const auto first = uint8_t(text_[at_++]);
    const int more = first < 0x80 ? 0 : first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : -1;
    if (more < 0 || at_ + size_t(more) > text_.size()) return expected("UTF-8");
    uint32_t code = more == 0 ? first : first & (0x3F >> more);
    for (int i = 0; i < more; ++i) code = code << 6 | (uint8_t(text_[at_++]) & 0x3F);
    return checked(code);
  }
  Result<uint32_t> escape() {
    if (at_ >= text_.size()) return expected("a character behind \\");
    const char c = text_[at_++];
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (std::string_view("\"\\[]^-").find(c) != std::string_view::npos) return uint32_t(c);
      if (c == 'n') return uint32_t('\n');
      if (c == 'r') return uint32_t('\r');
      if (c == 't') return uint32_t('\t');
      return fault(std::string("unknown escape \\") + c, line());
    }
    const std::string hex(text_.substr(at_, size_t(digits)));
    if (hex.size() < size_t(digits) || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos)
      return expected("hexadecimal digits");
    at_ += size_t(digits);
    return checked(uint32_t(std::stoul(hex, nullptr, 16)));
  }
  Result<uint32_t> checked(uint32_t code) const {
    if (code > kMaxCharacter || (code >= 0xD800 && code < 0xE000))
      return fault("no character has this code", line());
    return code;
  }

  static std::string in_class(uint32_t code) {
    const bool plain =
        (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    if (plain) return std::string(1, char(code));
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (; code > 0; code >>= 4) hex.insert(hex.begin(), kDigits[code & 15]);
    return "\\x{" + (hex.empty() ? "0" : hex) + "}";
  }

  Result<int64_t> number() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    if (end == at_ || end - at_ > 6) return expected("a number");
    const int64_t value = std::stoll(std::string(text_.substr(at_, end - at_)));
    at_ = end;
    if (value > kMaxRepeats)
      return fault("expected at most " + std::to_string(kMaxRepeats) + " repeats", line());
    return value;
  }

  // ?, *, + and {m,n} behind a symbol, any number of them.
  Status repeat(Body& one) {
    for (;;) {
      std::string how;
      if (sees("?") || sees("*") || sees("+")) how = text_.substr(at_++, 1);
      else if (!eat("{")) return Ok{};
      if (how.empty()) {
        skip();
        const int64_t least = sees(",") ? 0 : TRY(number());
        int64_t most = least;
        skip();
        const bool range = eat(",");
        skip();
        const bool open = range && sees("}");
        if (range && !open) most = TRY(number());
        skip();
        if (!eat("}") || most < least) return expected("{m}, {m,} or {m,n}");
        if (most == 0 && !open) {
          one = {{"\"\""}};
          continue;
        }
        how = "{" + std::to_string(least) + (range ? "," : "") +
              (range && !open ? std::to_string(most) : "") + "}";
      }
      one.insert(one.begin(), {"("});
      one.push_back({")" + how});
    }
  }

  bool recursive(int at, std::vector<int>& seen) const {  // 1: on the way, 2: done
    if (seen[size_t(at)] != 0) return seen[size_t(at)] == 1;
    seen[size_t(at)] = 1;
    for (const Piece& p : *rules_[size_t(at)].body)
      if (p.rule >= 0 && recursive(p.rule, seen)) return true;
    seen[size_t(at)] = 2;
    return false;
  }

  // Without recursion all rules are terminals and the whole is one regular expression, which is fast.
  std::string written(int root) const {
    std::vector<int> seen(rules_.size(), 0);
    const bool regular = !has_tokens_ && !recursive(root, seen);
    const std::string prefix = regular ? "R" : "r";
    std::string out = "start: " + prefix + std::to_string(root) + "\n";
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (regular && seen[i] == 0) continue;  // not needed, and perhaps recursive
      out += prefix + std::to_string(i) + ": ";
      for (const Piece& p : *rules_[i].body) out += p.rule < 0 ? p.text : prefix + std::to_string(p.rule);
      out += "\n";
    }
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool has_tokens_ = false;
  std::vector<Rule> rules_;
  std::map<std::string, int> names_;
};

}  // namespace

Result<std::string> lark_of_gbnf(std::string_view gbnf) { return Parser(gbnf).lark(); }

}  // namespace invar
