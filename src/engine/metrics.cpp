#include "engine/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace invar {
namespace {

// The buckets that dashboards for vLLM expect.
const std::vector<double> kFirst = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kBetween = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                      .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kWhole = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kTokens = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                     1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
const std::vector<double> kFew = {1, 2, 5, 10, 20};
const std::vector<double> kRows = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const std::vector<double> kText = {.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end);
}

}  // namespace

void Histogram::add(double value) {
  const size_t bucket = size_t(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Metrics::Metrics()
    : time_to_first_token(kFirst),
      inter_token(kBetween),
      per_output_token(kBetween),
      end_to_end(kWhole),
      queue(kWhole),
      prefill(kWhole),
      decode(kWhole),
      inference(kWhole),
      request_prompt_tokens(kTokens),
      request_generation_tokens(kTokens),
      choices(kFew),
      most_tokens(kTokens),
      iteration_tokens(kRows),
      pass_s(kText),
      template_s(kText),
      grammar_s(kText) {}

void MetricsText::head(std::string_view name, std::string_view help, const char* type) {
  if (last_ == name) return;
  last_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
  text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void MetricsText::line(std::string_view name, std::string_view more_labels, double value) {
  text_.append(name).append("{").append(labels_);
  if (!more_labels.empty()) text_.append(",").append(more_labels);
  text_.append("} ").append(number(value)).append("\n");
}

void MetricsText::counter(std::string_view name, std::string_view help, double value,
                          std::string_view more_labels) {
  head(name, help, "counter");
  line(name, more_labels, value);
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value,
                        std::string_view more_labels) {
  head(name, help, "gauge");
  line(name, more_labels, value);
}

void MetricsText::histogram(std::string_view name, std::string_view help, const Histogram& h) {
  head(name, help, "histogram");
  const std::string base(name);
  int64_t below = 0;
  for (size_t i = 0; i <= h.bounds().size(); ++i) {
    below += h.count(i);
    const double bound = i < h.bounds().size() ? h.bounds()[i] : INFINITY;
    line(base + "_bucket", "le=\"" + number(bound) + "\"", double(below));
  }
  line(base + "_sum", "", h.sum());
  line(base + "_count", "", double(below));
}

}  // namespace invar
