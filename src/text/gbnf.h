// Grammars in llama.cpp's form (GBNF) as grammars in Lark's.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

// The same language, from the rule `root`.  Errors are BadRequest, "grammar", and name the line or the rule.
Result<std::string> lark_of_gbnf(std::string_view gbnf);

}  // namespace invar
