// `invar bench`: the speed of prompts and of generation, beside the speed at which this machine reads memory
// and what else it was doing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include "base/machine.h"
#include "base/rng.h"
#include "cli/bench_machine.h"
#include "cli/bench_workload.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "device/timed_device.h"

namespace invar::cli {
namespace {

struct Flags {
  std::string model, prompts = "512", verifies = "0", answers = "128", depths = "0";
  int repeats = 5;
  bool operations = false, blank = false;
  Voice voice;
  RunnerOptions engine;
  uint64_t seed = 0;
};

void describe(Options& o, Flags& f) {
  o.text("MODEL", f.model, "MODEL", "A GGUF file, or a folder with config.json and safetensors");
  o.text("-p,--prompt-tokens", f.prompts, "LIST",
         "ppN: a pass over N prompt rows, the last one's logits; 0: none");
  o.text("--verify", f.verifies, "LIST", "vfN: a pass over N rows, all of whose logits are wanted; 0: none");
  o.text("-n,--max-tokens", f.answers, "LIST", "tgN: N rows one by one, chosen greedily; 0: none");
  o.text("-d,--depth", f.depths, "LIST", "After so many tokens");
  o.flag("--blank", f.blank, "Leave the tokens before a depth unread: what follows takes as long, sooner");
  o.integer("-r,--repeats", f.repeats, 1, 10000, "Samples of each test, after one that is not counted");
  o.flag("--ops", f.operations,
         "Where the time goes: each operation, its bytes, its share, and how long threads wait");
  add_engine(o, f.engine, f.seed);
  add_voice(o, f.voice);
}

Result<std::vector<int64_t>> list_of(std::string_view text, const char* flag) {
  std::vector<int64_t> list;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    auto n = parse_integer(word, 0, int64_t(1) << 30);
    if (!n)
      return Error{
          Code::Usage, flag,
          "expected whole numbers separated by commas, found '" + std::string(word.substr(0, 40)) + "'"};
    list.push_back(*n);
    if (word.size() == text.size()) return list;
    text.remove_prefix(word.size() + 1);
  }
}

struct Plan {
  std::vector<int64_t> prompts, verifies, answers, depths;

  static Result<Plan> of(const Flags& f) {
    Plan p{TRY(list_of(f.prompts, "--prompt-tokens")), TRY(list_of(f.verifies, "--verify")),
           TRY(list_of(f.answers, "--max-tokens")), TRY(list_of(f.depths, "--depth"))};
    std::erase(p.prompts, 0);
    std::erase(p.verifies, 0);
    std::erase(p.answers, 0);
    std::sort(p.depths.begin(), p.depths.end());
    if (p.tests() == 0)
      return Error{Code::Usage, "bench",
                   "expected a length above 0 in --prompt-tokens, --verify or --max-tokens"};
    return p;
  }
  size_t tests() const { return prompts.size() + verifies.size() + answers.size(); }
  int64_t positions() const {
    int64_t longest = 0;
    for (const auto* list : {&prompts, &verifies, &answers})
      for (int64_t n : *list) longest = std::max(longest, n);
    return depths.back() + longest;
  }
};

struct Sample {
  double seconds;
  Disturbance disturbance;
};

struct Outcome {
  std::string test;
  int64_t depth, rows;
  double bytes_per_token;
  std::vector<Sample> samples;
  Disturbance disturbance;                          // of all samples together
  std::map<std::string, OperationCost> operations;  // of all samples, if wanted

