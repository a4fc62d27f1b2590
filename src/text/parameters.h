// Schemas of tools as calls between tags need them: a list of parameters, and the texts that each may have.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/json.h"

namespace invar {

// The members of an object.
struct ParameterList {
  std::vector<std::pair<std::string, const Json*>> properties;  // parts of the schema
  std::set<std::string> required;
  bool open = false;                 // none is named, but there may be some
  std::vector<std::string> ignored;  // places in the schema that are not held to, "/anyOf"
};
ParameterList parameter_list(const Json& schema);

// A value where texts stand as they are, other values as JSON.
struct ValueText {
  std::string choices;               // alternatives in Lark, if there are only these texts; or
  std::string terminal;              // the body of a terminal; both empty: any text
  std::vector<std::string> ignored;  // places in the schema that are not held to, "/pattern"
};
// `steps`, over several values, bounds the work.
ValueText value_text(const Json& root, const Json& schema, int& steps);

}  // namespace invar
