// `invar synth`: a valid model of a named shape with random weights.
#include "models/synth/synth.h"

#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/settings.h"

namespace invar::cli {
namespace {

constexpr int64_t kMostListed = 64;

Result<const Shape*> shape_of(const std::string& name) {
  if (const Shape* shape = find_shape(name)) return shape;
  std::string known;
  for (const Shape& s : all_shapes()) known += (known.empty() ? "" : ", ") + s.name();
  return Error{Code::Usage, "SHAPE",
               "expected one of " + known + ", found '" + name.substr(0, kMostListed) + "'"};
}

Result<int> run(std::span<const std::string> arguments) {
  std::string name, path;
  SynthOptions synth;
  int threads = 0;
  Voice voice;
  Options options(
      "synth SHAPE -o OUT.gguf [options]",
      "Writes a valid model with random weights, for tests and measurements.",
      {"invar synth qwen35:tiny -o tiny.gguf", "invar synth qwen35:4B -o random-4b.gguf --mix Q4_K_M",
       "invar synth qwen35:27B -o header.gguf --mix Q4_K_M --header-only"});
  options.text("SHAPE", name, "SHAPE", "qwen35:tiny, qwen35:4B, ...; a wrong name lists all");
  options.text("-o,--output", path, "OUT.gguf", "The file to write");
  options.choice("--mix", synth.mix, mix_names(), "Format of the matrices, or the mixture Q4_K_M");
  options.seed("--seed", synth.seed, "Draws other weights");
  options.flag("--header-only", synth.header_only, "Everything but the weights: to describe and to plan");
  options.integer("--threads", threads, 1, 1024, "Threads (default: the cores that may be used)");
  add_voice(options, voice);
  if (TRY(parse(options, arguments))) return 0;

  const Shape* shape = TRY(shape_of(name));
  if (path.empty()) return Error{Code::Usage, "--output", "expected a file to write, found none"};
  uint64_t bytes = 0;
  int64_t parameters = 0;
  std::vector<NewTensor> tensors = TRY(mixed_tensors(*shape, synth.mix));
  for (const NewTensor& t : tensors) {
    int64_t values = 1;
    for (int64_t n : t.shape) values *= n;
    parameters += values;
    bytes += t.bytes();
  }
  {
    ThreadPool pool(threads > 0 ? threads : available_processors());
    Interrupt interrupt;
    Progress progress("writing", voice);
    TRY(synthesize(*shape, path, synth, pool, [&](double share) {
      progress.set(share);
      return !interrupt.flag();
    }));
  }
  if (voice.json) {
    TRY(say_json({{"path", path},
                  {"shape", shape->name()},
                  {"mix", synth.mix},
                  {"seed", synth.seed},
                  {"tensors", tensors.size()},
                  {"parameters", parameters},
                  {"bytes", bytes},
                  {"header_only", synth.header_only}}));
  } else if (!voice.quiet) {
    char line[120];
    std::snprintf(line, sizeof line, "%s, %s: %zu tensors, %.3f G parameters, %.3f GB", shape->name().c_str(),
                  synth.mix.c_str(), tensors.size(), double(parameters) / 1e9, double(bytes) / 1e9);
    note(line);
  }
  return 0;
}

}  // namespace

const Command synth_command = {"synth", "write a model with random weights", run};

}  // namespace invar::cli
