// JSON schemas as trees: the places in them, which of their keywords are enforced, and how large one may be.
// grammar.h compiles them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace invar {

// What a `$ref` within the root names; null: nothing there.
const Json* referred_schema(const Json& root, std::string_view ref);

// Schemas that hold of one value at once: behind those from `from` on, what their `$ref` and `allOf` name.
// The keyword of what cannot be found, or is too much; empty: that is all.
std::string_view add_referred(const Json& root, std::vector<const Json*>& schemas, size_t from = 0);

// Where a schema has a keyword: "/minimum", or what it has it through: "/$ref".
std::string place_through(const Json& schema, std::string_view keyword);

const Json* member(const Json& schema, std::string_view key);  // null: none

// A step of a JSON pointer: "/a~1b".
std::string pointer_part(std::string_view key);

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
    } else if (value.is_array() && (key == "anyOf" || key == "oneOf" || key == "allOf" ||
                                    key == "prefixItems" || key == "items")) {
      for (size_t i = 0; i < value.size(); i++) visit(value[i], there + "/" + std::to_string(i));
    } else if (value.is_object() &&
               (key == "items" || key == "additionalItems" || key == "additionalProperties")) {
      visit(value, there);
    }
  }
}

// The schema without keywords that are not enforced; `ignored` gets their places, as JSON pointers.
Json enforceable(Json schema, std::vector<std::string>& ignored);

// Refuses numbers, at any place, that the compiler would take for others.
Status check_numbers(const Json& value, const std::string& where);

// Refuses a schema that would take long to compile, before that begins.  Errors are BadRequest and name the
// place, a pointer behind `where`, or `whole` where that is empty.
Status check_schema(const Json& schema, const std::string& where, const char* whole = "schema");

}  // namespace invar
