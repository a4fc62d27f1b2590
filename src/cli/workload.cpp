#include "cli/workload.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace invar::cli {
namespace {

constexpr WorkloadShape kShapes[] = {
    // name, users, turns, system, first, later, answer, arrival_s, think_s
    {"agent", 1, 30, 1536, 512, 430, 64, 0, 0},  // one conversation with tool results, to 16K tokens
    {"chat", 16, 4, 256, 64, 96, 128, 2, 10},    // people who come, read and ask again
    {"batch", 64, 1, 0, 128, 0, 64, 0, 0},       // short prompts, all at once
    {"shared", 16, 1, 4096, 64, 0, 64, 0, 0},    // one system prompt, different questions
};
constexpr int64_t kMostTokens = int64_t(1) << 27;  // of a workload

enum class Draw : uint32_t { System, Message, Answer, Length, Wait };

class Source {  // what is drawn depends on its place alone
 public:
  Source(uint64_t seed, std::span<const Token> ordinary) : seed_(seed), ordinary_(ordinary) {}

  std::vector<Token> tokens(Draw what, int64_t conversation, int64_t turn, int64_t count) const {
    std::vector<Token> list;
    for (int64_t i = 0; i < count; ++i)
      list.push_back(ordinary_[bits(what, conversation, turn, i) % ordinary_.size()]);
    return list;
  }
  double unit(Draw what, int64_t conversation, int64_t turn) const {  // in [0, 1)
    return double(bits(what, conversation, turn, 0)) / 0x1p32;
  }
  double exponential(Draw what, int64_t conversation, int64_t turn, double mean) const {
    return -mean * std::log1p(-unit(what, conversation, turn));
  }

 private:
  uint32_t bits(Draw what, int64_t conversation, int64_t turn, int64_t index) const {
    return philox({uint32_t(index), uint32_t(turn), uint32_t(conversation), uint32_t(what)},
                  {uint32_t(seed_), uint32_t(seed_ >> 32)})[0];
  }

  uint64_t seed_;
  std::span<const Token> ordinary_;
};

WorkloadShape scaled(WorkloadShape s, const WorkloadSize& size) {
  if (size.users > 0) s.users = size.users;
  if (size.turns > 0) s.turns = size.turns;
  auto tokens = [&](int64_t n, int64_t least) {
    return n == 0 ? 0 : std::max<int64_t>(least, std::llround(double(n) * size.scale));
  };
  s.system = tokens(s.system, 1);
  s.first = tokens(s.first, 1);
  s.later = tokens(s.later > 0 ? s.later : s.first, 1);
  s.answer = tokens(s.answer, 2);  // two tokens have a time between them
  s.arrival_s *= size.scale;
  s.think_s *= size.scale;
  return s;
}

}  // namespace

std::span<const WorkloadShape> workload_shapes() { return kShapes; }

int64_t Workload::positions() const {
  int64_t longest = 0;
  for (const auto& turns : conversations) {
    int64_t length = 0;
    for (const WorkloadTurn& t : turns) length += int64_t(t.message.size() + t.answer.size());
    longest = std::max(longest, length);
  }
  return int64_t(system.size()) + longest;
}

Result<Workload> make_workload(const WorkloadShape& shape, const WorkloadSize& size, uint64_t seed,
                               std::span<const Token> ordinary) {
  if (ordinary.empty())
    return Error{Code::BadFile, "vocabulary", "expected ordinary tokens to draw from, found none"};
  const WorkloadShape s = scaled(shape, size);
  const double most = double(s.system) +
                      double(s.users) * double(s.turns) * double(2 * std::max(s.first, s.later) + s.answer);
  if (most > double(kMostTokens))
    return Error{Code::Usage, "--scale",
                 "expected a workload of at most " + std::to_string(kMostTokens) + " tokens, found one of " +
                     std::to_string(int64_t(most))};
  const Source source(seed, ordinary);
  Workload w{s, source.tokens(Draw::System, 0, 0, s.system), {}};
  double arrival = 0;
  for (int64_t c = 0; c < s.users; ++c) {
    std::vector<WorkloadTurn>& turns = w.conversations.emplace_back();
    if (c > 0) arrival += source.exponential(Draw::Wait, c, 0, s.arrival_s);
    for (int64_t t = 0; t < s.turns; ++t) {
      // Pairs: the users of a first message, the turns of later ones.
      const bool first = t == 0;
      const int64_t place = first ? c : t - 1, count = first ? s.users : s.turns - 1;
      const double unit = source.unit(Draw::Length, first ? place / 2 : c, first ? 0 : 1 + place / 2);
      const int64_t mean = first ? s.first : s.later;
      const int64_t off = place == count - 1 && place % 2 == 0 ? 0 : int64_t(double(mean) * (unit - 0.5));
      turns.push_back({first ? arrival : source.exponential(Draw::Wait, c, t, s.think_s),
                       source.tokens(Draw::Message, c, t, mean + (place % 2 ? -off : off)),
                       source.tokens(Draw::Answer, c, t, s.answer)});
    }
  }
  return w;
}

void GrowingPrompt::add(std::span<const Token> message) {
  if (message.empty()) return;
  tokens.insert(tokens.end(), message.begin(), message.end());
  marks.push_back(int64_t(tokens.size()));
}

}  // namespace invar::cli
