#include "engine/scripted.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "text/json.h"

namespace invar {
namespace {

// --- the file ---

Error expected(const std::string& where, const std::string& what) {
  return {Code::BadFile, where, "expected " + what};
}

Result<std::vector<std::string>> texts_of(const Json& value, const std::string& where) {
  if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
  std::vector<std::string> texts;
  if (!value.is_array()) return expected(where, "a text or a list of texts");
  for (const Json& one : value) {
    if (!one.is_string()) return expected(where, "a text or a list of texts");
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

Result<int64_t> number_of(const Json& value, int64_t low, int64_t high, const std::string& where) {
  if (value.is_number_integer() && value >= low && value <= high) return value.get<int64_t>();
  return expected(where, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
}

Result<std::vector<Token>> tokens_of(const Json& value, const Tokenizer& tokenizer,
                                     const std::string& where) {
  std::vector<Token> tokens;
  if (!value.is_array()) return expected(where, "a list of token ids");
  for (const Json& one : value) tokens.push_back(Token(TRY(number_of(one, 0, tokenizer.size() - 1, where))));
  return tokens;
}

Result<Finish> end_of(const Json& value, const std::string& where) {
  if (value == "eos") return Finish::Stop;
  if (value == "length") return Finish::Length;
  if (value == "fail") return Finish::Failed;
  return expected(where, "eos, length or fail");
}

constexpr int64_t kMostMs = 3600 * 1000, kMostRepeats = 1 << 20;
constexpr size_t kMostTokens = 1 << 24;

Status read_key(ScriptLine& line, int64_t& repeat, const std::string& key, const Json& value,
                const Tokenizer& tokenizer, const std::string& where) {
  if (key == "match") {
    line.match = TRY(texts_of(value, where));
  } else if (key == "last") {
    line.last = TRY(texts_of(value, where));
  } else if (key == "ends") {
    if (!value.is_string()) return expected(where, "a text");
    line.ends = value.get<std::string>();
  } else if (key == "times") {
    line.times = TRY(number_of(value, 0, INT32_MAX, where));
  } else if (key == "text") {
    if (!value.is_string()) return expected(where, "a text");
    line.tokens = TRY(tokenizer.encode(value.get<std::string>(), AddedTokens::All));
  } else if (key == "tokens") {
    line.tokens = TRY(tokens_of(value, tokenizer, where));
  } else if (key == "repeat") {
    repeat = TRY(number_of(value, 0, kMostRepeats, where));
  } else if (key == "end") {
    line.end = TRY(end_of(value, where));
  } else if (key == "prompt_ms") {
    line.prompt_s = double(TRY(number_of(value, 0, kMostMs, where))) / 1e3;
  } else if (key == "delay_ms") {
    line.delay_s = double(TRY(number_of(value, 0, kMostMs, where))) / 1e3;
  } else if (key == "chunk") {
    line.chunk.clear();
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& one : list) line.chunk.push_back(int(TRY(number_of(one, 1, 1 << 20, where))));
    if (line.chunk.empty()) return expected(where, "a number or a list of numbers");
  } else {
    return expected(where, "a key of the script, found '" + key + "'");
  }
  return Ok{};
}

Result<ScriptLine> parse_line(std::string_view text, const Tokenizer& tokenizer, const std::string& where) {
  const Json json = TRY(parse_ordered_json(text, where));
  if (!json.is_object()) return expected(where, "an object");
  if (json.contains("text") + json.contains("tokens") != 1) return expected(where, "either text or tokens");
  ScriptLine line;
  int64_t repeat = 1;
  for (const auto& [key, value] : json.items())
    TRY(read_key(line, repeat, key, value, tokenizer, where + "." + key));
  const std::vector<Token> once = line.tokens;
  if (once.size() * size_t(repeat) > kMostTokens)
    return expected(where, "at most " + std::to_string(kMostTokens) + " tokens");
  line.tokens.clear();
  for (int64_t i = 0; i < repeat; ++i) line.tokens.insert(line.tokens.end(), once.begin(), once.end());
  return line;
}

// --- what a request is compared with ---

std::string raw_text(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  std::string text;
  for (Token token : tokens) text += tokenizer.piece(token);
  return text;
}

bool all_in(const std::vector<std::string>& words, std::string_view text) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != text.npos; });
}

int64_t common(const std::vector<Token>& a, const std::vector<Token>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

Result<std::vector<ScriptLine>> parse_script(std::string_view text, const Tokenizer& tokenizer,
                                             const std::string& where) {
  std::vector<ScriptLine> script;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    script.push_back(TRY(parse_line(line, tokenizer, where + ":" + std::to_string(number))));
  }
  if (script.empty()) return expected(where, "at least one line");
  return script;
}

// A request, with all of its choices: they are told the same, but each has a constraint of its own.
struct Scripted::Active {
  struct Choice {
    std::unique_ptr<Constraint> constraint;
    size_t at = 0, event = 0;  // next token of the line; events so far
    bool ended = false;
    TokenUsage usage;
  };
  uint64_t id = 0;
  Request request;
  const ScriptLine* line = nullptr;  // null: it waits
  std::vector<Choice> choices;
  double submitted_at = 0, began_at = 0, due = 0;
  std::vector<Token> said;  // by the first choice
  bool told_prompt = false;

