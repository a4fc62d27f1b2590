#include "text/call_reader.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "text/json_scanner.h"

namespace invar {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kMaxKey = 1024;

size_t skip_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = skip_space(text, 0);
  const size_t end = text.find_last_not_of(kSpace);
  return begin == text.size() ? std::string_view() : text.substr(begin, end + 1 - begin);
}

// Calls whose parts stand between tags.
class TagReader : public CallReader {
 public:
  TagReader(const AnswerFormat& format, const ToolTable& tools, bool bare)
      : f_(format), t_(format.tags), tools_(tools), bare_(bare) {}

  Outcome read(std::string& text, TextEnd end, CallSink& sink) override {
    for (;;) {
      const Part part = part_;
      const Outcome outcome = part == Part::Name      ? read_name(text, end, sink)
                              : part == Part::Between ? read_between(text, end, sink)
                              : part == Part::Value   ? read_value(text, end, sink)
                                                      : read_close(text, end);
      if (outcome != Outcome::More || part_ == part) return outcome;
    }
  }

 private:
  enum class Part { Name, Between, Value, Close };
  struct Name {
    Match match;
    size_t begin = 0, end = 0,
           next = 0;  // the name, and the first character that is not white space behind it
  };

  // A name tag, behind white space, with the name of a tool.
  Name name_at(std::string_view text, size_t at) const {
    at = skip_space(text, at);
    if (const Match m = match_at(text, at, t_.name_begin); m != Match::Full) return {m};
    const size_t begin = at + t_.name_begin.size();
    const size_t end = std::min(text.find_first_of("> \t\r\n<", begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    if (end == text.size()) return {tools_.begins(name) ? Match::Partial : Match::No};
    if (!tools_.known(name)) return {Match::No};
    if (!t_.name_end.empty() && match_at(text, end, t_.name_end) != Match::Full) return {Match::No};
    return {Match::Full, begin, end, skip_space(text, end + t_.name_end.size())};
  }

  // A name that ends with the answer.
  Name last_name(std::string_view text) const {
    const std::string_view name = trimmed(text);
    if (!t_.name_end.empty() || !tools_.known(name)) return {Match::No};
    const size_t begin = skip_space(text, 0);
    return {Match::Full, begin, begin + name.size(), text.size()};
  }

  // One of the tags that may follow a value or a name.
  Match part_at(std::string_view text, size_t at) const {
    Match best = Match::No;
    for (std::string_view tag : {t_.key_begin, t_.call_close, f_.call_end}) {
      if (!tag.empty()) best = std::max(best, match_at(text, at, tag));
    }
    return best;
  }

  Outcome read_name(std::string& text, TextEnd end, CallSink& sink) {
    Name name = name_at(text, 0);
    if (name.match == Match::Partial && end == TextEnd::Whole) name = last_name(text);
    if (name.match == Match::No) return Outcome::NoCall;
    const Match next = name.match == Match::Partial ? Match::Partial
                       : name.next == text.size()   ? Match::Partial
                                                    : part_at(text, name.next);
    if (next == Match::No) return Outcome::NoCall;
    if (next == Match::Partial && end == TextEnd::No) return Outcome::More;
    if (next == Match::Partial && end == TextEnd::Cut) return drop(text);
    const bool ends = name.match == Match::Full && name.next == text.size() && !bare_;
    if (next == Match::Partial && !ends) return Outcome::NoCall;
    tool_ = text.substr(name.begin, name.end - name.begin);
    sink.begin_call(tool_);
    text.erase(0, name.next);
    part_ = Part::Between;
    return Outcome::More;
  }

  // What the model writes between parameters counts only if it is a tag.
  Outcome read_between(std::string& text, TextEnd end, CallSink& sink) {
    const std::array<std::string_view, 5> tags = {t_.key_begin, t_.value_end, t_.call_close, f_.call_end,
                                                  f_.call_begin};
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
      for (size_t i = 0; i < tags.size(); i++) {
        const Match m = tags[i].empty() ? Match::No : match_at(text, at, tags[i]);
        if (m == Match::No) continue;
        if (m == Match::Partial) {
          if (end != TextEnd::No) continue;
          text.erase(0, at);
          return Outcome::More;
        }
        if (i == 0) {
          bool skipped = false;
          text.erase(0, at);
          if (read_key(text, skipped)) return Outcome::More;
          if (!skipped && end == TextEnd::No) return Outcome::More;
          if (!skipped) return finish(text, end, sink);
          at = 0;
        } else if (i > 1) {
          end_call(sink);
          text.erase(0, i == 4 ? at : at + tags[i].size());
          part_ = Part::Close;
          return i == 2 ? Outcome::More : Outcome::Done;
        }
        break;
      }
    }
    if (end != TextEnd::No) return finish(text, end, sink);
    text.clear();
    return Outcome::More;
  }

  // At `key_begin`.  True: a value begins.  `skipped`: it is no key.
  bool read_key(std::string& text, bool& skipped) {
    const size_t begin = t_.key_begin.size();
    const size_t end = text.find(t_.key_end, begin);
    const size_t stop = t_.key_end == ">" ? text.find_first_of("\n<", begin) : text.find(f_.call_end, begin);
    skipped = stop < end || std::min(end, text.size()) > begin + kMaxKey;
    if (skipped || end == text.npos) return false;
    size_t value = end + t_.key_end.size();
    if (!t_.value_begin.empty()) {
      value = skip_space(text, value);
      const Match m = match_at(text, value, t_.value_begin);
      skipped = m == Match::No;
      if (m != Match::Full) return false;
      value += t_.value_begin.size();
    }
    key_ = trimmed(std::string_view(text).substr(begin, end - begin));
    text.erase(0, value);
    types_ = tools_.types(tool_, key_);
    ignored_ = std::find(keys_.begin(), keys_.end(), key_) != keys_.end();
    begun_ = false;
    at_start_ = t_.newlines;
    after_newline_ = false;
    scanned_ = 0;
    closer_ = std::string::npos;
    part_ = Part::Value;
    return true;
  }

  Outcome read_value(std::string& text, TextEnd end, CallSink& sink) {
    if (at_start_ && !text.empty()) {
      after_newline_ = text[0] == '\n';
      if (after_newline_) text.erase(0, 1);
      at_start_ = false;
    }
    size_t hold = text.npos;  // where a tag may begin that is not whole yet
    size_t at = text.find('<', scanned_);
    for (; at != text.npos && hold == text.npos; at = text.find('<', at + 1)) {
      scanned_ = at;
      const Match ends = value_ends(text, at, end);
      if (ends == Match::Full) return end_value(text, at, t_.value_end.size(), sink);
      size_t close = 0;
      const Match next = next_call(text, at, close);
      if (next == Match::Full) return end_value(text, close, 0, sink);
      const bool open =
          ends == Match::Partial || next == Match::Partial || closes(text, at) == Match::Partial;
      if (open && end == TextEnd::No) hold = at;
      if (closer_ == text.npos && closes(text, at) == Match::Full) closer_ = at;
    }
    if (end == TextEnd::Whole) {
      size_t close = t_.call_close.empty() ? text.npos : text.rfind(t_.call_close);
      if (close == text.npos) close = text.rfind(f_.call_end);
      return end_value(text, std::min(close, text.size()), 0, sink);
    }
    if (end == TextEnd::Cut) return drop(text);
    scanned_ = hold == text.npos ? text.size() : hold;
    stream(text, std::min({hold, closer_, text.size()}), sink);
    return Outcome::More;
  }

  // Whether the tag at `at` ends the value.  One that does not stand on a line of its own does if another
  // part of the call follows; else it is payload.
  Match value_ends(std::string_view text, size_t at, TextEnd end) const {
    const Match m = match_at(text, at, t_.value_end);
    if (m != Match::Full) return m;
    if (t_.newlines && (at > 0 ? text[at - 1] == '\n' : after_newline_)) return m;
    const size_t next = skip_space(text, at + t_.value_end.size());
    if (next == text.size()) return end == TextEnd::No ? Match::Partial : Match::Full;
    return std::max(part_at(text, next), match_at(text, next, f_.call_begin));
  }

  Match closes(std::string_view text, size_t at) const {
    const Match close = t_.call_close.empty() ? Match::No : match_at(text, at, t_.call_close);
    return std::max(close, match_at(text, at, f_.call_end));
  }

  // A next call right behind the end of this one, whose value was not closed: `close` is where that ended.
  Match next_call(std::string_view text, size_t at, size_t& close) const {
    if (closer_ == text.npos || match_at(text, at, f_.call_begin) == Match::No) return Match::No;
    size_t back = at;
    for (std::string_view tag : {f_.call_end, t_.call_close}) {
      if (tag.empty()) continue;
      const std::string_view before = text.substr(0, text.find_last_not_of(kSpace, back - 1) + 1);
      if (back == 0 || !before.ends_with(tag)) return Match::No;
      back = before.size() - tag.size();
    }
    close = back;
    if (match_at(text, at, f_.call_begin) == Match::Partial) return Match::Partial;
    return name_at(text, at + f_.call_begin.size()).match;
  }

  // The value is the text before `at`; goes on `size` behind it.
  Outcome end_value(std::string& text, size_t at, size_t size, CallSink& sink) {
    std::string_view value = std::string_view(text).substr(0, at);
    if (t_.newlines && value.ends_with('\n')) value.remove_suffix(1);
    if (!ignored_) {
      if (types_ == kString) {
        begin_string(sink);
        sink.arguments(json_escaped(value) + '"');
      } else {
        sink.arguments(key_json() + typed_json(value, types_));
      }
      keys_.push_back(key_);
    }
    text.erase(0, at + size);
    part_ = Part::Between;
    return Outcome::More;
  }

  void stream(std::string& text, size_t limit, CallSink& sink) {
    if (ignored_ || types_ != kString) return;
    if (t_.newlines && limit > 0 && text[limit - 1] == '\n') limit--;
    if (limit == 0) return;
    begin_string(sink);
    sink.arguments(json_escaped(std::string_view(text).substr(0, limit)));
    text.erase(0, limit);
    scanned_ -= std::min(scanned_, limit);
    if (closer_ != std::string::npos) closer_ -= limit;
    after_newline_ = false;
  }

  void begin_string(CallSink& sink) {
    if (!begun_) sink.arguments(key_json() + '"');
    begun_ = true;
  }

  std::string key_json() const {
    std::string out = keys_.empty() ? "{\"" : ",\"";
    out += json_escaped(key_);
    return out + "\":";
  }

  void end_call(CallSink& sink) {
    sink.arguments(keys_.empty() ? "{}" : "}");
    sink.end_call();
  }

  Outcome finish(std::string& text, TextEnd end, CallSink& sink) {
    if (end == TextEnd::Whole) end_call(sink);
    return drop(text);
  }

  Outcome drop(std::string& text) {
    text.clear();
    return Outcome::Done;
  }

  // Behind `call_close`.
  Outcome read_close(std::string& text, TextEnd end) {
    const size_t at = skip_space(text, 0);
    const Match m = at == text.size() ? Match::Partial : match_at(text, at, f_.call_end);
    if (m == Match::Partial && end == TextEnd::No) return Outcome::More;
    if (m == Match::Full) text.erase(0, at + f_.call_end.size());
    return Outcome::Done;
  }

  const AnswerFormat& f_;
  const CallTags& t_;
  const ToolTable& tools_;
  const bool bare_;
  Part part_ = Part::Name;
  std::string tool_, key_;
  std::vector<std::string> keys_;  // given out
  unsigned types_ = 0;
  bool ignored_ = false;        // the key came before
  bool begun_ = false;          // its key and quote are given out
  bool at_start_ = false;       // the newline before the value may come
  bool after_newline_ = false;  // nothing stands between it and the text
  size_t scanned_ = 0;
  size_t closer_ = std::string::npos;  // the first end of the call, which may be payload
};

// Calls as one object, {"name": ..., "arguments": {...}}.
class JsonReader : public CallReader {
 public:
  JsonReader(const AnswerFormat& format, const ToolTable& tools, bool bare)
      : f_(format), tools_(tools), bare_(bare) {}

