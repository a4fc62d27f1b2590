#include "engine/constraint.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "base/check.h"

namespace invar {

namespace {

constexpr int kMaxNewlines = 2;  // between a thought and what follows
constexpr int kMaxCut = 3;       // tokens that may complete a character before the end of a thought is forced

bool has_bit(std::span<const uint64_t> bits, Token t) {
  return size_t(t) / 64 < bits.size() && (bits[size_t(t) / 64] >> (t % 64) & 1) != 0;
}
void set_bit(std::span<uint64_t> bits, Token t) {
  if (size_t(t) / 64 < bits.size()) bits[size_t(t) / 64] |= uint64_t(1) << (t % 64);
}
void clear_bit(std::span<uint64_t> bits, Token t) {
  if (size_t(t) / 64 < bits.size()) bits[size_t(t) / 64] &= ~(uint64_t(1) << (t % 64));
}

bool only(std::string_view text, std::string_view of) { return text.find_first_not_of(of) == text.npos; }

// Whether bytes end inside a character.
bool cut_character(std::string_view bytes) {
  Utf8Stream stream;
  stream.push(bytes);
  return !stream.finish().empty();
}

}  // namespace

struct ConstraintMaker::Shared {
  const Tokenizer& tokenizer;
  AnswerFormat format;
  std::vector<Token> ends;
  WorkThread* masks;
  std::optional<Token> think_open = {};                    // where it is one token
  std::vector<Token> end_of_thought = {};                  // as a budget forces it
  std::vector<Token> end_after_newline = {};               // the same behind a newline
  std::vector<Token> newlines = {};                        // tokens of nothing else
  std::map<std::string, std::vector<Token>> holders = {};  // tokens that hold a whole marker

  std::vector<Token> tokens_with(const std::string& text) const {
    std::vector<Token> out;
    for (Token t = 0; t < tokenizer.size(); t++)
      if (tokenizer.piece(t).find(text) != std::string_view::npos) out.push_back(t);
    return out;
  }
};

namespace {

class AnswerConstraint : public Constraint {
 public:
  using Common = std::shared_ptr<const ConstraintMaker::Shared>;

  AnswerConstraint(Common common, AnswerRules rules) : s_(std::move(common)), rules_(std::move(rules)) {
    if (rules_.grammar) matcher_ = rules_.grammar->start();
    const bool open = rules_.thought == AnswerRules::Thought::Open && s_->format.thinks();
    at_.may_think =
        rules_.thought == AnswerRules::Thought::May && rules_.thought_budget != 0 && s_->think_open;
    at_.part = open ? Part::Thought : at_.may_think ? Part::Front : Part::Answer;
    if (open) check_budget();
    prepare();
  }
  ~AnswerConstraint() override { wait(); }

  void mask(std::span<uint64_t> allowed) override {
    wait();
    if (!at_.forced.empty()) return mask_only(allowed, at_.forced.front());
    if (at_.part == Part::Thought) return mask_thought(allowed);
    std::vector<uint64_t> before;
    if (at_.part == Part::Front) before.assign(allowed.begin(), allowed.end());
    if (matcher_) mask_grammar(allowed);
    if (at_.part == Part::Front && matcher_) {
      const auto also = [&](Token t) {
        if (has_bit(before, t)) set_bit(allowed, t);
      };
      // Newlines may lead to a thought or follow one.  Before an answer that has none they would be its text.
      if (at_.may_think && at_.newlines > 0) std::fill(allowed.begin(), allowed.end(), 0);
      if (at_.may_think) also(*s_->think_open);
      for (Token t : s_->newlines)
        if (at_.newlines + int(s_->tokenizer.piece(t).size()) <= kMaxNewlines) also(t);
    }
    for (const std::string& text : rules_.banned) mask_completions(allowed, text, {});
  }

  bool masks() const override {
    wait();
    return !at_.forced.empty() || matcher_ || !rules_.banned.empty();
  }