  bool ended() const {
    return std::all_of(choices.begin(), choices.end(), [](const Choice& c) { return c.ended; });
  }
};

Scripted::Scripted(const Chat& chat, std::vector<ScriptLine> script, const ScriptedOptions& options)
    : chat_(chat), script_(std::move(script)), options_(options), used_(script_.size()), thread_([this] {
        loop();
      }) {}

Scripted::~Scripted() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  filled_.notify_all();
  thread_.join();
}

Result<uint64_t> Scripted::submit(Request request) {
  if (request.prompt.empty())
    return Error{Code::BadRequest, "prompt", "expected at least one token, found none"};
  TRY(check_fits(int64_t(request.prompt.size()), options_.context));
  TRY(check_sampling(request.sampling, options_.vocab));
  auto a = std::make_unique<Active>();
  a->submitted_at = steady_seconds();
  a->choices.resize(size_t(std::max(request.n, 1)));
  for (auto& choice : a->choices) {
    if (request.constraint) choice.constraint = request.constraint->copy();
    choice.usage.prompt_tokens = int64_t(request.prompt.size());
  }
  a->request = std::move(request);
  std::lock_guard lock(mutex_);
  const uint64_t id = a->id = next_id_++;
  counts_.submitted += int64_t(a->choices.size());
  submitted_.push_back(std::move(a));
  filled_.notify_all();
  return id;
}

void Scripted::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  filled_.notify_all();
}

void Scripted::forget(std::function<void()> done) {
  std::lock_guard lock(mutex_);
  forgets_.push_back(std::move(done));
  filled_.notify_all();
}

Statistics Scripted::statistics() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

// --- its own thread ---

void Scripted::loop() {
  while (true) {
    const double wait = turn();
    std::unique_lock lock(mutex_);
    const auto has_work = [&] {
      return stopping_ || !submitted_.empty() || !cancelled_.empty() || !forgets_.empty();
    };
    if (std::isinf(wait)) filled_.wait(lock, has_work);
    else filled_.wait_for(lock, std::chrono::duration<double>(std::max(wait, 0.0)), has_work);
    if (stopping_) return;
  }
}

double Scripted::turn() {
  std::vector<uint64_t> cancelled;
  std::vector<std::function<void()>> forgets;
  {
    std::lock_guard lock(mutex_);
    for (auto& a : submitted_) active_.push_back(std::move(a));
    submitted_.clear();
    cancelled.swap(cancelled_);
    forgets.swap(forgets_);
  }
  if (!forgets.empty()) read_.clear();
  for (const auto& done : forgets) done();
  for (uint64_t id : cancelled)
    for (auto& a : active_)
      if (a->id == id)
        for (size_t i = 0; i < a->choices.size(); ++i) end(*a, int(i), Finish::Cancelled);
  double next = INFINITY;
  const double now = steady_seconds();
  int running = 0;
  for (auto& a : active_) {
    if (a->ended()) continue;
    const Request& r = a->request;
    const double until = a->submitted_at + (a->line ? r.deadline_s : std::min(r.deadline_s, r.start_s));
    if (now >= until)
      for (size_t i = 0; i < a->choices.size(); ++i) end(*a, int(i), Finish::Deadline);
    if (!a->ended() && !a->line && running < options_.running) begin(*a);
    if (a->ended()) continue;
    next = std::min(next, until - now);
    if (!a->line) continue;
    ++running;
    if (a->due <= now) advance(*a);
    if (!a->ended()) next = std::min(next, a->due - now);
  }
  std::erase_if(active_, [](const auto& a) { return a->ended(); });
  std::lock_guard lock(mutex_);
  counts_.running = std::count_if(active_.begin(), active_.end(), [](const auto& a) { return a->line; });
  counts_.queued = int64_t(active_.size()) - counts_.running;
  ++counts_.steps;
  return counts_.queued > 0 && counts_.running < options_.running ? 0 : next;  // some have just ended
}