  Outcome read(std::string& text, TextEnd end, CallSink& sink) override {
    size_t at = 0;
    Outcome outcome = Outcome::More;
    while (outcome == Outcome::More && at < text.size() && part_ != Part::After) {
      outcome = take(text, at, sink);
    }
    if (begun_) {
      text.erase(0, at);
      raw_.clear();
    } else {
      raw_.append(text, 0, at);
      text.erase(0, at);
    }
    if (outcome == Outcome::NoCall) return refute(text);
    if (outcome == Outcome::Done) return outcome;
    if (part_ == Part::After) return read_after(text, end);
    if (end == TextEnd::No) return Outcome::More;
    if (!begun_ && (bare_ || end == TextEnd::Whole)) return refute(text);
    if (end == TextEnd::Whole && !ended_) close_broken(sink);
    text.clear();
    return Outcome::Done;
  }

 private:
  enum class Part { Open, Key, Colon, Value, Comma, After };
  enum class Role { Name, Arguments, Other };

  Outcome take(const std::string& text, size_t& at, CallSink& sink) {
    if (part_ == Part::Value) return take_value(text, at, sink);
    if (part_ == Part::Key && in_key_) return take_key(text, at);
    const char c = text[at];
    if (kSpace.find(c) != kSpace.npos) {
      at++;
      return Outcome::More;
    }
    const bool closes = c == '}' && (part_ == Part::Key || part_ == Part::Comma);
    if (closes) {
      at++;
      return end_object(sink);
    }
    switch (part_) {
      case Part::Open:
        if (c != '{') return Outcome::NoCall;
        part_ = Part::Key;
        break;
      case Part::Key:
        if (c != '"') return broken();
        scan_ = JsonScanner();
        value_.clear();
        in_key_ = true;
        return Outcome::More;
      case Part::Colon:
        if (c != ':') return broken();
        part_ = Part::Value;
        scan_ = JsonScanner();
        value_.clear();
        object_ = false;
        break;
      default:
        if (c != ',') return broken();
        part_ = Part::Key;
    }
    at++;
    return Outcome::More;
  }

