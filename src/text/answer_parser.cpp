#include "text/answer_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/call_reader.h"
#include "text/stop_strings.h"

namespace invar {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

size_t skip_space(std::string_view text) { return std::min(text.find_first_not_of(kSpace), text.size()); }

size_t trimmed_size(std::string_view text) { return text.find_last_not_of(kSpace) + 1; }

}  // namespace

struct AnswerParser::State : CallSink {
  // Open: at a place where a thought may begin or end, nothing was said since.
  enum class Part { Open, Thought, Text, Call, Stopped };

  State(const Tokenizer& tokenizer, const AnswerFormat& f, const Json& tools_, AnswerOptions options_)
      : tokenizer(tokenizer), format(f), tools(tools_), options(std::move(options_)), stops(options.stops) {
    has_calls = format.has_calls() && !tools.empty();
    part = !format.thinks() ? Part::Text : options.starts_in_thought ? Part::Thought : Part::Open;
  }

  // Control tokens are text only if they are markers.
  bool is_marker(std::string_view piece) const {
    const CallTags& t = format.tags;
    const auto is = [&](std::string_view marker) { return !marker.empty() && piece == marker; };
    if (is(format.think_open) || is(format.think_close)) return true;
    if (!has_calls) return false;
    return is(format.call_begin) || is(format.call_end) || is(t.name_begin) || is(t.call_close) ||
           is(t.key_begin) || is(t.key_end) || is(t.value_begin) || is(t.value_end);
  }

  void add(AnswerPiece::Kind kind, std::string_view text) {
    if (text.empty() && kind != AnswerPiece::Kind::CallEnd) return;
    const bool call = kind != AnswerPiece::Kind::Thought && kind != AnswerPiece::Kind::Text;
    out->push_back({kind, call ? call_index : -1, std::string(text)});
  }

  void begin_call(std::string_view name) override {
    show(stops.finish());
    spaces.clear();
    call_index++;
    add(AnswerPiece::Kind::CallBegin, name);
  }
  void arguments(std::string_view json) override { add(AnswerPiece::Kind::CallArguments, json); }
  void end_call() override {
    add(AnswerPiece::Kind::CallEnd, {});
    complete_calls++;
  }

  // Text, which may hold a stop string.
  void say(std::string_view text) {
    if (drop_space) text.remove_prefix(skip_space(text));
    if (text.empty()) return;
    drop_space = at_front = false;
    show(stops.push(text));
    if (!stops.matched()) return;
    if (options.keep_stop) show(*stops.matched());
    add(AnswerPiece::Kind::Text, std::exchange(spaces, {}));
    held.clear();
    part = Part::Stopped;
  }

  // White space waits: before a call it is dropped.
  void show(std::string_view text) {
    spaces += text;
    const size_t size = has_calls ? trimmed_size(spaces) : spaces.size();
    add(AnswerPiece::Kind::Text, std::string_view(spaces).substr(0, size));
    spaces.erase(0, size);
  }

  void run(TextEnd end) {
    bool more = true;
    while (more) {
      switch (part) {
        case Part::Open:
          more = run_open(end);
          break;
        case Part::Thought:
          more = run_thought(end);
          break;
        case Part::Text:
          more = run_text(end);
          break;
        case Part::Call:
          more = run_call(end);
          break;
        case Part::Stopped:
          more = false;
      }
    }
  }

  // Each of these is true if another part begins with what is held.
  bool run_open(TextEnd end) {
    const size_t at = skip_space(held);
    if (at == held.size() && end == TextEnd::No) {
      open_tokens = 0;
      return false;
    }
    const Match open = match_at(held, at, format.think_open), close = match_at(held, at, format.think_close);
    if (at < held.size() && (open == Match::Full || close == Match::Full)) {
      held.erase(0, at + (open == Match::Full ? format.think_open : format.think_close).size());
      if (open == Match::Full) part = Part::Thought, thought_tokens += open_tokens;
      else drop_space = true;  // a stray one
      open_tokens = 0;
      thought_begun = false;
      return true;
    }
    if (end == TextEnd::No && (open == Match::Partial || close == Match::Partial)) return false;
    part = Part::Text;
    return true;
  }

  bool run_thought(TextEnd end) {
    if (!thought_begun) {
      held.erase(0, skip_space(held));
      Match again;  // though the prompt has it already
      while ((again = match_at(held, 0, format.think_open)) == Match::Full) {
        held.erase(0, format.think_open.size());
        held.erase(0, skip_space(held));
      }
      if (again == Match::Partial && end == TextEnd::No) return false;
      thought_begun = !held.empty();
    }
    const size_t close = held.find(format.think_close);
    if (close == held.npos && options.calls_in_thought && has_calls && end == TextEnd::Whole) {
      if (const size_t call = held.find(format.call_begin); call != held.npos) {
        think(call);
        part = Part::Text;
        return true;
      }
    }
    if (close != held.npos) {
      think(trimmed_size(std::string_view(held).substr(0, close)));
      held.erase(0, skip_space(held) + format.think_close.size());
      drop_space = true;
      part = Part::Open;
      return true;
    }
    if (end != TextEnd::No) {
      think(held.size());
      return false;
    }
    size_t size = held.size();
    for (size_t at = held.find('<'); at != held.npos && size == held.size(); at = held.find('<', at + 1)) {
      const bool call =
          options.calls_in_thought && has_calls && match_at(held, at, format.call_begin) != Match::No;
      if (call || match_at(held, at, format.think_close) == Match::Partial) size = at;
    }
    think(trimmed_size(std::string_view(held).substr(0, size)));
    return false;
  }

