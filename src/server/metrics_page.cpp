// /metrics: the text of Prometheus, under vLLM's names, our own, and llama-server's if they are wanted.
#include "server/dialect.h"
#include "server/server.h"

namespace invar::server {
namespace {

std::string label_text(const std::string& value) {
  std::string text;
  for (char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') text += "\\n";
    else text += c;
  }
  return text;
}

struct Shown {
  const char *name, *help;
  double value;
};

void gauges(MetricsText& t, std::initializer_list<Shown> list) {
  for (const Shown& s : list) t.gauge(s.name, s.help, s.value);
}

void counters(MetricsText& t, std::initializer_list<Shown> list) {
  for (const Shown& s : list) t.counter(s.name, s.help, s.value);
}

// One counter by a label.
void labelled(MetricsText& t, const char* name, const char* help, const std::string& label,
              std::initializer_list<std::pair<const char*, const Counter*>> list) {
  for (const auto& [value, counter] : list)
    t.counter(name, help, double(counter->value()), label + "=\"" + value + "\"");
}

void add_requests(MetricsText& t, const Metrics& m) {
  const auto waiting = double(m.waiting.value());
  gauges(t, {{"vllm:num_requests_running", "Requests that run.", double(m.running.value())},
             {"vllm:num_requests_waiting", "Requests that wait.", waiting}});
  for (const auto& [reason, value] : {std::pair("capacity", waiting), std::pair("deferred", 0.0)})
    t.gauge("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", value,
            std::string("reason=\"") + reason + "\"");
  counters(t, {{"vllm:prompt_tokens_total", "Tokens of prompts.", double(m.prompt_tokens.value())},
               {"vllm:generation_tokens_total", "Tokens of answers.", double(m.generation_tokens.value())},
               {"vllm:admission_rejections_total", "Requests refused since the queue was full.",
                double(m.rejected.value())}});
  labelled(t, "vllm:request_success_total", "Answers that ended, by how.", "finished_reason",
           {{"stop", &m.stopped}, {"length", &m.length}, {"abort", &m.aborted}, {"error", &m.errors}});
}

// Of the state, that running requests use.
double used_share(const PoolUse& state) {
  const double kept =
      double(state.pages.kept * state.pages.each_bytes + state.sets.kept * state.sets.each_bytes);
  const double budget = double(state.budget_bytes);
  return budget > 0 ? std::max(0.0, double(state.used_bytes) - kept) / budget : 0;
}

void add_cache(MetricsText& t, const Metrics& m, const Statistics& s) {
  const PoolUse& state = s.state;
  const double share = used_share(state);
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
    t.gauge(name, "Share of the state that running requests use, 0 to 1.", share);
  t.counter("vllm:num_preemptions_total", "Requests pushed out for others.", double(s.preemptions));
  const int64_t pages = state.pages.each_bytes > 0 ? state.budget_bytes / state.pages.each_bytes : 0;
  t.gauge("vllm:cache_config_info", "The state's sizes, as labels.", 1,
          "block_size=\"" + std::to_string(kPagePositions) + "\",num_gpu_blocks=\"" + std::to_string(pages) +
              "\",enable_prefix_caching=\"True\"");
  const double asked = double(m.prompt_tokens.value()), found = double(m.cached_tokens.value());
  for (const char* prefix : {"vllm:", "vllm:gpu_"}) {
    t.counter(prefix + std::string("prefix_cache_queries_total"), "Prompt tokens looked up.", asked);
    t.counter(prefix + std::string("prefix_cache_hits_total"), "Prompt tokens found known.", found);
  }
  t.gauge("vllm:gpu_prefix_cache_hit_rate", "Share of prompt tokens found known.",
          asked > 0 ? found / asked : 0);
}

struct NamedHistogram {
  const char *name, *help;
  const Histogram Metrics::*of;
};
constexpr NamedHistogram kHistograms[] = {
    {"time_to_first_token_seconds", "From the request to its first token.", &Metrics::time_to_first_token},
    {"time_per_output_token_seconds", "Between tokens of an answer.", &Metrics::inter_token},
    {"inter_token_latency_seconds", "Between tokens of an answer.", &Metrics::inter_token},
    {"request_time_per_output_token_seconds", "The mean of each answer.", &Metrics::per_output_token},
    {"e2e_request_latency_seconds", "From the request to its end.", &Metrics::end_to_end},
    {"request_queue_time_seconds", "Time in the queue.", &Metrics::queue},
    {"request_prefill_time_seconds", "Time to read the prompt.", &Metrics::prefill},
    {"request_decode_time_seconds", "Time to write the answer.", &Metrics::decode},
    {"request_inference_time_seconds", "Time to read and to write.", &Metrics::inference},
    {"request_prompt_tokens", "Tokens of a prompt.", &Metrics::request_prompt_tokens},
    {"request_generation_tokens", "Tokens of an answer.", &Metrics::request_generation_tokens},
    {"request_params_n", "Choices that were asked for.", &Metrics::choices},
    {"request_params_max_tokens", "max_tokens that were asked for.", &Metrics::most_tokens},
    {"iteration_tokens_total", "Tokens of each pass of the engine.", &Metrics::iteration_tokens}};

void add_llama(MetricsText& t, const Metrics& m, const Statistics& s, double usage) {
  const double read = double(s.prompt_rows), read_s = m.prefill.sum();
  const double written = double(m.generation_tokens.value()), written_s = m.decode.sum();
  const auto rate = [](double n, double seconds) { return seconds > 0 ? n / seconds : 0; };
  counters(t, {{"llamacpp:prompt_tokens_total", "Tokens of prompts that were read.", read},
               {"llamacpp:prompt_seconds_total", "Time to read them.", read_s},
               {"llamacpp:tokens_predicted_total", "Tokens of answers.", written},
               {"llamacpp:tokens_predicted_seconds_total", "Time to write them.", written_s}});
  gauges(t, {{"llamacpp:prompt_tokens_seconds", "Tokens read each second.", rate(read, read_s)},
             {"llamacpp:predicted_tokens_seconds", "Tokens written each second.", rate(written, written_s)},
             {"llamacpp:kv_cache_usage_ratio", "Share of the state that running requests use.", usage},
             {"llamacpp:kv_cache_tokens", "Positions of the state that running requests use.",
              double(s.state.pages.live * kPagePositions)},
             {"llamacpp:requests_processing", "Requests that run.", double(m.running.value())},
             {"llamacpp:requests_deferred", "Requests that wait.", double(m.waiting.value())}});
}

void add_own(MetricsText& t, const Metrics& m, const Statistics& s, const HttpCounts& h,
             const Served& served) {
  t.gauge("invar_build_info", "The program, as labels.", 1,
          "version=\"" + label_text(served.model.version) + "\",commit=\"" + label_text(served.model.commit) +
              "\"");
  t.histogram("invar_pass_seconds", "Time of a pass of the engine.", m.pass_s);
  for (const auto& [part, seconds] : {std::pair("schedule", s.step_s.schedule),
                                      {"forward", s.step_s.forward},
                                      {"choose", s.step_s.choose},
                                      {"deliver", s.step_s.deliver}})
    t.counter("invar_step_seconds_total", "Time of the engine, by part of a step.", seconds,
              "part=\"" + std::string(part) + "\"");
  for (const auto& [thread, seconds] :
       {std::pair("text", served.text.busy_seconds()),
        {"masks", served.dialect ? served.dialect->masks->busy_seconds() : 0}})
    t.counter("invar_thread_seconds_total", "Time of work: prompts and grammars, and masks.", seconds,
              "thread=\"" + std::string(thread) + "\"");
  labelled(t, "invar_cancelled_total", "Answers that were cancelled, by where they were.", "phase",
           {{"waiting", &m.cancelled_waiting},
            {"reading", &m.cancelled_reading},
            {"answering", &m.cancelled_answering}});
  for (const MemoryKind& kind : memory_by_kind(s))
    t.gauge("invar_memory_bytes", "Memory by kind.", double(kind.bytes),
            "kind=\"" + std::string(kind.name) + "\"");
  gauges(t, {{"invar_memory_allowed_bytes", "The budget of memory.", double(s.memory.allowed_bytes)},
             {"invar_weights_bytes", "Packed weights.", double(s.memory.weights_bytes)},
             {"invar_state_budget_bytes", "Room for state.", double(s.state.budget_bytes)},
             {"invar_state_used_bytes", "State in memory, kept for reuse or in use.",
              double(s.state.used_bytes)},
             {"invar_tree_snapshots", "Snapshots in memory.", double(s.tree.snapshots)},
             {"invar_disk_bytes", "Files of states.", double(s.disk.bytes)},
             {"invar_text_queue", "Requests before the text thread.", double(served.text.waiting())},
             {"invar_text_queue_bytes", "Of them together.", double(*served.waiting_bytes)},
             {"invar_http_connections", "Open connections.", double(h.connections)}});
  counters(t, {{"invar_steps_total", "Turns of the engine.", double(s.steps)},
               {"invar_prompt_rows_total", "Rows of prompts that were computed.", double(s.prompt_rows)},
               {"invar_answer_rows_total", "Rows of answers that were computed.", double(s.answer_rows)},
               {"invar_snapshots_total", "Snapshots taken.", double(s.snapshots)},
               {"invar_from_disk_total", "Requests that went on from a state on disk.", double(s.from_disk)},
               {"invar_evicted_bytes_total", "State given up for other.", double(s.evicted_bytes)},
               {"invar_lone_thoughts_total", "Answers that would have ended inside their thought.",
                double(m.lone_thoughts.value())},
               {"invar_parse_anomalies_total", "Tool calls that were not well formed.",
                double(m.parse_anomalies.value())},
               {"invar_http_accepted_total", "Connections taken.", double(h.accepted)},
               {"invar_http_refused_total", "Connections over the limit.", double(h.refused)},
               {"invar_http_requests_total", "Requests of any path.", double(h.requests)},
               {"invar_http_gone_total", "Clients that left before the end of an answer.", double(h.gone)},
               {"invar_http_stalled_total", "Clients that took nothing for too long.", double(h.stalled)},
               {"invar_http_sent_bytes_total", "Bytes written.", double(h.sent_bytes)}});
  t.histogram("invar_template_seconds", "Rendering and tokenizing a prompt.", m.template_s);
  t.histogram("invar_grammar_seconds", "Compiling a grammar.", m.grammar_s);
}

}  // namespace

void add_metrics(Router& router, Served& served) {
  router.add("GET", "/metrics", On::Io, [&served](const HttpRequest&, const std::shared_ptr<Reply>& reply) {
    MetricsText text("model_name=\"" + label_text(served.options.names[0]) + "\",engine=\"0\"");
    const Statistics statistics = served.service.statistics();
    add_requests(text, served.metrics);
    add_cache(text, served.metrics, statistics);
    for (const NamedHistogram& h : kHistograms)
      text.histogram("vllm:" + std::string(h.name), h.help, served.metrics.*h.of);
    add_own(text, served.metrics, statistics, served.http(), served);
    if (served.options.llama_metrics)
      add_llama(text, served.metrics, statistics, used_share(statistics.state));
    reply->send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, text.take());
  });
}

}  // namespace invar::server