const ScriptLine* Scripted::line_for(const std::vector<Token>& prompt) {
  const std::vector<int64_t> marks = chat_.marks(prompt);
  const std::string whole = raw_text(chat_.tokenizer(), prompt);
  std::string last = whole;
  if (!marks.empty()) {
    const size_t from = marks.size() > 1 ? size_t(marks[marks.size() - 2]) : 0;
    last = raw_text(chat_.tokenizer(), std::span(prompt).subspan(from, size_t(marks.back()) - from));
  }
  for (size_t i = 0; i < script_.size(); ++i)
    if (used_[i] < script_[i].times && whole.ends_with(script_[i].ends) && all_in(script_[i].match, whole) &&
        all_in(script_[i].last, last)) {
      ++used_[i];
      return &script_[i];
    }
  return nullptr;
}

void Scripted::begin(Active& a) {
  a.line = line_for(a.request.prompt);
  if (!a.line) {
    for (size_t i = 0; i < a.choices.size(); ++i)
      end(a, int(i), Finish::Failed,
          Error{Code::BadRequest, "script", "expected a line for this prompt, found none"});
    return;
  }
  a.began_at = steady_seconds();
  a.due = a.began_at + a.line->prompt_s;
  int64_t cached = 0;
  if (a.request.reuse)
    for (const auto& known : read_) cached = std::max(cached, common(known, a.request.prompt));
  cached = std::min(cached, int64_t(a.request.prompt.size()) - 1);
  for (auto& choice : a.choices) {
    choice.usage.cached_tokens = cached;
    choice.usage.prompt_rows = choice.usage.prompt_tokens - cached;
    choice.usage.queue_s = a.began_at - a.submitted_at;
    choice.usage.prompt_s = a.line->prompt_s;
  }
  if (a.request.reuse) remember(a.request.prompt);
  for (size_t i = 0; i < a.choices.size(); ++i) tell(a, int(i), {}, Finish::Running);
}

void Scripted::remember(std::vector<Token> text) {
  constexpr size_t kRemembered = 256;
  read_.push_back(std::move(text));
  if (read_.size() > kRemembered) read_.erase(read_.begin());
}

// Where a model has log-probabilities, a script is sure of what it says.
bool Scripted::tell(Active& a, int choice, std::span<const Token> tokens, Finish finish,
                    std::optional<Error> error, Token stopped_by) {
  if (!a.request.on_event) return true;
  const auto sure = [](Token token, int alternatives) {
    TokenLogprob one;
    one.token = token;
    one.rank = 1;
    if (alternatives > 0) one.best = {{token, one.value}};
    return one;
  };
  Event event{a.id, choice, tokens, finish, std::move(error), a.choices[size_t(choice)].usage};
  event.stopped_by = stopped_by;
  std::vector<TokenLogprob> of_answer, of_prompt;
  if (a.request.logprobs >= 0) {
    for (Token token : tokens) of_answer.push_back(sure(token, a.request.logprobs));
    if (stopped_by >= 0) of_answer.push_back(sure(stopped_by, a.request.logprobs));
  }
  if (a.request.prompt_logprobs >= 0 && choice == 0 && !a.told_prompt && a.line) {
    a.told_prompt = true;
    for (size_t i = 1; i < a.request.prompt.size(); ++i)
      of_prompt.push_back(sure(a.request.prompt[i], a.request.prompt_logprobs));
  }
  event.logprobs = of_answer;
  event.prompt_logprobs = of_prompt;
  return a.request.on_event(event);
}

