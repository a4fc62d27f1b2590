#include "text/grammar.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/gbnf.h"
#include "text/lark.h"
#include "text/schema.h"
#include "text/structural_tag.h"
#include "text/textkit_error.h"
#include "textkit.h"

namespace invar {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxTrials = 200;  // when looking for the place of a fault
constexpr size_t kMaxTrialBytes = size_t{2} << 20;
constexpr size_t kMaxChoices = 1000;
constexpr size_t kMaxKept = 64;

Error bad(std::string where, std::string message) {
  return Error{Code::BadRequest, std::move(where), std::move(message)};
}

Status check_size(std::string_view text, const char* where) {
  if (!text.empty() && text.size() <= kMaxBytes) return Ok{};
  return bad(where,
             "expected 1 to " + std::to_string(kMaxBytes) + " bytes, found " + std::to_string(text.size()));
}

Result<std::string> regex_of_choice(const std::vector<std::string>& choice) {
  if (choice.empty() || choice.size() > kMaxChoices)
    return bad("choice", "expected 1 to " + std::to_string(kMaxChoices) + " texts, found " +
                             std::to_string(choice.size()));
  std::string text;
  for (const std::string& one : choice) text += "|" + regex_literal(one);
  return "(" + text.substr(1) + ")";
}

}  // namespace

void Matcher::Free::operator()(tk_matcher* m) const { tk_matcher_free(m); }

Status Matcher::mask(std::span<uint64_t> allowed) {
  char* message = nullptr;
  const tk_code code = tk_matcher_mask(kit_.get(), allowed.data(), allowed.size(), &may_end_, &message);
  if (code != TK_OK) return textkit_error(code, message, "grammar");
  return Ok{};
}

Result<bool> Matcher::accept(Token token) {
  bool fits = false;
  char* message = nullptr;
  const tk_code code = tk_matcher_accept(kit_.get(), static_cast<uint32_t>(token), &fits, &message);
  if (code != TK_OK) return textkit_error(code, message, "grammar");
  return fits;
}

bool Matcher::complete() const { return tk_matcher_complete(kit_.get()); }

bool Matcher::may_end() {
  const Status known = mask({});
  return known && may_end_;
}

std::unique_ptr<Matcher> Matcher::copied(bool alone) const {
  tk_matcher* kit = nullptr;
  char* message = nullptr;
  const tk_code code = tk_matcher_copy(kit_.get(), alone, &kit, &message);
  CHECK(code == TK_OK);  // there is nothing in it that can fail
  return std::unique_ptr<Matcher>(new Matcher(kit));
}

std::unique_ptr<Matcher> Grammar::start() const { return first_->copied(true); }

Result<Grammar> Grammar::behind(std::span<const Token> tokens) const {
  std::shared_ptr<Matcher> matcher = start();
  for (Token token : tokens)
    if (!TRY(matcher->accept(token)))
      return Error{Code::BadRequest, "grammar", "expected a text that the grammar allows, found another"};
  Grammar rest;
  rest.first_ = std::move(matcher);
  rest.ignored_ = ignored_;
  return rest;
}

// Grammars of the last requests: clients send the same again with each turn.
struct GrammarCompiler::Kept {
  std::mutex mutex;
  std::list<std::pair<std::string, Grammar>> recent;  // the latest first

  std::optional<Grammar> find(const std::string& key) {
    const std::lock_guard lock(mutex);
    const auto it = std::find_if(recent.begin(), recent.end(), [&](const auto& e) { return e.first == key; });
    if (it == recent.end()) return {};
    recent.splice(recent.begin(), recent, it);
    return it->second;
  }
  void add(const std::string& key, const Grammar& grammar) {
    const std::lock_guard lock(mutex);
    recent.emplace_front(key, grammar);
    if (recent.size() > kMaxKept) recent.pop_back();
  }
};

GrammarCompiler::GrammarCompiler() : kept_(std::make_unique<Kept>()) {}
GrammarCompiler::GrammarCompiler(GrammarCompiler&&) noexcept = default;
GrammarCompiler& GrammarCompiler::operator=(GrammarCompiler&&) noexcept = default;
GrammarCompiler::~GrammarCompiler() = default;

void GrammarCompiler::Free::operator()(tk_grammar_env* e) const { tk_grammar_env_free(e); }

Result<GrammarCompiler> GrammarCompiler::make(const Tokenizer& tokenizer, std::span<const Token> ends) {
  const std::vector<uint32_t> ids(ends.begin(), ends.end());
  GrammarCompiler out;
  tk_grammar_env* kit = nullptr;
  char* message = nullptr;
  const tk_code code = tk_grammar_env_new(tokenizer.kit(), ids.data(), ids.size(), &kit, &message);
  if (code != TK_OK) {
    Error error = textkit_error(code, message, "tokenizer.ggml.eos_token_id");
    error.code = Code::Unsupported;
    return error;
  }
  out.kit_.reset(kit);
  return out;
}

Result<std::unique_ptr<Matcher>> GrammarCompiler::matcher(int kind, std::string_view text, bool strict,
                                                          const char* where, std::string* warnings) const {
  tk_matcher* kit = nullptr;
  tk_buf ignored = {};
  char* message = nullptr;
  const tk_code code =
      tk_matcher_new(kit_.get(), kind, text.data(), text.size(), strict, &ignored, &kit, &message);
  if (code != TK_OK) {
    const Error error = textkit_error(code, message, where);
    return bad(where, error.message);
  }
  const std::string told = take_text(ignored);
  if (warnings) *warnings = told;
  return std::unique_ptr<Matcher>(new Matcher(kit));
}