  std::array<double, 3> rates() const {  // median, least, most
    std::vector<double> all;
    for (const Sample& s : samples) all.push_back(double(rows) / s.seconds);
    std::sort(all.begin(), all.end());
    const size_t n = all.size();
    return {(all[(n - 1) / 2] + all[n / 2]) / 2, all.front(), all.back()};
  }
  double gb_s() const { return bytes_per_token * rates()[0] / 1e9; }
  // A sample too short to tell counts as disturbed if the test was, and that as the whole run.
  bool disturbed(const Sample& s, const Disturbance& run) const {
    return (s.disturbance.told ? s.disturbance : disturbance.told ? disturbance : run).noticed();
  }
  int64_t disturbed(const Disturbance& run) const {
    return std::count_if(samples.begin(), samples.end(), [&](const Sample& s) { return disturbed(s, run); });
  }
};

// Runs the tests on one sequence, which goes back to its depth for each sample.
class Tests {
 public:
  Tests(ModelRunner& runner, SequenceState& sequence, const Plan& plan, const Flags& flags)
      : runner_(runner),
        sequence_(sequence),
        plan_(plan),
        flags_(flags),
        progress_("measuring", flags.voice),
        timed_(runner.device(), &runner.threads()) {
    if (!flags.operations) return;
    runner.threads().watch();
    runner.run_on(timed_);
  }

  // What was measured when it was interrupted is in outcomes().
  Status run() {
    for (int64_t depth : plan_.depths) {
      const int64_t before = depth - sequence_.position();
      TRY(flags_.blank ? leave_blank(before) : prompt(before, ModelRunner::Rows::None));
      TRY(mark());
      using Rows = ModelRunner::Rows;
      for (int64_t n : plan_.prompts)
        TRY(measure("pp", n, prompt_bytes(n), [&] { return prompt(n, Rows::Last); }));
      for (int64_t n : plan_.verifies)
        TRY(measure("vf", n, prompt_bytes(n), [&] { return prompt(n, Rows::All); }));
      // Bytes grow linearly with the depth, so those of the middle row are the mean.
      for (int64_t n : plan_.answers)
        TRY(measure("tg", n,
                    double(runner_.bytes_per_token(depth) + runner_.bytes_per_token(depth + n - 1)) / 2,
                    [&] { return generate(n); }));
      sequence_.restore(mark_);
    }
    return Ok{};
  }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  static Error no_room() {
    return {Code::NoRoom, "--memory", "expected room for a second copy of the state, found less"};
  }
  static Error interrupted() { return {Code::Cancelled, "bench", "interrupted"}; }

  Token token(int64_t position) const {
    const Philox4 bits =
        philox({uint32_t(position), 0, 0, 0}, {uint32_t(flags_.seed), uint32_t(flags_.seed >> 32)});
    return Token(bits[0] % uint64_t(runner_.vocab()));
  }

  Status mark() {
    mark_ = {};  // before the next: there may be room for one
    std::optional<Snapshot> snapshot = sequence_.snapshot();
    // Room for the longest sample, whose first page may be a copy of a shared one.
    if (!snapshot || !sequence_.reserve(plan_.positions() - plan_.depths.back())) return no_room();
    mark_ = *std::move(snapshot);
    return Ok{};
  }

  // Positions whose keys and values are all the same small number: memory of their own, and no time.
  Status leave_blank(int64_t rows) {
    if (!sequence_.reserve(rows)) return no_room();
    sequence_.commit(rows);
    std::optional<Snapshot> snapshot = sequence_.snapshot();
    if (!snapshot) return no_room();
    for (const PageRef& page : snapshot->pages)
      std::memset(page.data(), 0x11, size_t(runner_.pool().page_bytes()));
    return Ok{};
  }

  // One pass for each chunk.
  Status prompt(int64_t rows, ModelRunner::Rows wanted) {
    std::vector<Token> tokens(static_cast<size_t>(rows));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = token(sequence_.position() + int64_t(i));
    const size_t chunk = size_t(runner_.settings().chunk);
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      if (interrupt_.flag()) return interrupted();
      const auto part = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
      const bool last = at + chunk >= tokens.size() || wanted == ModelRunner::Rows::All;
      TRY(runner_.forward(sequence_, part, last ? wanted : ModelRunner::Rows::None,
                          [](int64_t, std::span<const float>) { return true; }));
    }
    return Ok{};
  }

  Status generate(int64_t rows) {
    Token next = token(sequence_.position());
    for (int64_t i = 0; i < rows; ++i) {
      if (interrupt_.flag()) return interrupted();
      const Token row = next;
      TRY(runner_.forward(sequence_, {&row, 1}, ModelRunner::Rows::Last,
                          [&](int64_t, std::span<const float> logits) {
                            next = Token(std::max_element(logits.begin(), logits.end()) - logits.begin());
                            return true;
                          }));
    }
    return Ok{};
  }

