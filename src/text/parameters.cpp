#include "text/parameters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "text/lark.h"
#include "text/schema.h"
#include "text/tool_table.h"

namespace invar {

namespace {

constexpr int kMaxSteps = 1'000'000;  // keywords and choices that are looked at

using Schemas = std::vector<const Json*>;  // that hold at once

constexpr std::array<const char*, 4> kOfTexts = {"pattern", "format", "minLength", "maxLength"};
constexpr std::array<const char*, 5> kOfNumbers = {"minimum", "maximum", "exclusiveMinimum",
                                                   "exclusiveMaximum", "multipleOf"};
constexpr std::array<const char*, 11> kOfMembers = {
    "items",    "additionalItems",      "prefixItems",   "minItems",      "maxItems",         "properties",
    "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"};

void add_once(std::vector<std::string>& list, std::string one) {
  if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(std::move(one));
}

class TextReader {
 public:
  TextReader(const Json& root, const Json& schema, int& steps)
      : root_(root), schema_(schema), steps_(steps) {}

  ValueText read() {
    visit({&schema_}, 0, 0);
    const bool none = literals_.empty() && patterns_.empty();
    if (none && !any_) ignore(member(schema_, "enum") ? "enum" : "type");  // nothing would be allowed
    ValueText out;
    out.ignored = std::move(ignored_);
    if (any_ || none) return out;
    std::string& all = patterns_.empty() ? out.choices : out.terminal;
    for (const std::string& text : literals_) add_alternative(all, lark_text(text));
    if (!patterns_.empty()) add_alternative(all, patterns_);
    return out;
  }

 private:
  void ignore(std::string_view keyword) { add_once(ignored_, place_through(schema_, keyword)); }
  void ignore_all(const Schemas& all, std::span<const char* const> keywords) {
    for (const Json* one : all)
      for (const char* keyword : keywords)
        if (member(*one, keyword)) ignore(keyword);
  }

  // Adds the texts of what all of them allow.  What they refer to is added from `fresh` on; alternatives
  // within those before `open` were chosen.
  void visit(Schemas all, size_t fresh, size_t open) {
    for (const Json* one : all) steps_ += 1 + int(one->size());
    if (steps_ > kMaxSteps) {
      any_ = true;
      ignore("");
      return;
    }
    if (const std::string_view lost = add_referred(root_, all, fresh); !lost.empty()) ignore(lost);
    if (add_choices(all)) return;
    for (size_t i = open; i < all.size(); i++) {
      const Json *any_of = member(*all[i], "anyOf"), *one_of = member(*all[i], "oneOf");
      if (any_of && one_of) ignore("oneOf");
      const Json* ways = any_of ? any_of : one_of;
      if (!ways || !ways->is_array()) continue;
      for (const Json& way : *ways) {
        Schemas inner = all;
        inner.push_back(&way);
        visit(std::move(inner), all.size(), i + 1);
      }
      return;
    }
    add_types(all);
  }

  // What `const` and `enum` list, if they do.
  bool add_choices(const Schemas& all) {
    std::optional<std::vector<std::string>> texts;
    const auto meet = [&](const Json& values) {
      std::vector<std::string> listed;
      for (const Json& value : values)
        listed.push_back(value.is_string() ? value.get<std::string>() : json_text(value));
      steps_ += int(listed.size());
      const std::set<std::string> known(listed.begin(), listed.end());
      if (!texts) texts = std::move(listed);
      else std::erase_if(*texts, [&](const std::string& text) { return !known.contains(text); });
    };
    for (const Json* one : all) {
      if (const Json* value = member(*one, "const")) meet(Json::array({*value}));
      if (const Json* values = member(*one, "enum"); values && values->is_array()) meet(*values);
    }
    if (!texts) return false;
    for (std::string& text : *texts) add_literal(std::move(text));
    return true;
  }

