#include "text/tool_table.h"

#include <charconv>
#include <optional>
#include <vector>

#include "text/json_scanner.h"
#include "text/schema.h"

namespace invar {

namespace {

constexpr int kMaxSteps = 24;  // through $ref and combinations
constexpr int kMaxNesting = 64;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

unsigned type_by_name(const Json& name) {
  if (!name.is_string()) return 0;
  const std::string& s = name.get_ref<const std::string&>();
  return s == "null"      ? kNull
         : s == "integer" ? kInteger
         : s == "number"  ? kNumber
         : s == "boolean" ? kBoolean
         : s == "object"  ? kObject
         : s == "array"   ? kArray
         : s == "string"  ? kString
                          : 0;
}

unsigned type_of_value(const Json& value) {
  return value.is_null()                                      ? kNull
         : value.is_number_integer() || is_big_integer(value) ? kInteger
         : value.is_number()                                  ? kNumber
         : value.is_boolean()                                 ? kBoolean
         : value.is_object()                                  ? kObject
         : value.is_array()                                   ? kArray
                                                              : kString;
}

unsigned schema_types(const Json& root, const Json& schema, int& steps) {
  if (!schema.is_object() || ++steps > kMaxSteps) return 0;
  const auto find = [&](const char* key) -> const Json* {
    const auto it = schema.find(key);
    return it == schema.end() ? nullptr : &*it;
  };
  unsigned types = 0;
  if (const Json* ref = find("$ref"); ref && ref->is_string()) {
    if (const Json* target = referred_schema(root, ref->get_ref<const std::string&>())) {
      types |= schema_types(root, *target, steps);
    }
  }
  if (const Json* type = find("type")) types |= named_types(*type);
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* parts = find(key);
    if (types != 0 || !parts || !parts->is_array()) continue;
    for (const Json& part : *parts) types |= schema_types(root, part, steps);
  }
  if (types == 0) {
    if (const Json* values = find("enum"); values && values->is_array()) {
      for (const Json& value : *values) types |= type_of_value(value);
    } else if (const Json* value = find("const")) {
      types = type_of_value(*value);
    } else if (find("properties")) {
      types = kObject;
    } else if (find("items")) {
      types = kArray;
    }
  }
  if (const Json* nullable = find("nullable"); types != 0 && nullable && *nullable == true) types |= kNull;
  return types;
}

// A number as JSON writes it, or nothing.
std::optional<std::string> number_json(std::string_view text, bool whole) {
  if (text.empty() || text.find_first_not_of("+-.0123456789eE") != text.npos) return {};
  if (!Json::accept(text)) return {};
  if (!whole) return std::string(text);
  std::string out(text);
  if (const size_t dot = out.find('.'); dot != out.npos) {  // 1.0 is an integer
    if (out.find_first_not_of('0', dot + 1) != out.npos) return {};
    out.erase(dot);
  }
  if (out.find_first_of("eE") != out.npos) return {};
  return out;
}

// A literal of Python, or of JSON, as JSON.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    std::string out;
    if (!value(out, 0)) return {};
    skip();
    if (at_ != text_.size()) return {};
    return out;
  }

 private:
  void skip() {
    const size_t next = text_.find_first_not_of(" \t\r\n", at_);
    at_ = next == text_.npos ? text_.size() : next;
  }
  bool eat(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }

  bool value(std::string& out, int depth) {
    skip();
    if (at_ == text_.size() || depth > kMaxNesting) return false;
    const char c = text_[at_];
    if (c == '\'' || c == '"') return string(out);
    if (c == '{') return items(out, '}', depth);
    if (c == '[') return items(out, ']', depth);
    if (c == '(') return items(out, ')', depth);
    const size_t end = std::min(text_.find_first_of(",]}):  \t\r\n", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    if (word == "True" || word == "true") out += "true";
    else if (word == "False" || word == "false") out += "false";
    else if (word == "None" || word == "null") out += "null";
    else if (auto number = number_json(word, false)) out += *number;
    else return false;
    return true;
  }

  bool items(std::string& out, char close, int depth) {
    at_++;
    out += close == '}' ? '{' : '[';
    for (bool first = true;; first = false) {
      if (eat(close)) break;
      if (!first) {
        if (!eat(',')) return false;
        if (eat(close)) break;
        out += ',';
      }
      if (close == '}') {
        skip();
        if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"') || !string(out)) return false;
        if (!eat(':')) return false;
        out += ':';
      }
      if (!value(out, depth + 1)) return false;
    }
    out += close == '}' ? '}' : ']';
    return true;
  }

  bool string(std::string& out) {
    const char quote = text_[at_++];
    std::string plain;
    for (; at_ < text_.size(); at_++) {
      const char c = text_[at_];
      if (c == quote) {
        at_++;
        out += '"' + json_escaped(plain) + '"';
        return true;
      }
      if (c != '\\') {
        plain += c;
        continue;
      }
      if (++at_ == text_.size()) return false;
      switch (text_[at_]) {
        case 'n':
          plain += '\n';
          break;
        case 't':
          plain += '\t';
          break;
        case 'r':
          plain += '\r';
          break;
        case '\\':
        case '\'':
        case '"':
          plain += text_[at_];
          break;
        default:
          return false;
      }
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// One value of JSON, which may stand inside another.
std::optional<Json> parsed_value(std::string_view text) {
  std::string list(1, '[');
  list += text;
  list += ']';
  Result<Json> parsed = parse_ordered_json(list, "value");
  if (!parsed || parsed->size() != 1) return {};
  return std::move((*parsed)[0]);
}

std::optional<std::string> container_json(std::string_view text, unsigned types) {
  const char open = text.empty() ? ' ' : text[0];
  const unsigned type = open == '{' ? kObject : open == '[' || open == '(' ? kArray : 0;
  if ((type & types) == 0) return {};
  if (parsed_value(text)) return std::string(text);
  return Literal(text).read();
}

std::optional<std::string> boolean_json(std::string_view text, bool digits) {
  if (text == "true" || text == "True" || (digits && text == "1")) return "true";
  if (text == "false" || text == "False" || (digits && text == "0")) return "false";
  return {};
}

std::string string_json(std::string_view text) { return '"' + json_escaped(text) + '"'; }

// Without a type: JSON that is no string and is written as JSON is.
std::string untyped_json(std::string_view text) {
  const std::string_view body = trimmed(text);
  const std::optional<Json> value = parsed_value(body);
  if (!value) return string_json(text);
  if (value->is_structured()) return std::string(body);
  if (value->is_string() || json_text(*value) != body) return string_json(text);
  return std::string(body);
}

}  // namespace

unsigned named_types(const Json& type) {
  unsigned types = type_by_name(type);
  if (type.is_array())
    for (const Json& name : type) types |= type_by_name(name);
  return types;
}

std::string typed_json(std::string_view text, unsigned types) {
  if (types == kString) return string_json(text);
  if (types == 0) return untyped_json(text);
  const std::string_view body = trimmed(text);
  if ((types & kNull) && (body == "null" || body == "None")) return "null";
  if (types & kInteger) {
    if (auto json = number_json(body, true)) return *json;
  }
  if (types & kNumber) {
    if (auto json = number_json(body, false)) return *json;
  }
  if (types & kBoolean) {
    const bool digits = (types & (kString | kInteger | kNumber)) == 0;
    if (auto json = boolean_json(body, digits)) return *json;
  }
  if (types & (kObject | kArray)) {
    if (auto json = container_json(body, types)) return *json;
  }
  return string_json(text);
}

ToolTable::ToolTable(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    parameters_.emplace(function["name"].get<std::string>(), function.value("parameters", Json::object()));
  }
}

bool ToolTable::begins(std::string_view prefix) const {
  const auto it = parameters_.lower_bound(prefix);
  return it != parameters_.end() && it->first.starts_with(prefix);
}

unsigned ToolTable::types(std::string_view tool, std::string_view key) const {
  const auto it = parameters_.find(tool);
  if (it == parameters_.end()) return 0;
  std::vector<const Json*> all = {&it->second};
  add_referred(it->second, all);
  for (const Json* one : all) {
    const Json* properties = member(*one, "properties");
    const Json* schema = properties ? member(*properties, key) : nullptr;
    int steps = 0;
    if (schema) return schema_types(it->second, *schema, steps);
  }
  return 0;
}

}  // namespace invar