  bool accept(Token token) override {
    wait();
    const std::string_view piece = s_->tokenizer.piece(token);
    const bool more = step(token, piece);
    remember(piece);
    if (at_.part == Part::Thought) check_budget();
    if (more) prepare();
    return more;
  }

  // A thought does not end an answer: it is ended first.
  Token in_place_of(Token stop) override {
    wait();
    if (at_.part != Part::Thought) return stop;
    if (rules_.kept_on) rules_.kept_on->add();
    if (at_.forced.empty()) at_.forced = end_here();
    return at_.forced.front();
  }

  std::unique_ptr<Constraint> copy() const override {
    wait();
    return std::unique_ptr<Constraint>(new AnswerConstraint(*this));
  }

 private:
  enum class Part { Front, Thought, Answer };  // Front: an answer or a thought may begin
  struct Progress {
    Part part = Part::Answer;
    bool may_think = false;
    bool failed = false;
    int newlines = 0;  // at the front
    int64_t thought_tokens = 0;
    int waited = 0;  // for the end of a character
    std::vector<Token> forced;
    std::string tail;
    std::vector<uint64_t> words;  // the next mask, if ready
    bool ready = false;
  };

  AnswerConstraint(const AnswerConstraint& other) : s_(other.s_), rules_(other.rules_), at_(other.at_) {
    if (other.matcher_) matcher_ = other.matcher_->copy();
  }

  bool step(Token token, std::string_view piece) {
    if (at_.part == Part::Thought) {
      at_.thought_tokens++;
      if (!at_.forced.empty()) at_.forced.erase(at_.forced.begin());
      const std::string text = at_.tail + std::string(piece);
      const std::string_view close = s_->format.think_close;
      const size_t at = text.find(close);
      if (at == text.npos) return true;
      at_.newlines = 0;
      at_.part = Part::Front;
      at_.may_think = false;
      at_.tail.clear();
      return rest_of_front(std::string_view(text).substr(at + close.size()));
    }
    if (at_.part == Part::Front && !at_.forced.empty()) {  // newlines behind a forced end
      at_.forced.erase(at_.forced.begin());
      return rest_of_front(piece);
    }
    if (at_.part == Part::Front && at_.may_think && token == *s_->think_open) {
      at_.part = Part::Thought;
      return true;
    }
    if (matcher_ && !at_.failed) {
      const Result<bool> fits = matcher_->accept(token);
      if (fits && *fits) {
        at_.part = Part::Answer;
        return !matcher_->complete();
      }
      if (at_.part == Part::Front && fits && only(piece, "\n")) return rest_of_front(piece);
      at_.failed = true;  // the next mask is empty, and the request fails
      return true;
    }
    if (at_.part == Part::Front && !only(piece, " \t\r\n")) at_.part = Part::Answer;
    return true;
  }

  bool rest_of_front(std::string_view text) {
    at_.newlines += int(std::count(text.begin(), text.end(), '\n'));
    return true;
  }

  // The end of what was accepted, as far as a marker may begin in it.
  void remember(std::string_view piece) {
    constexpr size_t kLongest = 64;
    at_.tail += piece;
    if (at_.tail.size() > kLongest) at_.tail.erase(0, at_.tail.size() - kLongest);
  }

  void check_budget() {
    if (rules_.thought_budget < 0 || at_.thought_tokens < rules_.thought_budget || !at_.forced.empty())
      return;
    if (cut_character(at_.tail) && at_.waited++ < kMaxCut) return;
    at_.forced = end_here();
  }

  const std::vector<Token>& end_here() const {
    return at_.tail.ends_with('\n') ? s_->end_after_newline : s_->end_of_thought;
  }

  void mask_only(std::span<uint64_t> allowed, Token token) const {
    const bool was = has_bit(allowed, token);
    std::fill(allowed.begin(), allowed.end(), 0);
    if (was) set_bit(allowed, token);
  }

  void mask_thought(std::span<uint64_t> allowed) const {
    if (!matcher_) return;
    for (Token t : s_->ends) clear_bit(allowed, t);
    mask_completions(allowed, std::string(s_->format.think_close), " \t\r\n");
  }