  void add_types(const Schemas& all) {
    unsigned types = ~0u;
    for (const Json* one : all)
      if (const Json* type = member(*one, "type")) {
        const unsigned named = named_types(*type);
        types &= (named & kNumber) != 0 ? named | kInteger : named;
      }
    if (types == ~0u) {  // any value
      any_ = true;
      for (const std::span<const char* const> keywords :
           {std::span<const char* const>(kOfTexts), std::span<const char* const>(kOfNumbers),
            std::span<const char* const>(kOfMembers)})
        ignore_all(all, keywords);
      return;
    }
    if ((types & kString) != 0) add_strings(all);
    if ((types & kNull) != 0) add_literal("null");
    if ((types & kBoolean) != 0) add_literal("true"), add_literal("false");
    if ((types & (kInteger | kNumber)) != 0) {
      constexpr const char* kRest = "(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
      const std::string whole = "-?(0|[1-9][0-9]*)";
      add_alternative(patterns_, lark_regex((types & kNumber) != 0 ? whole + kRest : whole));
      ignore_all(all, kOfNumbers);
    }
    if ((types & (kObject | kArray)) != 0) {
      any_ = true;
      ignore_all(all, kOfMembers);
    }
  }

  void add_strings(const Schemas& all) {
    std::string texts;
    for (const Json* one : all) {
      Json says = Json::object();
      for (const char* keyword : kOfTexts)
        if (const Json* value = member(*one, keyword)) says[keyword] = *value;
      Result<std::string> text = lark_string(says);
      while (!text) {
        const std::string keyword = text.error().where.substr(1);
        ignore(keyword);
        says.erase(keyword);
        text = lark_string(says);
      }
      if (!text->empty()) texts += (texts.empty() ? "" : " & ") + *text;
    }
    if (texts.empty()) any_ = true;
    else add_alternative(patterns_, "(" + texts + ")");
  }

  void add_literal(std::string text) {
    if (known_.insert(text).second) literals_.push_back(std::move(text));
  }

  const Json& root_;
  const Json& schema_;
  int& steps_;
  bool any_ = false;
  std::vector<std::string> literals_;
  std::set<std::string> known_;  // of them
  std::string patterns_;         // alternatives
  std::vector<std::string> ignored_;
};

}  // namespace

ParameterList parameter_list(const Json& schema) {
  Schemas all = {&schema};
  ParameterList out;
  const auto ignore = [&](std::string_view keyword) {
    add_once(out.ignored, place_through(schema, keyword));
  };
  const std::string_view lost = add_referred(schema, all);
  bool closed = false, more = !lost.empty(), others = false;
  std::set<std::string> known;
  for (const Json* one : all) {
    if (const Json* properties = member(*one, "properties"); properties && properties->is_object())
      for (const auto& [key, value] : properties->items()) {
        if (known.insert(key).second) out.properties.emplace_back(key, &value);
        else ignore("properties");
      }
    if (const Json* required = member(*one, "required"); required && required->is_array())
      for (const Json& name : *required)
        if (name.is_string()) out.required.insert(name.get<std::string>());
    for (const char* keyword : {"anyOf", "oneOf", "const", "enum"}) {
      if (!member(*one, keyword)) continue;
      more = true;
      ignore(keyword);
    }
    const Json *others_are = member(*one, "additionalProperties"),
               *by_name = member(*one, "patternProperties");
    if (others_are && *others_are == false) closed = true;
    else if (others_are) others = true;
    if (by_name && !by_name->empty()) others = true;
  }
  if (!lost.empty()) ignore(lost);
  out.open = out.properties.empty() && (others || (more && !closed));
  for (const Json* one : all) {
    const Json *least = member(*one, "minProperties"), *most = member(*one, "maxProperties");
    if (least && *least > out.required.size()) ignore("minProperties");
    if (most && (out.open || *most < out.properties.size())) ignore("maxProperties");
    if (!out.open) continue;
    for (const char* keyword : {"additionalProperties", "patternProperties"})
      if (const Json* of = member(*one, keyword); of && of->is_object() && !of->empty()) ignore(keyword);
  }
  for (const std::string& name : out.required)
    if (!known.contains(name)) ignore("required");
  return out;
}

ValueText value_text(const Json& root, const Json& schema, int& steps) {
  return TextReader(root, schema, steps).read();
}

}  // namespace invar
