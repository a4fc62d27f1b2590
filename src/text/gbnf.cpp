#include "text/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "text/gbnf_tree.h"

namespace invar {

namespace {

constexpr int kMaxNesting = 200;
constexpr size_t kMaxBytes = 1 << 20, kMaxRules = 1000;
constexpr int kMaxOperators = 8;  // behind one symbol
constexpr int64_t kMaxRepeats = 2000;
constexpr uint32_t kMaxCharacter = 0x10FFFF;

using Kind = GbnfNode::Kind;

struct Rule {
  std::string name;
  std::optional<GbnfNode> body;
  int line = 0;  // where it was first named
};

// What a set leaves of all characters.
CharacterSet others(CharacterSet set) {
  set.push_back({0xD800, 0xDFFF});  // no characters
  std::sort(set.begin(), set.end());
  CharacterSet out;
  uint32_t next = 0;
  for (const auto& [low, high] : set) {
    if (low > next) out.push_back({next, low - 1});
    next = std::max(next, high + 1);
  }
  if (next <= kMaxCharacter) out.push_back({next, kMaxCharacter});
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::string> lark() {
    if (text_.empty() || text_.size() > kMaxBytes)
      return fault("expected 1 to " + std::to_string(kMaxBytes) + " bytes, found " +
                   std::to_string(text_.size()));
    skip();
    while (at_ < text_.size()) TRY(rule());
    for (const Rule& r : rules_)
      if (!r.body) return fault("rule '" + r.name + "' is used, but not there", r.line);
    const auto root = names_.find("root");
    if (root == names_.end()) return fault("expected a rule 'root', found none");
    GbnfRules bodies;
    for (Rule& r : rules_) bodies.push_back(std::move(*r.body));
    return lark_of(bodies, root->second);
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
  Result<int> add(std::string name, std::optional<GbnfNode> body) {
    if (rules_.size() == kMaxRules)
      return fault("expected at most " + std::to_string(kMaxRules) + " rules and groups", line());
    rules_.push_back({std::move(name), std::move(body), line()});
    return int(rules_.size()) - 1;
  }
  Result<int> index(const std::string& name) {
    if (const auto known = names_.find(name); known != names_.end()) return known->second;
    return names_[name] = TRY(add(name, {}));
  }

  Status rule() {
    const std::string left = name();
    skip();
    if (left.empty() || !eat("::=")) return expected("NAME ::= ...");
    const int i = TRY(index(left));
    if (rules_[size_t(i)].body) return fault("rule '" + left + "' is there twice", line());
    GbnfNode body = TRY(choice(0));
    if (at_ < text_.size() && !begins_rule()) return expected("a rule");
    rules_[size_t(i)].body = std::move(body);
    return Ok{};
  }

  Result<GbnfNode> choice(int depth) {
    if (depth > kMaxNesting) return fault("nested too deep", line());
    GbnfNode all{Kind::Choice};
    do all.parts.push_back(TRY(sequence(depth)));
    while (eat("|"));
    return all;
  }

  Result<GbnfNode> sequence(int depth) {
    GbnfNode all{Kind::Sequence};
    for (skip(); at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')' && !begins_rule(); skip())
      all.parts.push_back(TRY(repeated(TRY(symbol(depth)))));
    return all;
  }

  Result<GbnfNode> symbol(int depth) {
    if (eat("(")) {
      GbnfNode inner = TRY(choice(depth + 1));
      if (!eat(")")) return expected(")");
      return rule_node(TRY(add("(...)", std::move(inner))));  // a rule of its own: Lark bounds the depth
    }
    if (eat("\"")) return literal();
    if (eat("[")) return letters();
    if (eat(".")) return GbnfNode{Kind::Characters, others({})};
    if (sees("<")) return token();
    if (sees("!")) return fault("a token that must not come (!<...>) is not supported", line());
    const std::string other = name();
    if (other.empty()) return expected("a symbol");
    return rule_node(TRY(index(other)));
  }
  static GbnfNode rule_node(int rule) {
    GbnfNode node{Kind::Rule};
    node.rule = rule;
    return node;
  }

  // By its text, or <[id]>.
  Result<GbnfNode> token() {
    const size_t end = text_.find('>', at_);
    const std::string_view all = text_.substr(at_, end == text_.npos ? end : end + 1 - at_);
    if (end == text_.npos || all.size() < 3 || all.find_first_of(" \t\r\n") != all.npos)
      return expected("a token as <text> or <[id]>");
    at_ += all.size();
    return GbnfNode{Kind::Token, {}, std::string(all)};
  }

  Result<GbnfNode> literal() {
    GbnfNode all{Kind::Sequence};
    while (!eat("\"")) {
      const uint32_t code = TRY(character());
      all.parts.push_back({Kind::Characters, {{code, code}}});
    }
    return all;
  }

  Result<GbnfNode> letters() {
    const bool but = eat("^");
    GbnfNode all{Kind::Characters};
    while (!eat("]")) {
      const uint32_t low = TRY(character());
      uint32_t high = low;
      if (sees("-") && !sees("-]")) {
        ++at_;
        high = TRY(character());
      }
      if (high < low) return fault("a range of characters ends before it begins", line());
      all.set.push_back({low, high});
    }
    if (all.set.empty()) return fault("a set of characters is empty", line());
    if (but) all.set = others(all.set);
    if (all.set.empty()) return fault("a set of characters is empty", line());
    return all;
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

  Result<int64_t> number() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    if (end == at_ || end - at_ > 6) return expected("a number");
    const int64_t value = std::stoll(std::string(text_.substr(at_, end - at_)));
    at_ = end;
    if (value > kMaxRepeats)
      return fault("expected at most " + std::to_string(kMaxRepeats) + " repeats", line());
    return value;
  }

  // With ?, *, + and {m,n} behind it, any number of them.
  Result<GbnfNode> repeated(GbnfNode one) {
    for (int depth = 0; depth < kMaxOperators; ++depth) {
      GbnfNode all{Kind::Repeat};
      if (eat("?")) all.least = 0;
      else if (eat("*")) all.least = 0, all.most = -1;
      else if (eat("+")) all.most = -1;
      else if (eat("{")) TRY(bounds(all));
      else return one;
      all.parts.push_back(std::move(one));
      one = std::move(all);
    }
    return fault("nested too deep", line());
  }
  Status bounds(GbnfNode& repeat) {
    skip();
    repeat.least = sees(",") ? 0 : int(TRY(number()));
    repeat.most = repeat.least;
    skip();
    if (eat(",")) {
      skip();
      repeat.most = sees("}") ? -1 : int(TRY(number()));
      skip();
    }
    if (!eat("}") || (repeat.most >= 0 && repeat.most < repeat.least)) return expected("{m}, {m,} or {m,n}");
    return Ok{};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Rule> rules_;
  std::map<std::string, int> names_;
};

}  // namespace

Result<std::string> lark_of_gbnf(std::string_view gbnf) { return Parser(gbnf).lark(); }

}  // namespace invar
