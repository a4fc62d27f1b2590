#include "cli/bench_machine.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/machine.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "device/cpu/tiers.h"

namespace invar::cli {
namespace {

// The fastest of several runs of `work` on all threads of the pool, in seconds.
template <class Work>
double fastest(ThreadPool& pool, Work work) {
  double best = 1e9;
  for (int turn = 0; turn < 12; ++turn) {
    const double start = steady_seconds();
    pool.run(pool.threads(), [&](int64_t) { work(); });
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

// Multiply-adds of bytes, and fp32 operations, per second on all threads: 64 and 2 x 16 a step.
struct Peaks {
  double gmac_s, gflop_s;

  static Peaks of(const cpu::KernelTable& t, ThreadPool& pool) {
    const int64_t steps = cpu::kPeakSteps * (std::string_view(t.tier) == "scalar" ? 400 : 20'000);
    const double work = double(steps * pool.threads());
    uint8_t bytes[64];
    float values[32];
    std::fill(std::begin(bytes), std::end(bytes), 3);
    std::fill(std::begin(values), std::end(values), 0.5f);
    std::atomic<int32_t> kept = 0;  // so that nothing is left out
    const double dots = fastest(pool, [&] { kept ^= t.dot_peak(bytes, steps); });
    const double fmas = fastest(pool, [&] { kept ^= int32_t(t.fma_peak(values, steps)); });
    return {work * 64 / dots / 1e9, work * 32 / fmas / 1e9};
  }
};

// Microseconds from one operation to the next when it does nothing.
double handoff_us(ThreadPool& pool) {
  constexpr int kTurns = 20000;
  const double start = steady_seconds();
  for (int i = 0; i < kTurns; ++i) pool.run(pool.threads(), [](int64_t) {});
  return (steady_seconds() - start) / kTurns * 1e6;
}

std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Json caches() {
  Json list = Json::array();
  for (int i = 0; i < 8; ++i) {
    const std::filesystem::path folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    if (const std::string level = line_of(folder / "level"); !level.empty())
      list.push_back({{"level", level},
                      {"type", line_of(folder / "type")},
                      {"size", line_of(folder / "size")},
                      {"shared_by", line_of(folder / "shared_cpu_list")}});
  }
  return list;
}

std::string page(const Json& j) {
  std::string out = j["cpu"].get<std::string>() + ", " + std::to_string(j["cores"].get<int>()) +
                    " processors, " + j["isa"].dump() + "\n";
  char line[160];
  for (const Json& r : j["read_gb_s"]) {
    std::snprintf(line, sizeof line, "%2d threads read %6.1f GB/s\n", r["threads"].get<int>(),
                  r["gb_s"].get<double>());
    out += line;
  }
  std::snprintf(line, sizeof line, "byte products %.0f GMAC/s, fp32 %.0f GFLOP/s, hand-over %.2f us\n",
                j["vnni_gmac_s"].get<double>(), j["fma_gflop_s"].get<double>(),
                j["handoff_us"].get<double>());
  out += line;
  const Json& pages = j["huge_pages"];
  std::snprintf(line, sizeof line, "huge pages %s; first touch %.1f GB/s in small pages, %.1f in huge ones\n",
                pages["mode"].get<std::string>().c_str(), pages["touch_small_gb_s"].get<double>(),
                pages["touch_huge_gb_s"].get<double>());
  out += line;
  for (const Json& c : j["caches"]) {
    auto text = [&](const char* key) { return c[key].get<std::string>(); };
    std::snprintf(line, sizeof line, "L%s %s %s, processors %s\n", text("level").c_str(),
                  text("type").c_str(), text("size").c_str(), text("shared_by").c_str());
    out += line;
  }
  return out;
}

}  // namespace

Result<int> bench_machine(std::span<const std::string> arguments) {
  bool machine = false;
  int64_t threads = 0;
  Voice voice;
  Options options("bench --machine [options]", "What this machine can do at best, without a model.",
                  {"invar bench --machine", "invar bench --machine --threads 1 --json"});
  options.flag("--machine", machine, "Measure the machine");
  options.integer("--threads", threads, 1, 1024,
                  "Threads for the peaks (default: all that this process may use)");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;
  const int most = threads > 0 ? int(threads) : available_processors();

  Json j = {{"cpu", processor_name()},
            {"cores", available_processors()},
            {"threads", most},
            {"isa", Json::array()}};
  for (const cpu::KernelTable* t : cpu::available_tiers()) j["isa"].push_back(t->tier);
  j["read_gb_s"] = Json::array();
  for (int t = 1; t <= most; t = t < most ? std::min(2 * t, most) : most + 1) {
    ThreadPool pool(t);
    j["read_gb_s"].push_back({{"threads", t}, {"gb_s", read_gb_s(pool)}});
  }
  ThreadPool pool(most);
  const Peaks peaks = Peaks::of(*cpu::available_tiers().back(), pool);
  j["vnni_gmac_s"] = peaks.gmac_s;
  j["fma_gflop_s"] = peaks.gflop_s;
  j["caches"] = caches();
  j["handoff_us"] = handoff_us(pool);
  j["huge_pages"] = {{"mode", line_of("/sys/kernel/mm/transparent_hugepage/enabled")},
                     {"touch_small_gb_s", first_touch_gb_s(false)},
                     {"touch_huge_gb_s", first_touch_gb_s(true)}};
  j["clock_ghz"] = clock_ghz();
  j["load_average"] = load_average();
  TRY(voice.json ? say_json(j) : say(page(j)));
  return 0;
}

}  // namespace invar::cli
