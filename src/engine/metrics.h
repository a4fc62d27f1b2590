// Counters and histograms that any thread adds to and any thread reads, without a lock; and their text form
// for Prometheus.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

class Counter {
 public:
  void add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);

  const std::vector<double>& bounds() const {
    return bounds_;
  }  // rising; a bucket has what is at most its bound
  int64_t count(size_t bucket) const {
    return counts_[bucket].load(std::memory_order_relaxed);
  }  // of it alone
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;  // the last: above all bounds
  std::atomic<double> sum_ = 0;
};

// What is counted about requests; the names are those of the text form, without "vllm:".
struct Metrics {
  Counter running, waiting;  // now
  Counter prompt_tokens, cached_tokens, generation_tokens, rejected;
  Counter stopped, length, aborted, errors;                           // choices, by how they ended
  Counter cancelled_waiting, cancelled_reading, cancelled_answering;  // those aborted, by where they were
  Histogram time_to_first_token, inter_token, per_output_token, end_to_end, queue, prefill, decode, inference;
  Histogram request_prompt_tokens, request_generation_tokens, choices, most_tokens;
  Histogram iteration_tokens, pass_s;  // rows of each pass of the engine, and what it took
  Counter parse_anomalies;             // tool calls that were not well formed
  Counter lone_thoughts;               // answers that went on where the model stopped inside its thought
  Histogram template_s, grammar_s;     // rendering and tokenizing a prompt; compiling a grammar
  Metrics();
};

// Lines of the text form.  `labels`: what is between the braces.
class MetricsText {
 public:
  explicit MetricsText(std::string labels) : labels_(std::move(labels)) {}
  void counter(std::string_view name, std::string_view help, double value, std::string_view more_labels = {});
  void gauge(std::string_view name, std::string_view help, double value, std::string_view more_labels = {});
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram);
  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view name, std::string_view more_labels, double value);
  void head(std::string_view name, std::string_view help, const char* type);

  std::string labels_, text_, last_;  // last_: the family whose head was written
};

}  // namespace invar