void Scripted::end(Active& a, int choice, Finish finish, std::optional<Error> error, Token stopped_by) {
  auto& c = a.choices[size_t(choice)];
  if (c.ended) return;
  c.ended = true;
  c.usage.answer_s = a.began_at > 0 ? steady_seconds() - a.began_at - c.usage.prompt_s : 0;
  if (choice == 0 && a.line && a.request.reuse) {  // the next turn finds the answer known
    std::vector<Token> known = a.request.prompt;
    known.insert(known.end(), a.said.begin(), a.said.end());
    remember(std::move(known));
  }
  {
    std::lock_guard lock(mutex_);
    ++(finish == Finish::Failed      ? counts_.failed
       : finish == Finish::Cancelled ? counts_.cancelled
                                     : counts_.finished);
    counts_.answer_tokens += c.usage.answer_tokens;
    counts_.prompt_tokens += c.usage.prompt_tokens;
    counts_.cached_tokens += c.usage.cached_tokens;
  }
  tell(a, choice, {}, finish, std::move(error), stopped_by);
}

// The token to take where the script has `token`: itself, or the only one that the constraint leaves.
Result<Token> Scripted::constrained(Constraint& constraint, Token token) const {
  std::vector<uint64_t> mask(size_t(options_.vocab) / 64 + 1, ~uint64_t(0));
  constraint.mask(mask);
  auto is_on = [&](int64_t id) { return (mask[size_t(id) / 64] >> (id % 64)) & 1; };
  if (token >= 0 && is_on(token)) return token;
  std::optional<Token> only;
  for (int64_t id = 0; id < options_.vocab; ++id)
    if (is_on(id)) {
      if (only) {
        only.reset();
        break;
      }
      only = Token(id);
    }
  if (only) return *only;
  return Error{Code::BadRequest, "script",
               "expected a token that the constraint allows, found '" +
                   (token < 0 ? std::string("the end") : std::string(chat_.tokenizer().piece(token))) + "'"};
}

// One event for each choice.
void Scripted::advance(Active& a) {
  const ScriptLine& line = *a.line;
  const auto& stop = a.request.stop;
  for (size_t i = 0; i < a.choices.size(); ++i) {
    auto& c = a.choices[i];
    if (c.ended) continue;
    std::vector<Token> tokens;
    Finish finish = Finish::Running;
    std::optional<Error> error;
    Token stopped_by = -1;
    const int64_t room = options_.context - c.usage.prompt_tokens;
    const int64_t most = a.request.max_tokens < 0 ? room : std::min(room, a.request.max_tokens);
    for (int left = line.chunk[c.event++ % line.chunk.size()]; left > 0 && finish == Finish::Running;
         --left) {
      if (c.usage.answer_tokens >= most) {
        finish = Finish::Length;
        break;
      }
      const bool over = c.at >= line.tokens.size();
      if (over && (line.end != Finish::Stop || stop.empty())) {
        finish = line.end;
        if (finish == Finish::Failed)
          error = Error{Code::Io, "script", "this answer fails, as the script has it"};
        break;
      }
      Token token = over ? stop[0] : line.tokens[c.at++];
      if (c.constraint) {
        auto taken = constrained(*c.constraint, token);
        if (!taken) {
          finish = Finish::Failed;
          error = taken.error();
          break;
        }
        if (*taken != token && !over) --c.at;  // it was forced in between
        token = *taken;
      }
      if (std::find(stop.begin(), stop.end(), token) != stop.end()) {
        finish = Finish::Stop;
        stopped_by = token;
        break;
      }
      tokens.push_back(token);
      ++c.usage.answer_tokens;
      if (i == 0) a.said.push_back(token);
      if (c.constraint && !c.constraint->accept(token)) finish = Finish::Stop;
    }
    c.usage.answer_s = std::max(0.0, steady_seconds() - a.began_at - c.usage.prompt_s);
    if (!tokens.empty() && !tell(a, int(i), tokens, Finish::Running)) finish = Finish::StopString;
    else if (finish == Finish::Running && c.usage.answer_tokens >= most) finish = Finish::Length;
    if (finish != Finish::Running) end(a, int(i), finish, std::move(error), stopped_by);
  }
  a.due = steady_seconds() + line.delay_s;
}

}  // namespace invar