  // Clears tokens with which `text` would be complete, but for those with only `fine` behind it.
  void mask_completions(std::span<uint64_t> allowed, const std::string& text,
                        std::optional<std::string_view> fine) const {
    const auto clear = [&](Token t, size_t end) {
      if (!fine || !only(s_->tokenizer.piece(t).substr(end), *fine)) clear_bit(allowed, t);
    };
    const auto holders = s_->holders.find(text);
    CHECK(holders != s_->holders.end());
    for (Token t : holders->second) clear(t, s_->tokenizer.piece(t).find(text) + text.size());
    for (size_t n = std::min(text.size() - 1, at_.tail.size()); n > 0; n--) {
      if (!std::string_view(at_.tail).ends_with(std::string_view(text).substr(0, n))) continue;
      const std::string_view rest = std::string_view(text).substr(n);
      for (Token t = 0; t < s_->tokenizer.size(); t++)
        if (s_->tokenizer.piece(t).starts_with(rest)) clear(t, rest.size());
    }
  }

  void mask_grammar(std::span<uint64_t> allowed) {
    if (!at_.ready) compute();
    for (size_t i = 0; i < allowed.size(); i++)
      allowed[i] &= i < at_.words.size() && !at_.failed ? at_.words[i] : 0;
  }

  void compute() {
    at_.words.assign((size_t(s_->tokenizer.size()) + 63) / 64, ~uint64_t(0));
    if (!at_.failed && !matcher_->mask(at_.words)) at_.failed = true;
    at_.ready = true;
  }

  // Begins the next mask.
  void prepare() {
    at_.ready = false;
    if (!matcher_ || at_.failed || at_.part == Part::Thought || !s_->masks) return;
    auto done = std::make_shared<std::promise<void>>();
    pending_ = done->get_future();
    s_->masks->post([this, done] {
      compute();
      done->set_value();
    });
  }

  void wait() const {
    if (pending_.valid()) pending_.get();
  }

  const Common s_;
  const AnswerRules rules_;
  std::unique_ptr<Matcher> matcher_;
  Progress at_;
  mutable std::future<void> pending_;  // the other thread is at the next mask
};

}  // namespace

Result<ConstraintMaker> ConstraintMaker::make(const Tokenizer& tokenizer, const AnswerFormat& format,
                                              std::span<const Token> ends, WorkThread* masks) {
  auto shared = std::make_shared<Shared>(Shared{tokenizer, format, {ends.begin(), ends.end()}, masks});
  if (format.thinks()) {
    const std::string close(format.think_close);
    const auto open = tokenizer.find(format.think_open);
    if (open && tokenizer.piece(*open) == format.think_open) shared->think_open = open;
    shared->end_of_thought = TRY(tokenizer.encode("\n" + close + "\n\n", AddedTokens::All));
    shared->end_after_newline = TRY(tokenizer.encode(close + "\n\n", AddedTokens::All));
    shared->holders[close] = shared->tokens_with(close);
  }
  for (Token t = 0; t < tokenizer.size(); t++) {
    const std::string_view piece = tokenizer.piece(t);
    if (!piece.empty() && piece.size() <= kMaxNewlines && only(piece, "\n")) shared->newlines.push_back(t);
  }
  for (const std::string_view text : {format.call_begin, format.tags.name_begin})
    if (!text.empty()) shared->holders[std::string(text)] = shared->tokens_with(std::string(text));
  ConstraintMaker out;
  out.shared_ = std::move(shared);
  return out;
}

Result<std::unique_ptr<Constraint>> ConstraintMaker::constraint(AnswerRules rules) const {
  for (const std::string& text : rules.banned)
    if (!shared_->holders.contains(text))
      return Error{Code::BadRequest, "banned", "expected the beginning of a call, found '" + text + "'"};
  return std::unique_ptr<Constraint>(std::make_unique<AnswerConstraint>(shared_, std::move(rules)));
}

}  // namespace invar