  void think(size_t size) {
    add(AnswerPiece::Kind::Thought, std::string_view(held).substr(0, size));
    held.erase(0, size);
  }

  bool run_text(TextEnd end) {
    if (!has_calls) {
      say(std::exchange(held, {}));
      return false;
    }
    if (const size_t at = skip_space(held); at_front && json_bare()) {
      if (at == held.size() && end == TextEnd::No) return false;
      if (at < held.size() && held[at] == '{') return start_call(0, "", true);
    }
    for (size_t at = held.find('<'); at != held.npos; at = held.find('<', at + 1)) {
      const Match call = match_at(held, at, format.call_begin);
      const bool tag = format.bare && !inert && !format.tags.name_begin.empty();
      const Match name = tag ? match_at(held, at, format.tags.name_begin) : Match::No;
      if (call == Match::Full) return start_call(at, format.call_begin, false);
      if (name == Match::Full) return start_call(at, "", true);
      const Match close = inert ? match_at(held, at, format.call_end) : Match::No;
      if (close == Match::Full) inert = false;
      const bool open = call == Match::Partial || name == Match::Partial || close == Match::Partial;
      if (!open || end != TextEnd::No) continue;
      say_held(at);
      return false;
    }
    say_held(held.size());
    return false;
  }

  bool json_bare() const { return format.bare && format.calls == AnswerFormat::Calls::Json; }

  void say_held(size_t size) {
    const std::string text = held.substr(0, size);
    held.erase(0, size);
    say(text);
  }

  bool start_call(size_t at, std::string_view begin, bool is_bare) {
    say_held(at);
    if (part == Part::Stopped) return false;
    held.erase(0, begin.size());
    marker = begin;
    bare = is_bare;
    reader = make_call_reader(format, tools, bare);
    part = Part::Call;
    return true;
  }

  bool run_call(TextEnd end) {
    const CallReader::Outcome outcome = reader->read(held, end, *this);
    if (outcome == CallReader::Outcome::More) return false;
    reader.reset();
    part = Part::Text;
    if (outcome == CallReader::Outcome::Done) {
      drop_space = at_front = true;
      spaces.clear();
      inert = false;
      return true;
    }
    // The text of what is no call is no other call, up to its end.
    inert = !bare;
    if (bare) marker = held.substr(0, std::max<size_t>(1, format.tags.name_begin.size()));
    held.erase(0, bare ? marker.size() : 0);
    say(marker);
    return part != Part::Stopped;
  }

  const Tokenizer& tokenizer;
  const AnswerFormat format;
  const ToolTable tools;
  const AnswerOptions options;
  StopStrings stops;
  Utf8Stream characters;
  std::vector<AnswerPiece>* out = nullptr;
  Part part;
  std::string held;    // not decided yet
  std::string spaces;  // said, and not given out yet
  bool has_calls = false;
  bool thought_begun = false;
  bool drop_space = false;  // white space behind a thought or call is not text
  bool at_front = true;     // nothing was said since the beginning, the thought or a call
  bool inert = false;
  std::unique_ptr<CallReader> reader;
  std::string marker;  // that began the call
  bool bare = false;
  int call_index = -1, complete_calls = 0, thought_tokens = 0;
  int open_tokens = 0;  // that may be the marker of a thought
};

AnswerParser::AnswerParser(const Tokenizer& tokenizer, const AnswerFormat& format, const Json& tools,
                           AnswerOptions options)
    : state_(std::make_unique<State>(tokenizer, format, tools, std::move(options))) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

void AnswerParser::push(Token token, std::vector<AnswerPiece>& out) {
  if (in_thought()) state_->thought_tokens++;
  else if (state_->part == State::Part::Open) state_->open_tokens++;
  const std::string_view piece = state_->tokenizer.piece(token);
  if (state_->tokenizer.type(token) == TokenType::Control && !state_->is_marker(piece)) return;
  push(piece, out);
}

void AnswerParser::push(std::string_view bytes, std::vector<AnswerPiece>& out) {
  if (state_->part == State::Part::Stopped) return;
  state_->out = &out;
  state_->held += state_->characters.push(bytes);
  state_->run(TextEnd::No);
}

void AnswerParser::finish(bool cut, std::vector<AnswerPiece>& out) {
  State& s = *state_;
  if (s.part == State::Part::Stopped) return;
  s.out = &out;
  s.held += s.characters.finish();
  s.run(cut ? TextEnd::Cut : TextEnd::Whole);
  if (s.part == State::Part::Stopped) return;
  s.show(s.stops.finish());
  s.add(AnswerPiece::Kind::Text, std::exchange(s.spaces, {}));
  s.part = State::Part::Stopped;
}

bool AnswerParser::in_thought() const { return state_->part == State::Part::Thought; }
int AnswerParser::thought_tokens() const { return state_->thought_tokens; }
int AnswerParser::calls() const { return state_->complete_calls; }
const std::optional<std::string>& AnswerParser::stop() const { return state_->stops.matched(); }

std::vector<AnswerPiece> merged(std::vector<AnswerPiece> pieces) {
  std::vector<AnswerPiece> out;
  for (AnswerPiece& piece : pieces) {
    if (!out.empty() && out.back().kind == piece.kind && out.back().call == piece.call) {
      out.back().text += piece.text;
    } else {
      out.push_back(std::move(piece));
    }
  }
  return out;
}

}  // namespace invar
