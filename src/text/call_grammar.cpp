#include "text/call_grammar.h"

#include <algorithm>
#include <utility>

#include "text/gbnf.h"
#include "text/lark.h"
#include "text/parameters.h"
#include "text/schema.h"
#include "text/tool_table.h"

namespace invar {

namespace {

constexpr size_t kMaxTools = 512;
constexpr size_t kMaxBytes = size_t{1} << 20;  // of the grammar: definitions are repeated in it

// A text of a Lark grammar: literals side by side become one, markers are tokens where the vocabulary has
// them.
class Sequence {
 public:
  explicit Sequence(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Sequence& text(std::string_view literal) {
    literal_ += literal;
    return *this;
  }
  Sequence& marker(std::string_view marker) {
    if (const auto id = special(tokenizer_, marker)) return rule("<[" + std::to_string(*id) + "]>");
    return text(marker);
  }
  Sequence& rule(const std::string& name) {
    flush();
    out_ += out_.empty() ? "" : " ";
    out_ += name;
    return *this;
  }
  std::string str() {
    flush();
    return out_.empty() ? "\"\"" : out_;
  }

  static std::optional<Token> special(const Tokenizer& tokenizer, std::string_view marker) {
    const auto id = marker.empty() ? std::nullopt : tokenizer.find(marker);
    if (!id) return {};
    const TokenType type = tokenizer.type(*id);
    return type == TokenType::Control || type == TokenType::UserDefined ? id : std::nullopt;
  }

 private:
  void flush() {
    if (literal_.empty()) return;
    out_ += out_.empty() ? "" : " ";
    out_ += json_text(literal_);
    literal_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string out_, literal_;
};

class Builder {
 public:
  Builder(const CallRules& rules, const AnswerFormat& format, const Tokenizer& tokenizer)
      : rules_(rules), f_(format), t_(format.tags), tokenizer_(tokenizer), table_(rules.tools) {}

  Result<GrammarSpec> build() {
    TRY(add_tools());
    std::string begin = TRY(start());
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::Lark;
    spec.text = begin + out_;
    spec.parts = std::move(parts_);
    spec.ignored = std::move(ignored_);
    return spec;
  }

 private:
  Sequence sequence() const { return Sequence(tokenizer_); }
  void add(const std::string& name, const std::string& body) { out_ += name + ": " + body + "\n"; }

  Result<std::string> start() {
    const bool one = !rules_.parallel || f_.call_end.empty();
    std::string more;
    if (!one) more = t_.newlines || f_.calls == AnswerFormat::Calls::Json ? " (\"\\n\" call)*" : " call*";
    const std::string calls = "call" + more;
    if (rules_.required) return "start: " + calls + "\n";
    if (rules_.content) {
      add("content", TRY(content(*rules_.content)));
      return "start: content | " + calls + "\n";
    }
    // Any text, and then perhaps calls.
    if (f_.call_end.empty()) {  // calls have no beginning of their own but {
      add("FREE", "/([^{](?s:.*))?/");
      return "start: FREE | " + calls + "\n";
    }
    add("FREE", "/(?s:.*)/");
    if (Sequence::special(tokenizer_, f_.call_begin)) return "start: FREE (" + calls + ")?\n";
    add("begin[lazy]", "/(?s:.*)" + regex_literal(f_.call_begin) + "/");
    return "start: FREE | begin body" + more + "\n";
  }

  Result<std::string> content(const GrammarSpec& spec) {
    using Kind = GrammarSpec::Kind;
    switch (spec.kind) {
      case Kind::JsonSchema: {
        std::vector<std::string> ignored;
        Json schema = enforceable(spec.schema, ignored);
        if (spec.strict && !ignored.empty())
          return Error{Code::BadRequest, ignored[0],
                       "the keyword cannot be enforced, and the schema is strict"};
        ignored_.insert(ignored_.end(), ignored.begin(), ignored.end());
        parts_.push_back({"", schema, spec.strict});
        return lark_json(std::move(schema));
      }
      case Kind::JsonObject:
        return lark_json({{"type", "object"}});
      case Kind::Regex:
        return lark_regex(spec.text);
      case Kind::Choice: {
        std::string all;
        for (const std::string& one : spec.choice) add_alternative(all, lark_text(one));
        return all;
      }
      case Kind::Lark:
        return lark_nested(spec.text);
      case Kind::Gbnf:
        return lark_nested(TRY(lark_of_gbnf(spec.text)));
      case Kind::Tags:
        break;
    }
    return Error{Code::BadRequest, "structural_tag", "expected no other grammar beside structural tags"};
  }

  Status add_tools() {
    if (!rules_.tools.is_array() || rules_.tools.empty() || rules_.tools.size() > kMaxTools)
      return Error{Code::BadRequest, "tools", "expected 1 to " + std::to_string(kMaxTools) + " tools"};
    std::string names;
    for (size_t i = 0; i < rules_.tools.size(); i++) {
      const Json& tool = rules_.tools[i];
      if (!tool.is_object()) continue;
      const Json& function = tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
      const std::string name = function["name"].get<std::string>();
      const auto& wanted = rules_.names;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
      const std::string where = "/tools/" + std::to_string(i) + "/function/parameters";
      const std::string rule = "f" + std::to_string(i);
      const bool strict = std::find(rules_.strict.begin(), rules_.strict.end(), name) != rules_.strict.end();
      std::vector<std::string> ignored;
      Json asked = function.value("parameters", Json::object());
      TRY(check_schema(asked, where));
      const Json parameters = enforceable(std::move(asked), ignored);
      if (f_.calls == AnswerFormat::Calls::Json) add_json(rule, name, parameters, where, strict);
      else TRY(add_tags(rule, name, parameters, where, strict, ignored));
      if (strict && !ignored.empty())
        return Error{Code::BadRequest, where + ignored[0],
                     "the keyword cannot be enforced, and the tool is strict"};
      for (const std::string& place : ignored) ignored_.push_back(where + place);
      add_alternative(names, rule);
    }
    if (names.empty()) {
      const std::string all = rules_.names.empty() ? "" : rules_.names[0];
      return Error{Code::BadRequest, "tool_choice",
                   "expected the name of one of the tools, found '" + all + "'"};
    }
    Sequence call = sequence();
    const bool lines = t_.newlines || f_.calls == AnswerFormat::Calls::Json;
    const std::string newline = lines && !f_.call_end.empty() ? "\n" : "";
    if (!f_.call_end.empty()) call.marker(f_.call_begin);
    add("call", call.rule("body").str());
    add("body", sequence().text(newline).rule("(" + names + ")").text(newline).marker(f_.call_end).str());
    return Ok{};
  }

  void add_json(const std::string& rule, const std::string& name, Json parameters, const std::string& where,
                bool strict) {
    if (!parameters.is_object()) parameters = Json::object();
    if (!parameters.contains("type")) parameters["type"] = "object";
    parts_.push_back({where, parameters, strict});
    add(rule + "_args", lark_json(std::move(parameters)));
    const std::string key = std::string(f_.arguments_key);
    add(rule, sequence()
                  .text("{\"name\": " + json_text(name) + ", \"" + key + "\": ")
                  .rule(rule + "_args")
                  .text("}")
                  .str());
  }

  Status add_tags(const std::string& rule, const std::string& name, const Json& parameters,
                  const std::string& where, bool strict, std::vector<std::string>& ignored) {
    const std::string newline = t_.newlines ? "\n" : "";
    Sequence call = sequence();
    call.marker(t_.name_begin).text(name).marker(t_.name_end).text(newline);
    const ParameterList list = parameter_list(parameters);
    ignored.insert(ignored.end(), list.ignored.begin(), list.ignored.end());
    int n = 0;
    for (const auto& [key, schema] : list.properties) {
      const std::string inner = rule + "_" + std::to_string(n++), place = "/properties" + pointer_part(key);
      Sequence one = sequence();
      one.marker(t_.key_begin).text(key).marker(t_.key_end).text(newline).marker(t_.value_begin);
      const unsigned types = table_.types(name, key);
      if (types == 0 || (types & kString) != 0) {
        const ValueText value = value_text(parameters, *schema, steps_);
        for (const std::string& lost : value.ignored) ignored.push_back(place + lost);
        add_text_value(one, "V" + inner.substr(1), value);
      } else {
        const Json& part = add_part(*schema, parameters, where + place, strict);
        add(inner + "_v", lark_json(part));
        one.rule(inner + "_v").text(newline).marker(t_.value_end);
      }
      add(inner, one.text(newline).str());
      call.rule(inner + (list.required.contains(key) ? "" : "?"));
      if (out_.size() > kMaxBytes)
        return Error{
            Code::BadRequest, where,
            "expected schemas that are a grammar of at most " + std::to_string(kMaxBytes) + " bytes"};
    }
    if (list.open) {
      if (!std::exchange(has_key_, true)) add("KEY", "/[^<>\\s]([^<>\\n]{0,200}[^<>\\s])?/");
      Sequence one = sequence();
      one.marker(t_.key_begin).rule("KEY").marker(t_.key_end).text(newline).marker(t_.value_begin);
      add_text_value(one, "", {});
      add(rule + "_any", one.text(newline).str());
      call.rule(rule + "_any*");
    }
    add(rule, call.marker(t_.call_close).str());
    return Ok{};
  }

  // The value as it is, and the tag behind it.  Up to the tag it is one terminal, so that nothing of the end
  // is taken for the value.
  void add_text_value(Sequence& out, const std::string& terminal, const ValueText& value) {
    const std::string newline = t_.newlines ? "\n" : "";
    if (!value.choices.empty()) {
      out.rule("(" + value.choices + ")").text(newline).marker(t_.value_end);
      return;
    }
    const std::string& text = value.terminal;
    const bool marker = Sequence::special(tokenizer_, t_.value_end).has_value();
    const std::string name = text.empty() ? "FREE_VALUE" : terminal, end = regex_literal(t_.value_end),
                      last = regex_literal(newline) + (marker ? "" : end);
    if (!text.empty() || !std::exchange(has_free_, true))
      add(name, "(" + (text.empty() ? "/(?s:.*)/" : text) + ")" + (last.empty() ? "" : " /" + last + "/") +
                    " & ~/(?s:.*)" + end + (marker ? "(?s:.*)/" : "(?s:.+)/"));
    out.rule(name);
    if (marker) out.marker(t_.value_end);
  }

  // A schema by itself, with the definitions of the whole.
  const Json& add_part(const Json& schema, const Json& parameters, const std::string& where, bool strict) {
    Json alone = schema;
    for (const char* defs : {"$defs", "definitions"})
      if (parameters.contains(defs) && !alone.contains(defs)) alone[defs] = parameters[defs];
    parts_.push_back({where, std::move(alone), strict});
    return parts_.back().schema;
  }

  const CallRules& rules_;
  const AnswerFormat& f_;
  const CallTags& t_;
  const Tokenizer& tokenizer_;
  const ToolTable table_;
  std::string out_;
  std::vector<GrammarSpec::Part> parts_;
  std::vector<std::string> ignored_;
  bool has_free_ = false, has_key_ = false;
  int steps_ = 0;
};

}  // namespace

Result<GrammarSpec> call_grammar(const CallRules& rules, const AnswerFormat& format,
                                 const Tokenizer& tokenizer) {
  if (!format.has_calls())
    return Error{Code::BadRequest, "tool_choice",
                 "expected auto or none, the model's template has no tool calls"};
  return Builder(rules, format, tokenizer).build();
}

std::vector<std::string> call_begins(const AnswerFormat& format) {
  std::vector<std::string> out;
  if (!format.call_begin.empty()) out.emplace_back(format.call_begin);
  if (format.bare && !format.tags.name_begin.empty()) out.emplace_back(format.tags.name_begin);
  return out;
}

}  // namespace invar
