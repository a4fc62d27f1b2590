#include "server/rules.h"

#include <algorithm>

#include "base/clock.h"
#include "server/dialect.h"
#include "text/call_grammar.h"

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
  ApiError error{400, field + ": " + message, code, field};
  error.never_retry = true;
  return error;
}

std::optional<ApiError> spec_of(const Structure& s, std::optional<GrammarSpec>& spec) {
  using Kind = Structure::Kind;
  if (s.kind == Kind::None) return {};
  if (s.kind == Kind::Gbnf)
    return refused(s.field, "not supported: grammars of llama.cpp; a grammar in Lark's form is",
                   "unsupported_parameter");
  GrammarSpec& g = spec.emplace();
  g.strict = s.strict;
  switch (s.kind) {
    case Kind::Schema:
      g.kind = GrammarSpec::Kind::JsonSchema;
      g.schema = s.value;
      break;
    case Kind::Choice:
      g.kind = GrammarSpec::Kind::Choice;
      for (const Json& one : s.value) g.choice.push_back(one.get<std::string>());
      break;
    case Kind::Regex:
    case Kind::Lark:
      g.kind = s.kind == Kind::Regex ? GrammarSpec::Kind::Regex : GrammarSpec::Kind::Lark;
      g.text = s.text;
      break;
    default:
      g.kind = GrammarSpec::Kind::JsonObject;
  }
  return {};
}

// The field that a grammar comes from.
std::string what_forces(const Question& q) { return q.structure.field.empty() ? "tools" : q.structure.field; }

bool any_strict(const Json& tools) {
  return std::any_of(tools.begin(), tools.end(),
                     [](const Json& tool) { return tool["function"].value("strict", false); });
}

// Puts the choice of tools around what the content must be.
std::optional<ApiError> choose_tools(const Question& q, const Tokenized& prompt, const Dialect& dialect,
                                     const Tokenizer& tokenizer, std::optional<GrammarSpec>& spec,
                                     std::vector<std::string>& banned) {
  const ToolChoice& choice = q.tool_choice;
  if (!prompt.tools.is_array() || prompt.tools.empty()) return {};
  if (choice.kind == ToolChoice::Kind::None) {
    banned = call_begins(dialect.format);
    return {};
  }
  const bool required = choice.kind == ToolChoice::Kind::Required;
  if (!required && !spec && choice.names.empty() && !any_strict(q.conversation->tools)) return {};
  if (!dialect.format.has_calls()) {
    if (!required) return {};
    return refused("tool_choice", "not supported: how this model writes calls is not known",
                   "unsupported_parameter");
  }
  CallRules rules;
  rules.tools = prompt.tools;
  rules.names = choice.names;
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
  std::optional<GrammarSpec> spec;
  if (auto fault = spec_of(q.structure, spec)) return fault;
  if (q.conversation) {
    if (auto fault = choose_tools(q, prompt, dialect, served.chat.tokenizer(), spec, rules.banned))
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
  // In a thought that the prompt opened the model may not stop: agents take a lone thought for a failure.
  if (rules.needed() || rules.thought == AnswerRules::Thought::Open) {
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