  // Bytes for each row when weights and state are read once a pass.  A mixture reads more experts for many
  // rows than for one; they are not counted.
  double prompt_bytes(int64_t rows) const {
    const int64_t chunk = runner_.settings().chunk;
    double bytes = 0;
    for (int64_t at = 0; at < rows; at += chunk)
      bytes += double(runner_.bytes_per_token(sequence_.position() + std::min(rows, at + chunk) - 1));
    return bytes / double(rows);
  }

  template <class Work>
  Status measure(const char* kind, int64_t rows, double bytes_per_token, Work work) {
    Outcome outcome{kind + std::to_string(rows), mark_.position, rows, bytes_per_token, {}, {}, {}};
    const Usage begun = Usage::now();
    Status status = Ok{};
    for (int turn = 0; turn <= flags_.repeats && status; ++turn) {  // turn 0 warms up
      sequence_.restore(mark_);
      if (turn == 1) timed_.clear();
      const Usage before = Usage::now();
      const auto start = std::chrono::steady_clock::now();
      status = work();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      if (status && turn > 0) outcome.samples.push_back({time.count(), between(before, Usage::now())});
      progress_.set(double(++done_) /
                    double(plan_.tests() * plan_.depths.size() * size_t(flags_.repeats + 1)));
    }
    outcome.disturbance = between(begun, Usage::now());
    outcome.operations = timed_.costs();
    if (!outcome.samples.empty()) outcomes_.push_back(std::move(outcome));
    return status;
  }

  ModelRunner& runner_;
  SequenceState& sequence_;
  const Plan& plan_;
  const Flags& flags_;
  Interrupt interrupt_;
  Progress progress_;
  TimedDevice timed_;
  Snapshot mark_;  // where each sample starts
  std::vector<Outcome> outcomes_;
  size_t done_ = 0;
};

// The machine before or after the tests.
struct Reading {
  double read_gb_s, clock_ghz, load;
  Usage usage;

  static Reading now(int threads) {
    ThreadPool pool(threads);
    const double load = load_average();
    return {invar::read_gb_s(pool), invar::clock_ghz(), load, Usage::now()};
  }
};

struct Report {
  std::string cpu = processor_name();
  Reading before, after;
  RunnerOptions settings;
  RunnerMemory memory;
  int64_t peak_rss = 0;
  bool peak_is_ours = false;  // else the measurement of the memory is in it
  std::vector<Outcome> outcomes;
  Disturbance disturbance;  // during the tests

  double read_gb_s() const { return std::max(before.read_gb_s, after.read_gb_s); }
  double share(const Outcome& o) const { return read_gb_s() > 0 ? o.gb_s() / read_gb_s() : 0; }
};

Json share_of(const Disturbance& d, double share) { return d.told ? Json(share) : Json(nullptr); }

struct Operation {
  std::string name;
  int64_t calls;                               // of one sample, as the rows and bytes of a call
  double rows, bytes, seconds, waited, share;  // share: of the time of the sample

  double gb_s() const { return seconds > 0 ? bytes / seconds / 1e9 : 0; }
};

// The slowest first; what is between operations comes last.
std::vector<Operation> operations_of(const Outcome& o) {
  const double n = double(o.samples.size());
  double all = 0, known = 0;
  for (const Sample& s : o.samples) all += s.seconds;
  std::vector<Operation> list;
  for (const auto& [name, c] : o.operations) {
    list.push_back({name, int64_t(double(c.calls) / n), double(c.rows) / double(c.calls), double(c.bytes) / n,
                    c.seconds / n, c.waited / n, c.seconds / all});
    known += c.seconds;
  }
  std::sort(list.begin(), list.end(),
            [](const Operation& a, const Operation& b) { return a.seconds > b.seconds; });
  if (!list.empty())
    list.push_back({"between operations", 0, 0, 0, (all - known) / n, 0, (all - known) / all});
  return list;
}

double waiting(const Outcome& o) {  // a share of the operations' time
  double waited = 0, all = 0;
  for (const auto& [name, c] : o.operations) waited += c.waited, all += c.seconds;
  return all > 0 ? waited / all : 0;
}