  Outcome take_key(const std::string& text, size_t& at) {
    size_t used = 0;
    const auto state = scan_.feed(std::string_view(text).substr(at), used, value_);
    at += used;
    if (state == JsonScanner::State::Broken) return broken();
    if (state == JsonScanner::State::More) return Outcome::More;
    in_key_ = false;
    const bool arguments = value_ == "\"arguments\"" || value_ == "\"parameters\"";
    role_ = value_ == "\"name\"" ? Role::Name : arguments && !ended_ ? Role::Arguments : Role::Other;
    if (role_ == Role::Other && bare_ && value_ != "\"type\"" && value_ != "\"id\"") return broken();
    part_ = Part::Colon;
    return Outcome::More;
  }

  Outcome take_value(const std::string& text, size_t& at, CallSink& sink) {
    size_t used = 0;
    const auto state = scan_.feed(std::string_view(text).substr(at), used, value_);
    at += used;
    object_ = object_ || value_.starts_with('{');
    const bool streams = role_ == Role::Arguments && known() && object_;
    if (streams && !value_.empty()) {
      begin(sink);
      sink.arguments(std::exchange(value_, {}));
    }
    if (state == JsonScanner::State::Broken) {
      if (!begun_) return Outcome::NoCall;
      if (!ended_) close_broken(sink);
      part_ = Part::After;
      return f_.call_end.empty() ? Outcome::Done : Outcome::More;
    }
    if (state == JsonScanner::State::More) return Outcome::More;
    part_ = Part::Comma;
    if (role_ == Role::Name && !begun_) {
      const auto name = parse_ordered_json(value_, "name");
      if (!name || !name->is_string()) return Outcome::NoCall;
      name_ = name->get<std::string>();
      if (!tools_.known(name_)) return Outcome::NoCall;
      if (!arguments_.empty()) end_arguments(sink);
    } else if (role_ == Role::Arguments) {
      if (!streams) {
        arguments_ = object_text(value_);
        if (arguments_.empty()) return Outcome::NoCall;
      }
      if (known()) end_arguments(sink);
    }
    return Outcome::More;
  }

