// A grammar without recursion is one regular expression, hence one terminal.  Else its terminals are
// characters, since llguidance cuts terminals greedily: one that may begin another would swallow it.  But
// going through a vocabulary character by character is slow, so what cannot be cut wrongly becomes one
// terminal: a part of a sequence of which no text is the beginning of another, and whose first characters no
// other terminal of the grammar has.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "text/gbnf_tree.h"

namespace invar {

namespace {

using Kind = GbnfNode::Kind;

constexpr size_t kMaxPositions = 100;  // characters of one terminal
constexpr size_t kMaxRegex = 2000;     // bytes of it
constexpr int kMaxAttempts = 1000;     // to make one
constexpr int kMaxRounds = 8;          // of looking for terminals that begin alike

bool meet(const CharacterSet& a, const CharacterSet& b) {
  for (const auto& [low, high] : a)
    for (const auto& [other_low, other_high] : b)
      if (low <= other_high && other_low <= high) return true;
  return false;
}

std::string escaped(uint32_t code) {
  const bool plain =
      (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  if (plain) return std::string(1, char(code));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (; code > 0; code >>= 4) hex.insert(hex.begin(), kDigits[code & 15]);
  return "\\x{" + (hex.empty() ? "0" : hex) + "}";
}

std::string regex_of(const CharacterSet& set) {
  std::string out = "[";
  for (const auto& [low, high] : set) out += escaped(low) + (high > low ? "-" + escaped(high) : "");
  return out + "]";
}

std::string times(const GbnfNode& repeat) {
  const std::string most = repeat.most < 0 ? "" : std::to_string(repeat.most);
  return "{" + std::to_string(repeat.least) + "," + most + "}";
}

// The characters of a part of a grammar, and which may follow which (Glushkov's automaton).
class Positions {
 public:
  Positions(const GbnfRules& rules, const std::vector<bool>& finite) : rules_(rules), finite_(finite) {}

  // The first characters of `parts` in a row, if no text of theirs is the beginning of another.
  std::optional<CharacterSet> first_of(const GbnfNode* begin, const GbnfNode* end) {
    Part all{true, {}, {}};
    for (const GbnfNode* p = begin; p != end; ++p) {
      const auto part = part_of(*p);
      if (!part) return {};
      all = joined(all, *part);
    }
    if (all.nullable || !distinct(all.first)) return {};
    for (const auto& next : next_)
      if (!distinct(next)) return {};
    for (int last : all.last)
      if (!next_[size_t(last)].empty()) return {};
    CharacterSet out;
    for (int at : all.first) out.insert(out.end(), sets_[size_t(at)]->begin(), sets_[size_t(at)]->end());
    return out;
  }

 private:
  struct Part {
    bool nullable = false;
    std::vector<int> first, last;
  };

  std::optional<Part> part_of(const GbnfNode& node) {
    if (sets_.size() > kMaxPositions) return {};
    switch (node.kind) {
      case Kind::Characters: {
        const int at = int(sets_.size());
        sets_.push_back(&node.set);
        next_.emplace_back();
        return Part{false, {at}, {at}};
      }
      case Kind::Token:
        return {};
      case Kind::Rule:
        if (!finite_[size_t(node.rule)]) return {};
        return part_of(rules_[size_t(node.rule)]);
      case Kind::Sequence: {
        Part all{true, {}, {}};
        for (const GbnfNode& inner : node.parts) {
          const auto part = part_of(inner);
          if (!part) return {};
          all = joined(all, *part);
        }
        return all;
      }
      case Kind::Choice: {
        Part all;
        for (const GbnfNode& inner : node.parts) {
          const auto part = part_of(inner);
          if (!part) return {};
          all.nullable |= part->nullable;
          append(all.first, part->first);
          append(all.last, part->last);
        }
        return all;
      }
      case Kind::Repeat:
        break;
    }
    return repeated(node);
  }

  // x x (x (x)?)?, or with a loop at the end.
  std::optional<Part> repeated(const GbnfNode& node) {
    const int copies = node.most < 0 ? std::max(node.least, 1) : node.most;
    Part all{true, {}, {}};
    std::vector<int> before;
    for (int i = 0; i < copies; ++i) {
      const auto part = part_of(node.parts[0]);
      if (!part || part->nullable) return {};
      if (i == 0) all.first = part->first;
      link(before, part->first);
      if (i < node.least) all.last.clear();
      append(all.last, part->last);
      before = part->last;
      if (node.most < 0 && i + 1 == copies) link(part->last, part->first);
    }
    all.nullable = node.least == 0;
    return all;
  }

  Part joined(const Part& a, const Part& b) {
    link(a.last, b.first);
    Part out{a.nullable && b.nullable, a.first, b.last};
    if (a.nullable) append(out.first, b.first);
    if (b.nullable) append(out.last, a.last);
    return out;
  }
  void link(const std::vector<int>& from, const std::vector<int>& to) {
    for (int at : from) append(next_[size_t(at)], to);
  }
  static void append(std::vector<int>& to, const std::vector<int>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  bool distinct(const std::vector<int>& positions) const {
    for (size_t i = 0; i < positions.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        if (meet(*sets_[size_t(positions[i])], *sets_[size_t(positions[k])])) return false;
    return true;
  }

  const GbnfRules& rules_;
  const std::vector<bool>& finite_;
  std::vector<const CharacterSet*> sets_;
  std::vector<std::vector<int>> next_;
};

class Writer {
 public:
  Writer(const GbnfRules& rules, int root) : rules_(rules), root_(root), seen_(rules.size(), 0) {
    finite_.assign(rules.size(), true);
    for (size_t i = 0; i < rules.size(); ++i) finite_[i] = finite(int(i));
  }

  std::string lark() {
    for (int round = 0; round < kMaxRounds; ++round) {
      terminals_.clear();
      std::string out = written();
      if (whole() || !bar_those_that_begin_alike()) return out;
    }
    longer_ = false;
    return written();
  }

 private:
  struct Terminal {
    CharacterSet first;
    bool longer;  // than a character
  };

  bool whole() const { return finite_[size_t(root_)]; }  // a regular expression
  std::string name(int rule) const { return (whole() ? "R" : "r") + std::to_string(rule); }

  std::string written() {
    std::string out = "start: " + name(root_) + "\n";
    for (size_t i = 0; i < rules_.size(); ++i)
      if (!whole() || finite_[i]) out += name(int(i)) + ": " + text(rules_[i]) + "\n";
    return out;
  }

  std::string text(const GbnfNode& node) {
    switch (node.kind) {
      case Kind::Characters:
        return terminal(regex_of(node.set), node.set, false);
      case Kind::Token:
        return node.token;
      case Kind::Rule:
        return name(node.rule);
      case Kind::Repeat:
        return node.most == 0 ? "\"\"" : "(" + text(node.parts[0]) + ")" + times(node);
      case Kind::Choice: {
        std::string out;
        for (const GbnfNode& part : node.parts) out += (out.empty() ? "" : " | ") + text(part);
        return out;
      }
      case Kind::Sequence:
        break;
    }
    std::string out = "\"\"";
    for (size_t i = 0; i < node.parts.size();) out += " " + run(node.parts, i);
    return out;
  }

  // The next parts of a sequence, as many as can be one terminal.
  std::string run(const std::vector<GbnfNode>& parts, size_t& at) {
    for (size_t end = std::min(parts.size(), at + kMaxPositions); longer_ && !whole() && end > at; --end) {
      if (end == at + 1 && parts[at].kind == Kind::Characters) break;
      longer_ = ++attempts_ < kMaxAttempts;
      const std::string regex = regex_run(&parts[at], &parts[0] + end);
      if (regex.empty() || barred_.contains(regex)) continue;
      if (auto first = Positions(rules_, finite_).first_of(&parts[at], &parts[0] + end)) {
        at = end;
        return terminal(regex, *first, true);
      }
    }
    return text(parts[at++]);
  }

  std::string terminal(const std::string& regex, const CharacterSet& first, bool longer) {
    terminals_.emplace(regex, Terminal{first, longer});
    return "/" + regex + "/";
  }

  // Empty: it is no regular expression, or a long one.
  std::string regex_run(const GbnfNode* begin, const GbnfNode* end) const {
    std::string out;
    for (const GbnfNode* p = begin; p != end; ++p) {
      const std::string part = regex(*p);
      if (part.empty()) return {};
      out += part;
      if (out.size() > kMaxRegex) return {};
    }
    return out;
  }
  std::string regex(const GbnfNode& node) const {
    switch (node.kind) {
      case Kind::Characters:
        return regex_of(node.set);
      case Kind::Token:
        return {};
      case Kind::Rule:
        return finite_[size_t(node.rule)] ? regex(rules_[size_t(node.rule)]) : "";
      case Kind::Repeat: {
        const std::string inner = node.most == 0 ? "" : regex(node.parts[0]);
        return inner.empty() ? "" : "(?:" + inner + ")" + times(node);
      }
      case Kind::Choice: {
        std::string out;
        for (const GbnfNode& part : node.parts) {
          const std::string one = regex(part);
          if (one.empty() || out.size() > kMaxRegex) return {};
          out += (out.empty() ? "" : "|") + one;
        }
        return "(?:" + out + ")";
      }
      case Kind::Sequence:
        break;
    }
    const std::string inner = regex_run(node.parts.data(), node.parts.data() + node.parts.size());
    return inner.empty() && node.parts.empty() ? "(?:)" : inner;
  }

  // Terminals that are longer than a character and begin like another are written by characters.
  bool bar_those_that_begin_alike() {
    const size_t before = barred_.size();
    for (const auto& [regex, one] : terminals_)
      for (const auto& [other_regex, other] : terminals_)
        if (one.longer && regex != other_regex && meet(one.first, other.first)) barred_.insert(regex);
    return barred_.size() > before;
  }

  // Whether a rule comes to an end without itself.
  bool finite(int rule) {
    int& state = seen_[size_t(rule)];  // 1: on the way, 2: yes, 3: no
    if (state != 0) return state == 2;
    state = 1;
    const bool yes = finite_node(rules_[size_t(rule)]);
    seen_[size_t(rule)] = yes ? 2 : 3;
    return yes;
  }
  bool finite_node(const GbnfNode& node) {
    if (node.kind == Kind::Rule) return finite(node.rule);
    bool all = node.kind != Kind::Token;
    for (const GbnfNode& part : node.parts) all &= finite_node(part);
    return all;
  }

  const GbnfRules& rules_;
  const int root_;
  std::vector<int> seen_;
  std::vector<bool> finite_;
  bool longer_ = true;  // terminals may be longer than a character
  int attempts_ = 0;
  std::map<std::string, Terminal> terminals_;
  std::set<std::string> barred_;
};

}  // namespace

std::string lark_of(const GbnfRules& rules, int root) { return Writer(rules, root).lark(); }

}  // namespace invar
