#include "text/call_grammar.h"

#include <algorithm>

#include "text/tool_table.h"

namespace invar {

namespace {

constexpr size_t kMaxTools = 512;

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

void add_choice(std::string& list, const std::string& one) {
  list += list.empty() ? "" : " | ";
  list += one;
}

std::string in_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\\n";
    else if (std::string_view("\\^$.|?*+()[]{}/").find(c) != std::string_view::npos) out += {'\\', c};
    else out += c;
  }
  return out;
}

std::string json_rule(Json schema) {
  if (!schema.is_object()) schema = Json::object();
  schema["x-guidance"] = {{"whitespace_flexible", false}, {"lenient", true}, {"coerce_one_of", true}};
  return "%json " + json_text(schema);
}

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
    return spec;
  }

 private:
  Sequence sequence() const { return Sequence(tokenizer_); }
  void add(const std::string& name, const std::string& body) { out_ += name + ": " + body + "\n"; }

  Result<std::string> start() {
    const bool one = !rules_.parallel || f_.call_end.empty();
    std::string calls = "call";
    if (!one) calls += t_.newlines || f_.calls == AnswerFormat::Calls::Json ? " (\"\\n\" call)*" : " call*";
    if (rules_.required) return "start: " + calls + "\n";
    if (!rules_.content) {  // any text, and then perhaps calls
      const bool token = Sequence::special(tokenizer_, f_.call_begin).has_value();
      if (!token) add_without("FREE", f_.call_begin);
      else add("FREE", "/(?s:.*)/");
      return "start: FREE (" + calls + ")?\n";
    }
    add("content", TRY(content(*rules_.content)));
    return "start: content | " + calls + "\n";
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
        parts_.push_back({"", schema});
        return json_rule(std::move(schema));
      }
      case Kind::JsonObject:
        return json_rule({{"type", "object"}});
      case Kind::Regex: {
        std::string escaped;
        for (size_t i = 0; i < spec.text.size(); i++) {
          const char c = spec.text[i];
          if (c == '\\' && i + 1 < spec.text.size()) escaped += {c, spec.text[++i]};
          else if (c == '/') escaped += "\\/";
          else if (c == '\n') escaped += "\\n";
          else escaped += c;
        }
        return "/" + escaped + "/";
      }
      case Kind::Choice: {
        std::string all;
        for (const std::string& one : spec.choice) add_choice(all, json_text(one));
        return all;
      }
      case Kind::Lark:
        break;
    }
    return Error{Code::BadRequest, "grammar", "expected no tools beside a grammar"};
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
      std::vector<std::string> ignored;
      const Json parameters = enforceable(function.value("parameters", Json::object()), ignored);
      if (f_.calls == AnswerFormat::Calls::Json) add_json(rule, name, parameters, where);
      else add_tags(rule, name, parameters, where);
      add_choice(names, rule);
    }
    if (names.empty()) {
      const std::string all = rules_.names.empty() ? "" : rules_.names[0];
      return Error{Code::BadRequest, "tool_choice",
                   "expected the name of one of the tools, found '" + all + "'"};
    }
    Sequence call = sequence();
    const bool lines = t_.newlines || f_.calls == AnswerFormat::Calls::Json;
    const std::string newline = lines && !f_.call_end.empty() ? "\n" : "";
    if (!f_.call_end.empty()) call.marker(f_.call_begin).text(newline);
    call.rule("(" + names + ")").text(newline).marker(f_.call_end);
    add("call", call.str());
    return Ok{};
  }

  void add_json(const std::string& rule, const std::string& name, Json parameters, const std::string& where) {
    if (!parameters.is_object()) parameters = Json::object();
    if (!parameters.contains("type")) parameters["type"] = "object";
    parts_.push_back({where, parameters});
    add(rule + "_args", json_rule(std::move(parameters)));
    const std::string key = std::string(f_.arguments_key);
    add(rule, sequence()
                  .text("{\"name\": " + json_text(name) + ", \"" + key + "\": ")
                  .rule(rule + "_args")
                  .text("}")
                  .str());
  }

  void add_tags(const std::string& rule, const std::string& name, const Json& parameters,
                const std::string& where) {
    const std::string newline = t_.newlines ? "\n" : "";
    Sequence call = sequence();
    call.marker(t_.name_begin).text(name).marker(t_.name_end).text(newline);
    Json properties =
        parameters.is_object() ? parameters.value("properties", Json::object()) : Json::object();
    if (!properties.is_object()) properties = Json::object();
    const Json required =
        parameters.is_object() ? parameters.value("required", Json::array()) : Json::array();
    int n = 0;
    for (const auto& [key, schema] : properties.items()) {
      const std::string inner = rule + "_" + std::to_string(n++);
      const bool must = std::find(required.begin(), required.end(), Json(key)) != required.end();
      Sequence one = sequence();
      one.marker(t_.key_begin).text(key).marker(t_.key_end).text(newline).marker(t_.value_begin);
      add_value(one, inner + "_v", name, key, schema, parameters, where);
      add(inner, one.text(newline).str());
      call.rule(inner + (must ? "" : "?"));
    }
    add(rule, call.marker(t_.call_close).str());
  }

  // The value, and the tag behind it.
  void add_value(Sequence& out, const std::string& rule, const std::string& tool, const std::string& key,
                 const Json& schema, const Json& parameters, const std::string& where) {
    const std::string newline = t_.newlines ? "\n" : "";
    const unsigned types = table_.types(tool, key);
    if (types == 0 || (types & kString) != 0) {
      if (const std::string names = choices(schema); !names.empty()) {
        out.rule("(" + names + ")").text(newline).marker(t_.value_end);
      } else if (Sequence::special(tokenizer_, t_.value_end)) {
        if (!has_free_) add_without("FREE_VALUE", t_.value_end);
        has_free_ = true;
        out.rule("FREE_VALUE").text(newline).marker(t_.value_end);
      } else {
        const std::string end = in_regex(t_.value_end);
        if (!has_free_)
          add("FREE_VALUE", "/(?s:.*)" + in_regex(newline) + end + "/ & ~/(?s:.*)" + end + "(?s:.+)/");
        has_free_ = true;
        out.rule("FREE_VALUE");
      }
      return;
    }
    Json alone = schema;
    for (const char* defs : {"$defs", "definitions"})
      if (parameters.contains(defs) && !alone.contains(defs)) alone[defs] = parameters[defs];
    parts_.push_back({where + "/properties/" + key, alone});
    add(rule, json_rule(std::move(alone)));
    out.rule(rule).text(newline).marker(t_.value_end);
  }

  // A finite list of texts.
  static std::string choices(const Json& schema) {
    if (!schema.is_object()) return {};
    Json values = Json::array();
    if (schema.contains("const")) values = Json::array({schema["const"]});
    else if (schema.contains("enum") && schema["enum"].is_array()) values = schema["enum"];
    std::string out;
    for (const Json& value : values) {
      const std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
      add_choice(out, json_text(text));
    }
    return out;
  }

  void add_without(const std::string& name, std::string_view text) {
    add(name, "/(?s:.*)/ & ~/(?s:.*)" + in_regex(text) + "(?s:.*)/");
  }

  const CallRules& rules_;
  const AnswerFormat& f_;
  const CallTags& t_;
  const Tokenizer& tokenizer_;
  const ToolTable table_;
  std::string out_;
  std::vector<GrammarSpec::Part> parts_;
  bool has_free_ = false;
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