Json json_of(const Report& r, const Outcome& o) {
  const auto [median, least, most] = o.rates();
  Json samples = Json::array();
  for (const Sample& s : o.samples)
    samples.push_back({{"tok_s", double(o.rows) / s.seconds},
                       {"others", share_of(s.disturbance, s.disturbance.others)},
                       {"stolen", share_of(s.disturbance, s.disturbance.stolen)},
                       {"disturbed", o.disturbed(s, r.disturbance)}});
  Json operations = Json::array();
  for (const Operation& op : operations_of(o))
    operations.push_back({{"name", op.name},
                          {"calls", op.calls},
                          {"rows", op.rows},
                          {"time_s", op.seconds},
                          {"waited_s", op.waited},
                          {"bytes", op.bytes},
                          {"gb_s", op.gb_s()},
                          {"share", op.share}});
  return {{"test", o.test},
          {"operations", operations},
          {"waiting", o.operations.empty() ? Json(nullptr) : Json(waiting(o))},
          {"depth", o.depth},
          {"threads", r.settings.threads},
          {"repeats", o.samples.size()},
          {"tok_s", {{"median", median}, {"min", least}, {"max", most}}},
          {"bytes_per_token", o.bytes_per_token},
          {"gb_s", o.gb_s()},
          {"read_share", r.share(o)},
          {"disturbed", o.disturbed(r.disturbance)},
          {"samples", samples}};
}

Json json_of(const Report& r, const ModelFile& file) {
  auto name = file.keys().text_or("general.name", "");
  auto both = [](double before, double after) { return Json{{"before", before}, {"after", after}}; };
  Json j = {{"machine",
             {{"cpu", r.cpu},
              {"processors", r.after.usage.processors},
              {"threads", r.settings.threads},
              {"isa", r.settings.isa},
              {"read_gb_s", r.read_gb_s()},
              {"reads_gb_s", both(r.before.read_gb_s, r.after.read_gb_s)},
              {"clock_ghz", both(r.before.clock_ghz, r.after.clock_ghz)},
              {"load_average", both(r.before.load, r.after.load)},
              {"others", share_of(r.disturbance, r.disturbance.others)},
              {"stolen", share_of(r.disturbance, r.disturbance.stolen)},
              {"stolen_s", r.after.usage.stolen - r.before.usage.stolen}}},
            {"model",
             {{"path", file.path()},
              {"arch", file.architecture()},
              {"name", name ? *name : ""},
              {"weights_bytes", r.memory.weights_bytes},
              {"state_bytes", r.memory.state_bytes}}},
            {"peak_rss_bytes", r.peak_rss},
            {"peak_without_measurement", r.peak_is_ours},
            {"chunk", r.settings.chunk},
            {"kv", r.settings.kv},
            {"results", Json::array()}};
  for (const Outcome& o : r.outcomes) j["results"].push_back(json_of(r, o));
  return j;
}