  // An object, no value at all, or an object in a string.
  static std::string object_text(const std::string& value) {
    if (value == "null") return "{}";
    if (value.starts_with('{')) return value;
    const auto text = parse_ordered_json(value, "arguments");
    if (!text || !text->is_string()) return {};
    const auto inner = parse_ordered_json(text->get<std::string>(), "arguments");
    return inner && inner->is_object() ? json_text(*inner) : std::string();
  }

  bool known() const { return !name_.empty(); }

  void begin(CallSink& sink) {
    if (!begun_) sink.begin_call(name_);
    begun_ = true;
  }

  void end_arguments(CallSink& sink) {
    begin(sink);
    if (!arguments_.empty()) sink.arguments(arguments_);
    sink.end_call();
    ended_ = true;
  }

  Outcome end_object(CallSink& sink) {
    if (!ended_ && !known()) return Outcome::NoCall;
    if (!ended_) {
      arguments_ = arguments_.empty() ? "{}" : arguments_;
      end_arguments(sink);
    }
    part_ = Part::After;
    return f_.call_end.empty() ? Outcome::Done : Outcome::More;
  }

  Outcome broken() {
    if (!begun_) return Outcome::NoCall;
    part_ = Part::After;
    return f_.call_end.empty() ? Outcome::Done : Outcome::More;
  }