// The innermost schema that does not compile by itself.  The definitions of the whole come with each.
std::string GrammarCompiler::place_of_fault(const Json& root, bool strict) const {
  int trials = 0;
  size_t bytes = 0;
  const auto fails = [&](const Json& schema) {
    if (++trials > kMaxTrials || bytes > kMaxTrialBytes) return false;
    Json alone = schema;
    for (const char* key : {"$defs", "definitions"}) {
      if (alone.is_object() && root.contains(key) && !alone.contains(key)) alone[key] = root[key];
    }
    const std::string text = json_text(alone);
    bytes += text.size();
    return !matcher(TK_JSON_SCHEMA, text, strict, "schema", nullptr);
  };
  std::string at;
  const Json* schema = &root;
  for (bool deeper = true; deeper;) {
    deeper = false;
    const Json* next = nullptr;
    std::string place;
    each_subschema(*schema, at, [&](const Json& inner, const std::string& there) {
      if (!next && inner.is_object() && fails(inner)) {
        next = &inner;
        place = there;
      }
    });
    if (next) {
      schema = next;
      at = place;
      deeper = true;
    }
  }
  return at;
}

Result<Grammar> GrammarCompiler::compile_schema(Json schema, bool strict,
                                                const std::string& whitespace) const {
  if (!schema.is_object() && !schema.is_boolean()) {
    return bad("schema", "expected a JSON schema, an object, found " + json_text(schema).substr(0, 80));
  }
  TRY(check_schema(schema, ""));
  Grammar out;
  schema = enforceable(std::move(schema), out.ignored_);
  TRY(check_numbers(schema, "schema"));
  if (strict && !out.ignored_.empty()) {
    return bad(out.ignored_[0], "the keyword cannot be enforced, and the schema is strict");
  }
  std::string warnings;
  Result<std::unique_ptr<Matcher>> made =
      whitespace.empty()
          ? matcher(TK_JSON_SCHEMA, json_text(schema), strict, "schema", &warnings)
          : matcher(TK_LARK, "start: " + lark_json(schema, whitespace), strict, "schema", &warnings);
  if (!made) {
    const std::string place = place_of_fault(schema, strict);
    return bad(place.empty() ? "schema" : place, made.error().message);
  }
  if (strict && !warnings.empty() && !warnings.starts_with("oneOf")) return bad("schema", warnings);
  if (!warnings.empty()) out.ignored_.push_back(warnings);
  out.first_ = made.take();
  return out;
}

Result<Grammar> GrammarCompiler::compile(const GrammarSpec& spec) const {
  Json strict = Json::array({spec.strict});
  for (const GrammarSpec::Part& part : spec.parts)
    if (part.strict) strict.push_back(part.where);
  const std::string key =
      std::to_string(int(spec.kind)) +
      json_text({strict, spec.schema, spec.text, spec.choice, spec.whitespace, spec.ignored});
  if (std::optional<Grammar> kept = kept_->find(key)) return std::move(*kept);
  Grammar made = TRY(compile_new(spec));
  kept_->add(key, made);
  return made;
}

Result<Grammar> GrammarCompiler::compile_new(const GrammarSpec& spec) const {
  using Kind = GrammarSpec::Kind;
  switch (spec.kind) {
    case Kind::JsonSchema:
      return compile_schema(spec.schema, spec.strict, spec.whitespace);
    case Kind::JsonObject:
      return compile_schema({{"type", "object"}}, true);
    case Kind::Regex:
      return compile_text(TK_REGEX, spec.text, spec, "regex");
    case Kind::Choice:
      return compile_text(TK_REGEX, TRY(regex_of_choice(spec.choice)), spec, "choice");
    case Kind::Lark:
      return compile_text(TK_LARK, spec.text, spec, "grammar");
    case Kind::Gbnf:
      return compile_text(TK_LARK, TRY(lark_of_gbnf(spec.text)), spec, "grammar");
    case Kind::Tags:
      break;
  }
  TRY(check_schema(spec.schema, "", "structural_tag"));
  const GrammarSpec lark = TRY(structural_grammar(spec.schema));
  return compile_text(TK_LARK, lark.text, lark, "structural_tag");
}

Result<Grammar> GrammarCompiler::compile_text(int kind, const std::string& text, const GrammarSpec& spec,
                                              const char* where) const {
  TRY(check_size(text, where));
  for (const GrammarSpec::Part& part : spec.parts) {
    TRY(check_schema(part.schema, part.where));
    TRY(check_numbers(part.schema, part.where.empty() ? "schema" : part.where));
  }
  Grammar out;
  std::string warnings;
  Result<std::unique_ptr<Matcher>> made = matcher(kind, text, true, where, &warnings);
  for (const GrammarSpec::Part& one : spec.parts) {  // is it one of these?
    if (made && (warnings.empty() || !one.strict)) continue;
    const Result<Grammar> part = compile_schema(one.schema, one.strict);
    if (part) continue;
    const std::string place = one.where + (part.error().where == "schema" ? "" : part.error().where);
    return bad(place.empty() ? "schema" : place, part.error().message);
  }
  out.first_ = TRY(std::move(made));
  out.ignored_ = spec.ignored;
  if (!warnings.empty()) out.ignored_.push_back(warnings);
  return out;
}

}  // namespace invar
