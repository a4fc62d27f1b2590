#include "text/grammar.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "text/textkit_error.h"
#include "textkit.h"

namespace invar {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxNesting = 64;
constexpr int kMaxTrials = 200;  // when looking for the place of a fault
constexpr size_t kMaxChoices = 1000;
constexpr size_t kMaxKept = 64;

Error bad(std::string where, std::string message) {
  return Error{Code::BadRequest, std::move(where), std::move(message)};
}

int depth_of(const Json& value, int depth = 0) {
  if (depth > kMaxNesting || !value.is_structured()) return depth;
  int deepest = depth;
  for (const Json& item : value) deepest = std::max(deepest, depth_of(item, depth + 1));
  return deepest;
}

std::string pointer_part(const std::string& key) {
  std::string out = "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

// Schemas within a schema, with their places.
template <class Visit>
void each_subschema(const Json& schema, const std::string& at, const Visit& visit) {
  if (!schema.is_object()) return;
  for (const auto& [key, value] : schema.items()) {
    const std::string there = at + pointer_part(key);
    const bool map =
        key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions";
    if (value.is_object() && map) {
      for (const auto& [name, inner] : value.items()) visit(inner, there + pointer_part(name));
    } else if (value.is_array() &&
               (key == "anyOf" || key == "oneOf" || key == "allOf" || key == "prefixItems")) {
      for (size_t i = 0; i < value.size(); i++) visit(value[i], there + "/" + std::to_string(i));
    } else if (value.is_object() && (key == "items" || key == "additionalProperties")) {
      visit(value, there);
    }
  }
}

// Keywords that say nothing about values.
constexpr std::string_view kNotes[] = {"$anchor",     "$defs",      "definitions",      "$schema",
                                       "$id",         "id",         "$comment",         "title",
                                       "description", "default",    "readOnly",         "writeOnly",
                                       "examples",    "deprecated", "contentMediaType", "contentEncoding"};
constexpr std::string_view kEnforced[] = {"anyOf",
                                          "oneOf",
                                          "allOf",
                                          "$ref",
                                          "const",
                                          "enum",
                                          "type",
                                          "items",
                                          "additionalItems",
                                          "prefixItems",
                                          "minItems",
                                          "maxItems",
                                          "properties",
                                          "additionalProperties",
                                          "patternProperties",
                                          "required",
                                          "minProperties",
                                          "maxProperties",
                                          "minLength",
                                          "maxLength",
                                          "pattern",
                                          "format",
                                          "minimum",
                                          "maximum",
                                          "exclusiveMinimum",
                                          "exclusiveMaximum",
                                          "multipleOf",
                                          "nullable"};

bool one_of(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

void clean(Json& schema, const std::string& at, std::vector<std::string>& ignored) {
  if (!schema.is_object()) return;
  for (auto it = schema.begin(); it != schema.end();) {
    const bool known = one_of(kNotes, it.key()) || one_of(kEnforced, it.key());
    if (!known) ignored.push_back(at + pointer_part(it.key()));
    it = known ? std::next(it) : schema.erase(it);
  }
  each_subschema(schema, at, [&](const Json& inner, const std::string& there) {
    clean(const_cast<Json&>(inner), there, ignored);  // a part of `schema`, which is ours
  });
  if (const auto nullable = schema.find("nullable"); nullable != schema.end()) {
    const bool on = *nullable == true;
    schema.erase("nullable");
    if (on && schema.contains("type") && schema["type"].is_string()) {
      schema["type"] = Json::array({schema["type"], "null"});
    }
  }
}

std::string regex_literal(std::string_view text) {
  constexpr std::string_view kSpecial = "\\^$.|?*+()[]{}/-&~#";
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (kSpecial.find(c) != kSpecial.npos) out += std::string("\\") + c;
    else out += c;
  }
  return out;
}

}  // namespace

Json enforceable(Json schema, std::vector<std::string>& ignored) {
  clean(schema, "", ignored);
  return schema;
}

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

std::unique_ptr<Matcher> Matcher::copy() const {
  tk_matcher* kit = nullptr;
  char* message = nullptr;
  const tk_code code = tk_matcher_copy(kit_.get(), &kit, &message);
  CHECK(code == TK_OK);  // there is nothing in it that can fail
  return std::unique_ptr<Matcher>(new Matcher(kit));
}

std::unique_ptr<Matcher> Grammar::start() const { return first_->copy(); }

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
  const auto fails = [&](const Json& schema) {
    if (++trials > kMaxTrials) return false;
    Json alone = schema;
    for (const char* key : {"$defs", "definitions"}) {
      if (alone.is_object() && root.contains(key) && !alone.contains(key)) alone[key] = root[key];
    }
    return !matcher(TK_JSON_SCHEMA, json_text(alone), strict, "schema", nullptr);
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

Result<Grammar> GrammarCompiler::compile_schema(Json schema, bool strict) const {
  if (!schema.is_object() && !schema.is_boolean()) {
    return bad("schema", "expected a JSON schema, an object, found " + json_text(schema).substr(0, 80));
  }
  if (const size_t size = json_text(schema).size(); size > kMaxBytes) {
    return bad("schema",
               "expected at most " + std::to_string(kMaxBytes) + " bytes, found " + std::to_string(size));
  }
  if (depth_of(schema) > kMaxNesting) {
    return bad("schema", "expected at most " + std::to_string(kMaxNesting) + " nested values");
  }
  Grammar out;
  schema = enforceable(std::move(schema), out.ignored_);
  if (strict && !out.ignored_.empty()) {
    return bad(out.ignored_[0], "the keyword cannot be enforced, and the schema is strict");
  }
  std::string warnings;
  Result<std::unique_ptr<Matcher>> made =
      matcher(TK_JSON_SCHEMA, json_text(schema), strict, "schema", &warnings);
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
  const std::string key = std::to_string(int(spec.kind)) + (spec.strict ? "!" : "?") +
                          json_text({spec.schema, spec.text, spec.choice});
  if (std::optional<Grammar> kept = kept_->find(key)) return std::move(*kept);
  Grammar made = TRY(compile_new(spec));
  kept_->add(key, made);
  return made;
}

Result<Grammar> GrammarCompiler::compile_new(const GrammarSpec& spec) const {
  using Kind = GrammarSpec::Kind;
  if (spec.kind == Kind::JsonSchema) return compile_schema(spec.schema, spec.strict);
  if (spec.kind == Kind::JsonObject) return compile_schema({{"type", "object"}}, true);
  const bool choice = spec.kind == Kind::Choice;
  const char* where = choice ? "choice" : spec.kind == Kind::Regex ? "regex" : "grammar";
  std::string text = spec.text;
  if (choice) {
    if (spec.choice.empty() || spec.choice.size() > kMaxChoices) {
      return bad(where, "expected 1 to " + std::to_string(kMaxChoices) + " texts, found " +
                            std::to_string(spec.choice.size()));
    }
    for (const std::string& one : spec.choice) (text += '|') += regex_literal(one);
    text = "(" + text.substr(1) + ")";
  }
  if (text.empty() || text.size() > kMaxBytes) {
    return bad(where,
               "expected 1 to " + std::to_string(kMaxBytes) + " bytes, found " + std::to_string(text.size()));
  }
  Grammar out;
  Result<std::unique_ptr<Matcher>> made =
      matcher(spec.kind == Kind::Lark ? TK_LARK : TK_REGEX, text, true, where, nullptr);
  for (size_t i = 0; !made && i < spec.parts.size(); i++) {  // is it one of these?
    const Result<Grammar> part = compile_schema(spec.parts[i].schema, false);
    if (part) continue;
    const std::string inner = part.error().where == "schema" ? "" : part.error().where;
    return bad(spec.parts[i].where + inner, part.error().message);
  }
  out.first_ = TRY(std::move(made));
  return out;
}

}  // namespace invar