  void close_broken(CallSink& sink) {
    std::string rest;
    scan_.repair(rest);
    sink.arguments(rest);
    sink.end_call();
    ended_ = true;
  }

  // What stands before the end tag, or before another call, is no part of anything.
  Outcome read_after(std::string& text, TextEnd end) {
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
      const Match close = match_at(text, at, f_.call_end), next = match_at(text, at, f_.call_begin);
      if (close == Match::Full || next == Match::Full) {
        text.erase(0, close == Match::Full ? at + f_.call_end.size() : at);
        return Outcome::Done;
      }
      if (end == TextEnd::No && (close == Match::Partial || next == Match::Partial)) {
        text.erase(0, at);
        return Outcome::More;
      }
    }
    text.clear();
    return end == TextEnd::No ? Outcome::More : Outcome::Done;
  }

  Outcome refute(std::string& text) {
    text.insert(0, raw_);
    return Outcome::NoCall;
  }

  const AnswerFormat& f_;
  const ToolTable& tools_;
  const bool bare_;
  Part part_ = Part::Open;
  Role role_ = Role::Other;
  JsonScanner scan_;
  bool in_key_ = false;
  bool object_ = false;  // the value is one
  std::string raw_;      // what was read before the call was certain
  std::string value_;    // of the key, as far as it is not given out
  std::string name_, arguments_;
  bool begun_ = false, ended_ = false;
};

}  // namespace

Match match_at(std::string_view text, size_t at, std::string_view marker) {
  const std::string_view there = text.substr(std::min(at, text.size()), marker.size());
  if (!marker.starts_with(there)) return Match::No;
  return there.size() == marker.size() ? Match::Full : Match::Partial;
}

std::unique_ptr<CallReader> make_call_reader(const AnswerFormat& format, const ToolTable& tools, bool bare) {
  if (format.calls == AnswerFormat::Calls::Tags) return std::make_unique<TagReader>(format, tools, bare);
  return std::make_unique<JsonReader>(format, tools, bare);
}

}  // namespace invar