std::string page(const Report& r, const ModelFile& file) {
  char line[320];
  std::string out;
  auto add = [&](auto... values) {
    std::snprintf(line, sizeof line, values...);
    out += line;
  };
  add("%s, %d threads, %s, reads %.1f GB/s\n", r.cpu.c_str(), r.settings.threads, r.settings.isa.c_str(),
      r.read_gb_s());
  out += file.path() + ", " + file.architecture();
  add(", weights %.3f GB, peak %.3f GB%s\n\n", double(r.memory.weights_bytes) / 1e9, double(r.peak_rss) / 1e9,
      r.peak_is_ours ? "" : " (at least 0.5 of it is the reading of memory)");
  add("%-8s %8s %12s %24s %14s %8s %7s\n", "test", "depth", "tok/s", "min .. max", "bytes/token", "GB/s",
      "share");
  int64_t disturbed = 0, samples = 0;
  bool cached = false;
  for (const Outcome& o : r.outcomes) {
    const auto [median, least, most] = o.rates();
    char ends[48];
    std::snprintf(ends, sizeof ends, "%.2f .. %.2f", least, most);
    add("%-8s %8lld %12.2f %24s %14.0f %8.2f %5.0f %%%s\n", o.test.c_str(), static_cast<long long>(o.depth),
        median, ends, o.bytes_per_token, o.gb_s(), 100 * r.share(o),
        o.disturbed(r.disturbance) > 0 ? " *" : "");
    cached |= r.share(o) > 1;
    disturbed += o.disturbed(r.disturbance);
    samples += int64_t(o.samples.size());
    for (const Operation& op : operations_of(o))
      add("  %5.1f %%  %9.3f ms  %4lld calls of %6.1f rows  %6.1f GB/s  waits %4.1f %%  %s\n", 100 * op.share,
          1e3 * op.seconds, static_cast<long long>(op.calls), op.rows, op.gb_s(),
          op.seconds > 0 ? 100 * op.waited / op.seconds : 0, op.name.c_str());
    if (!o.operations.empty())
      add("  of all operations, %.1f %% pass with a thread that waits for another\n", 100 * waiting(o));
  }
  add("\nbefore and after: reads %.1f, %.1f GB/s; clock %.2f, %.2f GHz; load %.2f, %.2f; %.2f s stolen "
      "between\n",
      r.before.read_gb_s, r.after.read_gb_s, r.before.clock_ghz, r.after.clock_ghz, r.before.load,
      r.after.load, r.after.usage.stolen - r.before.usage.stolen);
  if (cached)
    out +=
        "a share over 100 %: weights stay in the caches, or the machine was busier while memory was read\n";
  if (disturbed > 0)
    add("* other programs, or other guests of the host, took over 5 %% of the processors in %lld of %lld "
        "samples\n",
        static_cast<long long>(disturbed), static_cast<long long>(samples));
  return out;
}

Result<int> run(std::span<const std::string> arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--machine") != arguments.end())
    return bench_machine(arguments);
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& a) { return a == "--workload" || a.starts_with("--workload="); }))
    return bench_workload(arguments);
  Flags f;
  Options options("bench MODEL [options]",
                  "Speed of prompts and of generation, and the share of the memory's speed that it is.",
                  {"invar bench model.gguf",
                   "invar bench model.gguf -p 1,4,8,512 -n 128 -d 0,4096 -r 5 --threads 8 --json",
                   "invar bench model.gguf --ops -p 512 -n 32", "invar bench model.gguf --workload agent",
                   "invar bench --machine"});
  describe(options, f);
  if (TRY(parse(options, arguments))) return 0;
  const Plan plan = TRY(Plan::of(f));
  ModelFile file = TRY(ModelFile::open(f.model));
  if (f.engine.threads <= 0) f.engine.threads = available_processors();
  if (f.engine.context <= 0) f.engine.context = plan.positions();

  Report report;
  report.before = Reading::now(f.engine.threads);
  report.peak_is_ours = forget_peak_memory();
  Status status = Ok{};
  {
    std::unique_ptr<ModelRunner> runner = TRY(open_runner(file, f.engine, f.voice));
    if (plan.positions() > runner->context())
      return Error{Code::NoRoom, "--context",
                   "the tests need " + std::to_string(plan.positions()) + " positions, there are " +
                       std::to_string(runner->context())};
    std::unique_ptr<SequenceState> sequence = runner->new_sequence();
    if (!sequence) return Error{Code::NoRoom, "state", "expected room for a sequence, found none"};
    Tests tests(*runner, *sequence, plan, f);
    const Usage begun = Usage::now();
    status = tests.run();
    report.disturbance = between(begun, Usage::now());
    if (!status && status.error().code != Code::Cancelled) return std::move(status.error());
    report.outcomes = tests.outcomes();
    report.settings = runner->settings();
    report.memory = runner->memory();
    report.peak_rss = peak_rss_bytes();
  }
  report.after = Reading::now(report.settings.threads);  // the model is gone: there is room for it
  TRY(f.voice.json ? say_json(json_of(report, file)) : say(page(report, file)));
  return status ? 0 : status_of(Code::Cancelled);
}

}  // namespace

const Command bench_command = {"bench", "how fast a model runs here", run};

}  // namespace invar::cli
