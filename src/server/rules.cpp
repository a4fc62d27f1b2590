#include "server/rules.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "server/dialect.h"
#include "text/call_grammar.h"
#include "text/lark.h"

namespace invar::server {
namespace {

// No end before so many tokens.
class AtLeast : public Constraint {
 public:
  AtLeast(std::unique_ptr<Constraint> inner, int64_t tokens, std::vector<Token> ends)
      : inner_(std::move(inner)), left_(tokens), ends_(std::move(ends)) {}

  void mask(std::span<uint64_t> allowed) override {
    if (inner_) inner_->mask(allowed);
    if (left_ > 0)
      for (Token end : ends_) allowed[size_t(end) / 64] &= ~(uint64_t(1) << (end % 64));
  }
  bool masks() const override { return left_ > 0 || (inner_ && inner_->masks()); }
  bool accept(Token token) override {
    --left_;
    return !inner_ || inner_->accept(token);
  }
  Token in_place_of(Token stop) override { return inner_ ? inner_->in_place_of(stop) : stop; }
  std::unique_ptr<Constraint> copy() const override {
    return std::make_unique<AtLeast>(inner_ ? inner_->copy() : nullptr, left_, ends_);
  }

 private:
  std::unique_ptr<Constraint> inner_;
  int64_t left_;
  std::vector<Token> ends_;
};

ApiError refused(const std::string& field, const std::string& message, const std::string& code) {
  return {400, field + ": " + message, code, field};
}

std::optional<GrammarSpec> spec_of(const Structure& s) {
  using From = Structure::Kind;
  using To = GrammarSpec::Kind;
  constexpr std::pair<From, To> kKinds[] = {{From::JsonObject, To::JsonObject},
                                            {From::Schema, To::JsonSchema},
                                            {From::Regex, To::Regex},
                                            {From::Choice, To::Choice},
                                            {From::Lark, To::Lark},
                                            {From::Gbnf, To::Gbnf},
                                            {From::Tags, To::Tags}};
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto k) { return k.first == s.kind; });
  if (kind == std::end(kKinds)) return {};
  GrammarSpec g;
  g.kind = kind->second;
  g.strict = s.strict;
  g.text = s.text;
  g.whitespace = s.whitespace;
  if (s.kind == From::Choice) g.choice = s.value.get<std::vector<std::string>>();
  else g.schema = s.value;
  return g;
}

// The field that a grammar comes from.
std::string what_forces(const Question& q) { return q.structure.field.empty() ? "tools" : q.structure.field; }

std::vector<std::string> strict_ones(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools)
    if (tool["function"].value("strict", false)) names.push_back(tool["function"]["name"]);
  return names;
}

// Puts the choice of tools around what the content must be.
std::optional<ApiError> choose_tools(const Question& q, const Tokenized& prompt, const Dialect& dialect,
                                     const Tokenizer& tokenizer, bool constrain,
                                     std::optional<GrammarSpec>& spec, std::vector<std::string>& banned) {
  const ToolChoice& choice = q.tool_choice;
  if (!prompt.tools.is_array() || prompt.tools.empty()) return {};
  if (choice.kind == ToolChoice::Kind::None) {
    banned = call_begins(dialect.format);
    return {};
  }
  const bool required = choice.kind == ToolChoice::Kind::Required;
  const std::vector<std::string> strict = strict_ones(q.conversation->tools);
  if (!required && spec && spec->kind == GrammarSpec::Kind::Tags)
    return {};  // they say how calls are written
  if (!required && !spec && choice.names.empty() && strict.empty() && !constrain) return {};
  if (!dialect.format.has_calls()) {
    if (!required) return {};
    return refused("tool_choice", "not supported: how this model writes calls is not known",
                   "unsupported_parameter");
  }
  CallRules rules;
  rules.tools = prompt.tools;
  rules.names = choice.names;
  rules.strict = strict;
  rules.parallel = choice.parallel;
  rules.required = required;
  if (!required) rules.content = spec;
  auto calls = call_grammar(rules, dialect.format, tokenizer);
  if (!calls) return refused(calls.error().where, calls.error().message, "invalid_schema");
  spec = calls.take();
  return {};
}

// What of the opening belongs to the answer, not to its thought.
std::string_view begun_answer(const Tokenized& prompt, const AnswerFormat& format) {
  if (prompt.opens_thought) return {};
  std::string_view text = prompt.opening;
  if (!format.thinks() || !text.starts_with(format.think_open)) return text;
  const size_t at = text.find(format.think_close);
  if (at == text.npos) return {};
  text.remove_prefix(at + format.think_close.size());
  return text.substr(std::min(text.find_first_not_of("\r\n"), text.size()));
}

