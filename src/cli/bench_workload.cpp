#include "cli/bench_workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/machine.h"
#include "cli/answer.h"
#include "cli/settings.h"
#include "cli/workload.h"

namespace invar::cli {
namespace {

struct Flags {
  std::string model, workload;
  WorkloadSize size;
  std::optional<float> scale;
  bool print = false, own_answers = false, cold = false;
  Voice voice;
  EngineOptions engine;
  uint64_t seed = 0;
};

void describe(Options& o, Flags& f) {
  std::vector<std::string> names;
  for (const WorkloadShape& s : workload_shapes()) names.push_back(s.name);
  o.text("MODEL", f.model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  o.choice(
      "--workload", f.workload, names,
      "agent: one conversation of 30 turns, to 16K tokens; chat: 16 users who think between turns; batch: "
      "64 short prompts at once; shared: 16 questions behind one system prompt of 4K tokens");
  o.integer("--users", f.size.users, 1, 1 << 16, "Conversations (default: the workload's)");
  o.integer("--turns", f.size.turns, 1, 1 << 16, "Questions in each (default: the workload's)");
  o.real("--scale", f.scale, 0.001, 100, "Multiplies lengths and times (default: 1)");
  o.integer("--parallel", f.engine.sequences, 1, 1024, "Requests that run at once");
  o.flag("--own-answers", f.own_answers, "Later prompts hold what was answered, not the generated answer");
  o.flag("--cold", f.cold, "Keep nothing of what was read, for comparison");
  o.flag("--print", f.print, "Print the requests, one JSON object a line, and run nothing");
  add_engine(o, f.engine, f.seed);
  add_cache(o, f.engine);
  add_voice(o, f.voice);
}

// What is known of one request; times are readings of steady_seconds().
struct Measured {
  size_t conversation = 0, turn = 0;
  int64_t new_tokens = 0;  // that the prompt before of the same conversation did not have
  uint64_t id = 0;
  double due = 0, first = 0, last = 0;
  std::vector<double> gaps;  // between tokens
  std::vector<Token> tokens;
  TokenUsage usage;
  Finish finish = Finish::Running;
  size_t ended = 0;                         // place in the order of ends; and the memory of the process then
  int64_t rss_bytes = 0, states_bytes = 0;  // of the process, and of it the pool of states, at the end

  bool complete() const { return finish == Finish::Length; }
  double ttft_s() const { return first - due; }
  double tpot_s() const { return (last - first) / double(tokens.size() - 1); }  // 2 tokens or more
};

// One thread asks when a request is due and drives the engine.  A request that comes due during a step is
// late by its rest, which counts as waiting.
class Replay {
 public:
  Replay(Engine& engine, const Workload& workload, bool own_answers, const Voice& voice)
      : engine_(engine), workload_(workload), own_answers_(own_answers), progress_("replaying", voice) {
    for (size_t c = 0; c < workload.conversations.size(); ++c) {
      talks_.push_back({{}, 0, 0, true});
      talks_[c].prompt.add(workload.system);
    }
    measured_.resize(size_t(workload.requests()));
  }

  // What was measured when it was interrupted is in complete().
  Status run() {
    const double start = steady_seconds();
    for (size_t c = 0; c < talks_.size(); ++c) talks_[c].due = start + workload_.conversations[c][0].wait_s;
    Status status = Ok{};
    while (status && !failure_ && ended_ < measured_.size()) {
      if (Interrupt::flag()) status = stop();
      else status = ask();
      if (status && !engine_.step()) sleep_until_due();
    }
    wall_s_ = steady_seconds() - start;
    if (failure_) return *failure_;
    return status;
  }

  double wall_s() const { return wall_s_; }
  // In the order of conversations and turns.
  std::vector<const Measured*> complete() const {
    std::vector<const Measured*> list;
    for (const Measured& m : measured_)
      if (m.complete()) list.push_back(&m);
    return list;
  }

 private:
  struct Talk {
    GrowingPrompt prompt;
    size_t next;  // turn
    double due;
    bool waits;
  };

  Status stop() {
    for (const Measured& m : measured_)
      if (m.id != 0 && m.finish == Finish::Running) engine_.cancel(m.id);
    engine_.run_until_idle();
    return Error{Code::Cancelled, "bench", "interrupted"};
  }

  Status ask() {
    const double time = steady_seconds();
    for (size_t c = 0; c < talks_.size(); ++c)
      if (talks_[c].waits && talks_[c].due <= time) TRY(submit(c));
    return Ok{};
  }

  Status submit(size_t c) {
    Talk& talk = talks_[c];
    const WorkloadTurn& turn = workload_.conversations[c][talk.next];
    talk.prompt.add(turn.message);
    talk.waits = false;
    Measured& m = measured_[c * size_t(workload_.shape.turns) + talk.next];
    m.conversation = c;
    m.turn = talk.next;
    m.due = talk.due;
    m.new_tokens = int64_t(turn.message.size());
    m.new_tokens +=
        int64_t(m.turn == 0 ? workload_.system.size() : workload_.conversations[c][m.turn - 1].answer.size());
    Request request;
    request.prompt = talk.prompt.tokens;
    request.marks = talk.prompt.marks;
    request.max_tokens = int64_t(turn.answer.size());
    request.sampling.temperature = 0;
    request.on_event = [this, &m](const Event& e) {
      hear(m, e);
      return true;
    };
    m.id = TRY(engine_.submit(std::move(request)));
    return Ok{};
  }

  void hear(Measured& m, const Event& e) {
    const double time = steady_seconds();
    m.usage = e.usage;
    for (Token token : e.tokens) {
      if (m.tokens.empty()) m.first = time;
      else m.gaps.push_back(time - m.last);
      m.last = time;
      m.tokens.push_back(token);
      progress_.set(double(++answered_) / double(workload_.requests() * workload_.shape.answer));
    }
    if (e.finish == Finish::Running) return;
    m.finish = e.finish;
    m.ended = ended_++;
    m.rss_bytes = rss_bytes();
    m.states_bytes = engine_.runner().pool().resident_bytes();
    if (e.error) failure_ = e.error;
    Talk& talk = talks_[m.conversation];
    const auto& turns = workload_.conversations[m.conversation];
    if (!m.complete() || ++talk.next == turns.size()) return;
    talk.prompt.add(own_answers_ ? m.tokens : turns[m.turn].answer);
    talk.due = time + turns[talk.next].wait_s;
    talk.waits = true;
  }

  void sleep_until_due() const {
    double next = steady_seconds() + 0.05;  // an interruption is heard
    for (const Talk& t : talks_)
      if (t.waits) next = std::min(next, t.due);
    if (const double s = next - steady_seconds(); s > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(s));
  }

  Engine& engine_;
  const Workload& workload_;
  bool own_answers_;
  Interrupt interrupt_;
  Progress progress_;
  std::vector<Talk> talks_;
  std::vector<Measured> measured_;
  size_t ended_ = 0;
  int64_t answered_ = 0;
  double wall_s_ = 0;
  std::optional<Error> failure_;
};

// Of values in any order; the value that so many per cent do not exceed.
struct Spread {
  double p50 = 0, p95 = 0, most = 0;
  bool any = false;

  static Spread of(std::vector<double> v) {
    if (v.empty()) return {};
    std::sort(v.begin(), v.end());
    auto at = [&](double share) { return v[size_t(std::ceil(share * double(v.size()))) - 1]; };
    return {at(0.5), at(0.95), v.back(), true};
  }
  Json json() const { return any ? Json{{"p50", p50}, {"p95", p95}, {"max", most}} : Json(nullptr); }
};

struct Report {
  std::vector<const Measured*> turns;
  double wall_s = 0;
  TokenUsage sum;
  Spread ttft, tpot, gap;
  std::string tokens_sha256;
  Statistics engine;
  int64_t peak_rss_bytes = 0;
  Disturbance disturbance;

  static Report of(const Replay& replay) {
    Report r;
    r.turns = replay.complete();
    r.wall_s = replay.wall_s();
    std::vector<double> ttft, tpot, gaps;
    std::vector<Token> tokens;
    for (const Measured* m : r.turns) {
      ttft.push_back(m->ttft_s());
      tpot.push_back(m->tpot_s());
      gaps.insert(gaps.end(), m->gaps.begin(), m->gaps.end());
      tokens.insert(tokens.end(), m->tokens.begin(), m->tokens.end());
      r.sum.prompt_tokens += m->usage.prompt_tokens;
      r.sum.cached_tokens += m->usage.cached_tokens;
      r.sum.prompt_rows += m->usage.prompt_rows;
      r.sum.answer_tokens += m->usage.answer_tokens;
      r.sum.answer_rows += m->usage.answer_rows;
      r.sum.preemptions += m->usage.preemptions;
    }
    r.ttft = Spread::of(std::move(ttft));
    r.tpot = Spread::of(std::move(tpot));
    r.gap = Spread::of(std::move(gaps));
    r.tokens_sha256 = hex(digest_tokens(tokens));
    return r;
  }
  double cached_share() const { return rate(double(sum.cached_tokens), double(sum.prompt_tokens)); }
  double prompt_tok_s() const { return rate(double(sum.prompt_tokens), wall_s); }
  double answer_tok_s() const { return rate(double(sum.answer_tokens), wall_s); }
};

Json json_of(const Workload& w, const Flags& f) {
  return {{"name", w.shape.name},         {"users", w.shape.users},
          {"turns", w.shape.turns},       {"scale", f.size.scale},
          {"requests", w.requests()},     {"parallel", f.engine.sequences},
          {"own_answers", f.own_answers}, {"cold", f.cold}};
}

Json json_of(std::span<const MemoryKind> kinds) {
  Json j = Json::object();
  for (const MemoryKind& kind : kinds) j[kind.name] = kind.bytes;
  return j;
}

Json json_of(const Measured& m) {
  return {{"conversation", m.conversation},
          {"turn", m.turn},
          {"prompt_tokens", m.usage.prompt_tokens},
          {"new_tokens", m.new_tokens},
          {"cached_tokens", m.usage.cached_tokens},
          {"prompt_rows", m.usage.prompt_rows},
          {"answer_tokens", m.usage.answer_tokens},
          {"preemptions", m.usage.preemptions},
          {"queue_s", m.usage.queue_s},
          {"ttft_s", m.ttft_s()},
          {"tpot_s", m.tpot_s()},
          {"ended", m.ended},
          {"rss_bytes", m.rss_bytes},
          {"states_bytes", m.states_bytes}};
}

Json json_of(const Report& r, const Workload& w, const Flags& f, const ModelFile& file,
             const ModelRunner& runner) {
  auto name = file.keys().text_or("general.name", "");
  auto share = [&](double x) { return r.disturbance.told ? Json(x) : Json(nullptr); };
  Json j = {{"workload", json_of(w, f)},
            {"model",
             {{"path", f.model},
              {"arch", file.architecture()},
              {"name", name ? *name : ""},
              {"weights_bytes", r.engine.memory.weights_bytes}}},
            {"machine",
             {{"cpu", processor_name()},
              {"others", share(r.disturbance.others)},
              {"stolen", share(r.disturbance.stolen)}}},
            {"finished", r.turns.size()},
            {"wall_s", r.wall_s},
            {"prompt_tokens", r.sum.prompt_tokens},
            {"cached_tokens", r.sum.cached_tokens},
            {"cached_share", r.cached_share()},
            {"prompt_rows", r.sum.prompt_rows},
            {"answer_tokens", r.sum.answer_tokens},
            {"answer_rows", r.sum.answer_rows},
            {"preemptions", r.sum.preemptions},
            {"steps", r.engine.steps},
            {"prompt_tok_s", r.prompt_tok_s()},
            {"answer_tok_s", r.answer_tok_s()},
            {"ttft_s", r.ttft.json()},
            {"tpot_s", r.tpot.json()},
            {"gap_s", r.gap.json()},
            {"peak_rss_bytes", r.peak_rss_bytes},
            {"allowed_bytes", r.engine.memory.allowed_bytes},
            {"state_bytes", r.engine.state.used_bytes},
            {"state_budget_bytes", r.engine.state.budget_bytes},
            {"memory", json_of(memory_by_kind(r.engine))},
            {"tokens_sha256", r.tokens_sha256},
            {"turns", Json::array()}};
  for (const Measured* m : r.turns) j["turns"].push_back(json_of(*m));
  add_settings(j["settings"], runner, f.seed);
  return j;
}

std::string page(const Report& r, const Workload& w, const Flags& f, const ModelFile& file) {
  char line[320];
  std::string out;
  auto add = [&](auto... values) {
    std::snprintf(line, sizeof line, values...);
    out += line;
  };
  using Long = long long;
  add("%s, %lld users, %lld turns, %d at once; %zu of %lld requests in %.2f s\n", w.shape.name,
      Long(w.shape.users), Long(w.shape.turns), f.engine.sequences, r.turns.size(), Long(w.requests()),
      r.wall_s);
  out += file.path() + ", " + file.architecture();
  add(", peak memory %.3f GB, states %.3f GB\n\n", double(r.peak_rss_bytes) / 1e9,
      double(r.engine.state.used_bytes) / 1e9);
  if (w.shape.users == 1) {
    add("%4s %8s %8s %8s %8s %10s %10s\n", "turn", "prompt", "new", "cached", "computed", "TTFT s", "TPOT s");
    for (const Measured* m : r.turns)
      add("%4zu %8lld %8lld %8lld %8lld %10.3f %10.4f\n", m->turn, Long(m->usage.prompt_tokens),
          Long(m->new_tokens), Long(m->usage.cached_tokens), Long(m->usage.prompt_rows), m->ttft_s(),
          m->tpot_s());
    out += "\n";
  }
  add("%-24s %10s %10s %10s\n", "seconds", "p50", "p95", "max");
  for (const auto& [name, s] :
       {std::pair("to the first token", r.ttft), std::pair("per output token", r.tpot),
        std::pair("between two tokens", r.gap)})
    add("%-24s %10.4f %10.4f %10.4f\n", name, s.p50, s.p95, s.most);
  add("\nprompts %lld tokens, %.1f tok/s; %.1f %% cached, %lld rows computed\n", Long(r.sum.prompt_tokens),
      r.prompt_tok_s(), 100 * r.cached_share(), Long(r.sum.prompt_rows));
  add("answers %lld tokens, %.1f tok/s; %lld rows computed; pushed out %lld times\n",
      Long(r.sum.answer_tokens), r.answer_tok_s(), Long(r.sum.answer_rows), Long(r.sum.preemptions));
  add("tokens sha256 %s\n", r.tokens_sha256.c_str());
  if (r.disturbance.noticed())
    add("other programs, or other guests of the host, took %.0f %% of the processors\n",
        100 * (r.disturbance.others + r.disturbance.stolen));
  return out;
}

// With --json one object; else one for each request.
Status print(const Workload& w, const Flags& f) {
  Json all = Json::array();
  for (size_t c = 0; c < w.conversations.size(); ++c) {
    GrowingPrompt prompt;
    prompt.add(w.system);
    for (size_t t = 0; t < w.conversations[c].size(); ++t) {
      const WorkloadTurn& turn = w.conversations[c][t];
      prompt.add(turn.message);
      Json request = {{"conversation", c},
                      {"turn", t},
                      {"wait_s", turn.wait_s},
                      {"prompt", prompt.tokens},
                      {"answer_tokens", turn.answer.size()}};
      if (f.voice.json) all.push_back(std::move(request));
      else TRY(say(request.dump() + "\n"));
      prompt.add(turn.answer);
    }
  }
  return f.voice.json ? say_json({{"workload", json_of(w, f)}, {"requests", all}}) : Ok{};
}

Result<Workload> workload_of(const Flags& f, const ModelFile& file) {
  const Chat chat = TRY(Chat::make(file));
  const Tokenizer& tokenizer = chat.tokenizer();
  std::vector<Token> ordinary;
  for (int64_t id = 0; id < std::min<int64_t>(vocabulary_of(file, tokenizer), tokenizer.size()); ++id)
    if (tokenizer.type(Token(id)) == TokenType::Normal) ordinary.push_back(Token(id));
  for (const WorkloadShape& s : workload_shapes())
    if (s.name == f.workload) return make_workload(s, f.size, f.seed, ordinary);
  return Error{Code::Usage, "--workload", "expected the name of a workload"};
}

}  // namespace

Result<int> bench_workload(std::span<const std::string> arguments) {
  Flags f;
  Options options(
      "bench MODEL --workload NAME [options]",
      "Replays generated requests; the same can be sent to another server (bench/workload.py).",
      {"invar bench model.gguf --workload agent", "invar bench model.gguf --workload chat --users 4 --json",
       "invar bench model.gguf --workload shared --scale 0.1 --parallel 4",
       "invar bench model.gguf --workload agent --print > agent.jsonl"});
  describe(options, f);
  if (TRY(parse(options, arguments))) return 0;
  f.size.scale = double(f.scale.value_or(1));
  if (f.print && f.own_answers)
    return Error{Code::Usage, "--own-answers", "answers are not known to --print"};

  ModelFile file = TRY(open_model(f.model));
  const Workload workload = TRY(workload_of(f, file));
  if (f.print) {
    TRY(print(workload, f));
    return 0;
  }
  const int64_t limit = TRY(context_limit(file, f.engine));
  if (workload.positions() > limit)
    return Error{Code::NoRoom, "--context",
                 "the workload needs " + std::to_string(workload.positions()) + " positions, there are " +
                     std::to_string(limit) + "; --scale makes it smaller"};
  f.engine.context = workload.positions();
  f.engine.reuse = !f.cold;

  forget_peak_memory();
  std::unique_ptr<Engine> engine = TRY(open_engine(file, f.engine, f.voice));
  Replay replay(*engine, workload, f.own_answers, f.voice);
  const Usage before = Usage::now();
  const Status status = replay.run();
  if (!status && status.error().code != Code::Cancelled) return status.error();
  Report report = Report::of(replay);
  report.disturbance = between(before, Usage::now());
  report.engine = engine->statistics();
  report.peak_rss_bytes = peak_rss_bytes();
  TRY(f.voice.json ? say_json(json_of(report, workload, f, file, engine->runner()))
                   : say(page(report, workload, f, file)));
  return status ? 0 : status_of(Code::Cancelled);
}

}  // namespace invar::cli
