#include "engine/generate.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/check.h"

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian values");

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Readies the story for the prompt; gives how many of its tokens were read before.  One row at least is left,
// for its logits.
Result<int64_t> resume(Engine& engine, Story& story, std::span<const Token> prompt) {
  bool goes_on = story.state && story.tokens.size() < prompt.size() &&
                 std::equal(story.tokens.begin(), story.tokens.end(), prompt.begin());
  if (!goes_on) {
    story.tokens.clear();
    story.state.reset();  // before the next: there may be room for one
    story.state = engine.new_sequence();
    if (!story.state) return Error{Code::NoRoom, "state", "expected room for one more sequence, found none"};
  }
  return int64_t(story.tokens.size());
}

class Run {
 public:
  Run(Engine& engine, Story& story, const Request& request, const Listener& listener)
      : engine_(engine), story_(story), request_(request), listener_(listener) {}

  Result<Answer> run();

 private:
  bool interrupted() const { return listener_.interrupt && listener_.interrupt->load(); }
  // Reads the tokens; of the last, if wanted, the logits go to row_ and into the digest.
  Status read(std::span<const Token> tokens, bool wanted);
  Result<bool> read_prompt(int64_t from);  // false: interrupted
  Status answer();

  Engine& engine_;
  Story& story_;
  const Request& request_;
  const Listener& listener_;
  std::vector<float> row_;
  Sha256 digest_;
  Answer answer_;
};

Status Run::read(std::span<const Token> tokens, bool wanted) {
  auto rows = wanted ? Engine::Rows::Last : Engine::Rows::None;
  TRY(engine_.forward(*story_.state, tokens, rows, [&](int64_t, std::span<const float> logits) {
    row_.assign(logits.begin(), logits.end());
    digest_.update(std::as_bytes(logits));
    return true;
  }));
  story_.tokens.insert(story_.tokens.end(), tokens.begin(), tokens.end());
  return Ok{};
}

Result<bool> Run::read_prompt(int64_t from) {
  std::span<const Token> rest = std::span(request_.prompt).subspan(from);
  answer_.prompt_rows = int64_t(rest.size());
  size_t chunk = size_t(std::max(engine_.settings().chunk, 1));
  for (size_t done = 0; done < rest.size();) {
    if (interrupted()) return false;
    size_t n = std::min(chunk, rest.size() - done);
    TRY(read(rest.subspan(done, n), done + n == rest.size()));
    done += n;
    if (listener_.on_prompt) listener_.on_prompt(int64_t(done), int64_t(rest.size()));
  }
  return true;
}

Status Run::answer() {
  int64_t room = engine_.context() - int64_t(request_.prompt.size());
  if (request_.max_tokens >= 0) room = std::min(room, request_.max_tokens);
  std::vector<Token> history = request_.prompt;
  for (;;) {
    answer_.finish = Finish::Length;
    if (int64_t(answer_.tokens.size()) >= room) return Ok{};
    answer_.finish = Finish::Interrupt;
    if (interrupted()) return Ok{};
    Token token =
        TRY(choose(row_, request_.allowed, request_.sampling, history, int64_t(request_.prompt.size())));
    answer_.finish = Finish::Stop;
    if (std::find(request_.stop.begin(), request_.stop.end(), token) != request_.stop.end()) return Ok{};
    answer_.tokens.push_back(token);
    history.push_back(token);
    answer_.finish = Finish::StopString;
    if (listener_.on_token && !listener_.on_token(token)) return Ok{};
    if (int64_t(answer_.tokens.size()) < room && !interrupted()) {
      answer_.bytes_moved += double(engine_.bytes_per_token(int64_t(story_.tokens.size())));
      ++answer_.passes;
      TRY(read(std::span(&token, 1), true));
    }
  }
}

Result<Answer> Run::run() {
  CHECK(!request_.prompt.empty());
  for (Token t : request_.prompt) CHECK(t >= 0 && t < engine_.vocab());
  TRY(check_fits(int64_t(request_.prompt.size()), engine_.context()));
  int64_t from = TRY(resume(engine_, story_, request_.prompt));
  double start = seconds();
  bool read_whole = TRY(read_prompt(from));
  double middle = seconds();
  answer_.finish = Finish::Interrupt;
  if (read_whole) TRY(answer());
  answer_.prompt_s = middle - start;
  answer_.generate_s = seconds() - middle;
  answer_.logits = digest_.finish();
  return std::move(answer_);
}

}  // namespace

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::Stop:
      return "stop";
    case Finish::Length:
      return "length";
    case Finish::StopString:
      return "stop_string";
    case Finish::Interrupt:
      return "interrupt";
  }
  return "";
}

Result<Answer> generate(Engine& engine, Story& story, const Request& request, const Listener& listener) {
  auto answer = Run(engine, story, request, listener).run();
  if (!answer) story = {};  // how far a pass came that failed is not known
  return answer;
}

Status check_fits(int64_t prompt_tokens, int64_t context) {
  if (prompt_tokens <= context) return Ok{};
  return Error{Code::NoRoom, "prompt",
               "expected at most " + std::to_string(context) + " tokens, the context; found " +
                   std::to_string(prompt_tokens)};
}

Digest digest_tokens(std::span<const Token> tokens) { return sha256(std::as_bytes(tokens)); }

}  // namespace invar
