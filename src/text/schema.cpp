#include "text/schema.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace invar {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 20;
constexpr int kMaxNesting = 64;
constexpr int64_t kMaxValues = 30'000;
constexpr int64_t kMaxProperties = 5000;  // of one object: the time grows with their square
constexpr int64_t kMaxPatterns = 50;      // of names of properties: each is compared with each
constexpr int64_t kMaxAtOnce = 1000;      // what may come next: the parser follows each
constexpr int64_t kMaxTests = 16;         // that one value has to pass: a pattern or a format is one
constexpr int64_t kTestsPerDigit = 3;  // of what it is a multiple of; as many as what remains of a division
constexpr int kMaxSteps = 1000;        // through $ref and what is nested
constexpr size_t kMaxAtOne = 64;       // schemas that hold of one value

Error bad(std::string where, std::string message) {
  return Error{Code::BadRequest, std::move(where), std::move(message)};
}

std::string at_most(int64_t most, const char* what, int64_t found) {
  return "expected at most " + std::to_string(most) + " " + what + ", found " + std::to_string(found);
}

int64_t values_of(const Json& value) {
  int64_t n = 1;
  if (value.is_structured())
    for (const Json& item : value) n += values_of(item);
  return n;
}

int depth_of(const Json& value, int depth = 0) {
  if (depth > kMaxNesting || !value.is_structured()) return depth;
  int deepest = depth;
  for (const Json& item : value) deepest = std::max(deepest, depth_of(item, depth + 1));
  return deepest;
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

// Notes with values, which are dropped: their numbers may be any.
constexpr std::string_view kExamples[] = {"default", "examples"};
constexpr std::string_view kOfNumbers[] = {
    "enum",      "const",     "minimum",  "maximum",  "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "minProperties",    "maxProperties"};

// The compiler has doubles, which do not tell larger integers apart.
constexpr double kMostExact = 9007199254740991;  // 2^53 - 1

bool is_inexact(const Json& value) {
  if (value.is_structured()) return std::any_of(value.begin(), value.end(), is_inexact);
  return is_big_integer(value) || (value.is_number() && std::abs(value.get<double>()) > kMostExact);
}

// The types of values, as `type` has them.
Json types_of(const Json& values) {
  Json types = Json::array();
  for (const Json& value : values) {
    const bool whole = value.is_number_integer() || is_big_integer(value);
    const Json type = whole ? "integer" : value.type_name();
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

// Drops what says something about numbers that are inexact, but for their type.
void drop_inexact(Json& schema, const std::string& at, std::vector<std::string>& ignored) {
  for (const std::string_view key : kOfNumbers) {
    const auto it = schema.find(std::string(key));
    if (it == schema.end() || !is_inexact(*it)) continue;
    ignored.push_back(at + pointer_part(key));
    const Json value = std::move(*it);
    schema.erase(it);
    if (schema.contains("type")) continue;
    if (key == "enum") schema["type"] = types_of(value);
    if (key == "const") schema["type"] = types_of(Json::array({value}));
  }
}

bool one_of(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

void clean(Json& schema, const std::string& at, std::vector<std::string>& ignored) {
  if (!schema.is_object()) return;
  for (auto it = schema.begin(); it != schema.end();) {
    const bool known = one_of(kNotes, it.key()) || one_of(kEnforced, it.key());
    if (!known) ignored.push_back(at + pointer_part(it.key()));
    it = known && !one_of(kExamples, it.key()) ? std::next(it) : schema.erase(it);
  }
  drop_inexact(schema, at, ignored);
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

// What the parser will have to follow at once, counted without compiling anything.  It may be less: what is
// counted as properties of one value, or tests of it, may be of several.
class Costs {
 public:
  explicit Costs(const Json& root) : root_(root) {}

  // Of this schema and all within, the innermost first.
  std::optional<Error> fault(const Json& schema, const std::string& at) {
    std::optional<Error> found;
    each_subschema(schema, at, [&](const Json& inner, const std::string& there) {
      if (!found) found = fault(inner, there);
    });
    if (found) return found;
    constexpr std::pair<const char*, int64_t> kNames[] = {
        {"properties", kMaxProperties}, {"required", kMaxProperties}, {"patternProperties", kMaxPatterns}};
    for (const auto& [key, most] : kNames)
      if (const Json* names = member(schema, key); names && int64_t(names->size()) > most)
        return bad(at + "/" + key, at_most(most, "of them", int64_t(names->size())));
    const Cost cost = of(schema, 0);
    if (const int64_t n = times(cost.ways, std::max<int64_t>(cost.optional, 1)); n > kMaxAtOnce)
      return bad(at, at_most(kMaxAtOnce, "properties or alternatives that may come next", n));
    if (cost.tests > kMaxTests)
      return bad(at, at_most(kMaxTests,
                             "tests of one value (a pattern or format is one, a digit of multipleOf three)",
                             cost.tests));
    return {};
  }

 private:
  struct Cost {
    int64_t ways = 1;      // alternatives
    int64_t optional = 0;  // properties side by side that may be left out, in one alternative
    int64_t tests = 0;     // of one value, this or one within
  };

  static int64_t times(int64_t a, int64_t b) { return a > kMost / b ? kMost : a * b; }

  // Both hold.
  static void meet(Cost& a, const Cost& b) {
    a = {times(a.ways, b.ways), std::min(a.optional + b.optional, kMost), std::min(a.tests + b.tests, kMost)};
  }

  // Without zeros at the ends, which cost nothing.
  static int64_t digits(const Json& number) {
    std::string text = number.is_number() || is_big_integer(number) ? json_text(number) : "";
    text = text.substr(0, text.find('e'));
    std::erase_if(text, [](char c) { return c < '0' || c > '9'; });
    const size_t first = text.find_first_not_of('0');
    return first == text.npos ? 0 : int64_t(text.find_last_not_of('0') - first + 1);
  }

  static int64_t optional_ones(const Json& schema) {
    const Json *properties = member(schema, "properties"), *names = member(schema, "required"),
               *least = member(schema, "minProperties");
    if (!properties || !properties->is_object()) return 0;
    std::unordered_set<std::string_view> required;
    if (names && names->is_array())
      for (const Json& name : *names)
        if (name.is_string()) required.insert(name.get_ref<const std::string&>());
    int64_t run = 0, longest = 0;
    for (const auto& [key, inner] : properties->items())
      longest = std::max(longest, run = required.contains(key) ? 0 : run + 1);
    const bool any_one = least && *least == 1 && !member(schema, "maxProperties");
    return any_one ? longest * (longest + 1) / 2 : longest;  // an alternative for each that comes for sure
  }

  Cost of(const Json& schema, int steps) {
    if (!schema.is_object() || steps > kMaxSteps) return {};
    const auto [known, is_new] = known_.try_emplace(&schema);
    if (!is_new) return known->second;
    Cost cost{1, optional_ones(schema), 0};
    for (const char* key : {"pattern", "format"}) cost.tests += member(schema, key) ? 1 : 0;
    if (const Json* of_what = member(schema, "multipleOf")) cost.tests += kTestsPerDigit * digits(*of_what);
    const auto within = [&](const Json& inner) {
      cost.tests = std::max(cost.tests, of(inner, steps + 1).tests);
    };
    for (const char* key : {"properties", "patternProperties", "prefixItems"})
      if (const Json* inner = member(schema, key); inner && inner->is_structured())
        for (const Json& one : *inner) within(one);
    for (const char* key : {"items", "additionalProperties"})
      if (const Json* inner = member(schema, key)) within(*inner);
    if (const Json* patterns = member(schema, "patternProperties"))
      cost.optional += int64_t(patterns->size());
    if (const Json* list = member(schema, "enum"); list && list->is_array())
      meet(cost, {std::max<int64_t>(1, std::count_if(list->begin(), list->end(),
                                                     [](const Json& one) { return one.is_structured(); }))});
    if (const Json* list = member(schema, "allOf"); list && list->is_array())
      for (const Json& one : *list) meet(cost, of(one, steps + 1));
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* list = member(schema, key); list && list->is_array()) meet(cost, one_of(*list, steps));
    if (const Json* target = referred(schema)) meet(cost, of(*target, steps + 1));
    return known_[&schema] = cost;
  }

  Cost one_of(const Json& list, int steps) {
    int64_t ways = 0, sum = 0, tests = 0;
    for (const Json& one : list) {
      const Cost cost = of(one, steps + 1);
      ways = std::min(ways + cost.ways, kMost);
      sum = std::min(sum + times(cost.ways, std::max<int64_t>(cost.optional, 1)), kMost);
      tests = std::max(tests, cost.tests);
    }
    ways = std::max<int64_t>(ways, 1);
    return {ways, (sum + ways - 1) / ways, tests};
  }

  const Json* referred(const Json& schema) const {
    const Json* ref = member(schema, "$ref");
    return ref && ref->is_string() ? referred_schema(root_, ref->get_ref<const std::string&>()) : nullptr;
  }

  static constexpr int64_t kMost = int64_t(1) << 40;
  const Json& root_;
  std::unordered_map<const Json*, Cost> known_;
};

}  // namespace

const Json* member(const Json& schema, std::string_view key) {
  if (!schema.is_object()) return nullptr;
  const auto it = schema.find(std::string(key));
  return it == schema.end() ? nullptr : &*it;
}

const Json* referred_schema(const Json& root, std::string_view ref) {
  if (!ref.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer at(std::string(ref.substr(1)));
    return &root.at(at);
  } catch (const Json::exception&) { return nullptr; }  // not a pointer, or to nothing
}

std::string_view add_referred(const Json& root, std::vector<const Json*>& schemas, size_t from) {
  for (size_t i = from; i < schemas.size(); i++) {
    const Json *ref = member(*schemas[i], "$ref"), *all = member(*schemas[i], "allOf");
    if (ref) {
      const Json* named =
          ref->is_string() ? referred_schema(root, ref->get_ref<const std::string&>()) : nullptr;
      if (!named || schemas.size() >= kMaxAtOne) return "$ref";
      schemas.push_back(named);
    }
    if (!all) continue;
    if (!all->is_array() || schemas.size() + all->size() > kMaxAtOne) return "allOf";
    for (const Json& one : *all) schemas.push_back(&one);
  }
  return "";
}

std::string place_through(const Json& schema, std::string_view keyword) {
  for (const std::string_view key : {keyword, std::string_view("$ref"), std::string_view("allOf"),
                                     std::string_view("anyOf"), std::string_view("oneOf")})
    if (member(schema, key)) return pointer_part(key);
  return pointer_part(keyword);
}

std::string pointer_part(std::string_view key) {
  std::string out = "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

Json enforceable(Json schema, std::vector<std::string>& ignored) {
  clean(schema, "", ignored);
  return schema;
}

Status check_numbers(const Json& value, const std::string& where) {
  if (!is_inexact(value)) return Ok{};
  return bad(where, "expected numbers below 2^53, found larger ones");
}

Status check_schema(const Json& schema, const std::string& where, const char* whole) {
  const auto place = [&](std::string at) { return where + at == "" ? std::string(whole) : where + at; };
  if (const int64_t bytes = int64_t(json_text(schema).size()); bytes > kMaxBytes)
    return bad(place(""), at_most(kMaxBytes, "bytes", bytes));
  if (depth_of(schema) > kMaxNesting)
    return bad(place(""), "expected at most " + std::to_string(kMaxNesting) + " nested values");
  if (const int64_t values = values_of(schema); values > kMaxValues)
    return bad(place(""), at_most(kMaxValues, "values", values));
  std::optional<Error> fault = Costs(schema).fault(schema, "");
  if (!fault) return Ok{};
  fault->where = place(fault->where);
  return *std::move(fault);
}

}  // namespace invar