// JSON without white space between its parts, as grammars have it; of a text that may end anywhere.  What
// stands between two words stays: no grammar takes it.
std::string compact(std::string_view json) {
  auto is_space = [](char c) { return std::string_view(" \t\r\n").find(c) != std::string_view::npos; };
  auto separates = [](char c) { return std::string_view("{}[]:,\"").find(c) != std::string_view::npos; };
  std::string out;
  bool in_string = false, escaped = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!in_string && is_space(c)) {
      const bool parts = out.empty() || separates(out.back());
      const bool last = i + 1 == json.size() || !is_space(json[i + 1]);
      if (!parts && last && (i + 1 == json.size() || !separates(json[i + 1]))) out += ' ';
      continue;
    }
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
    out += c;
  }
  return out;
}

// Has the grammar go on from what the prompt has of the answer already.
std::optional<ApiError> go_on(const Tokenizer& tokenizer, const AnswerFormat& format, const Question& q,
                              const Tokenized& prompt, Grammar& grammar) {
  std::string begun(begun_answer(prompt, format));
  const bool calls = q.tool_choice.kind == ToolChoice::Kind::Required;
  const bool in_call = !format.call_begin.empty() && begun.find(format.call_begin) != begun.npos;
  if (begun.empty() || (calls && !in_call)) return {};  // calls follow what was begun
  const bool json =
      q.structure.kind == Structure::Kind::Schema || q.structure.kind == Structure::Kind::JsonObject;
  if (json) begun = compact(begun);
  auto tokens = tokenizer.encode(begun, AddedTokens::User);
  if (!tokens) return api_error(tokens.error());
  auto rest = grammar.behind(*tokens);
  if (!rest)
    return refused("messages",
                   "expected a last message of the assistant that begins what " + what_forces(q) +
                       " asks for, found another",
                   "invalid_prefix");
  grammar = rest.take();
  return {};
}

}  // namespace

std::optional<ApiError> rules_of(const Served& served, const Question& q, const Tokenized& prompt,
                                 Rules& out) {
  const Dialect& dialect = *served.dialect;
  AnswerRules rules;
  if (q.structure.kind == Structure::Kind::Lark)
    if (const Status soon = check_lark(q.structure.text, "grammar"); !soon)
      return refused(what_forces(q), soon.error().where + ": " + soon.error().message, "invalid_schema");
  std::optional<GrammarSpec> spec = spec_of(q.structure);
  if (q.conversation) {
    if (auto fault = choose_tools(q, prompt, dialect, served.chat.tokenizer(), served.options.constrain_tools,
                                  spec, rules.banned))
      return fault;
    if (prompt.opens_thought) rules.thought = AnswerRules::Thought::Open;
    else if (prompt.may_think) rules.thought = AnswerRules::Thought::May;
    if (rules.thought != AnswerRules::Thought::No) rules.thought_budget = q.thinking.budget.value_or(-1);
  }
  if (spec) {
    const double began = steady_seconds();
    auto grammar = dialect.grammars.compile(*spec);
    served.metrics.grammar_s.add(steady_seconds() - began);
    if (!grammar)
      return refused(what_forces(q), grammar.error().where + ": " + grammar.error().message,
                     "invalid_schema");
    out.ignored = grammar->ignored();
    if (auto fault = go_on(served.chat.tokenizer(), dialect.format, q, prompt, *grammar)) return fault;
    rules.grammar = grammar.take();
  }
  // In a thought the model may not stop: agents take a lone thought for a failure.
  const bool goes_on = rules.thought != AnswerRules::Thought::No && !served.options.calls_in_thought;
  rules.kept_on = &served.metrics.lone_thoughts;
  if (rules.needed() || goes_on) {
    auto constraint = dialect.constraints->constraint(std::move(rules));
    if (!constraint) return api_error(constraint.error());
    out.constraint = constraint.take();
  }
  if (q.min_tokens > 0) {
    std::vector<Token> ends = served.chat.stop();
    ends.insert(ends.end(), q.stop_tokens.begin(), q.stop_tokens.end());
    std::erase_if(ends, [&](Token t) { return t >= served.service.vocab(); });
    out.constraint = std::make_unique<AtLeast>(std::move(out.constraint), q.min_tokens, std::move(ends));
  }
  return {};
}

}  // namespace invar::server
