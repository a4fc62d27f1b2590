// Pieces of grammars in llguidance's dialect of Lark.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"

namespace invar {

std::string lark_text(std::string_view literal);
std::string lark_regex(std::string_view regex);  // of the Rust kind, matching a whole text
// JSON, with what the regex `whitespace` says between its parts; what cannot be enforced is ignored.
std::string lark_json(Json schema, const std::string& whitespace = {});
std::string lark_nested(const std::string& grammar);  // a grammar as one piece of another
void add_alternative(std::string& list, const std::string& one);

std::string regex_literal(std::string_view text);  // the regex of this text alone, in a regex and in Lark

// What JSON Schema says about the text of a string, as a terminal of Lark: `pattern`, `format`, `minLength`,
// `maxLength`; empty: nothing.  BadRequest names the keyword that cannot be enforced, "/pattern".
Result<std::string> lark_string(const Json& schema);

// Refuses a grammar from outside that would take long to compile; `where` names it in errors.
Status check_lark(std::string_view text, const std::string& where);

}  // namespace invar
