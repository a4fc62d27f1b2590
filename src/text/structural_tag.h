// Structural tags: an answer as nested formats, some of its text between tags that must hold JSON and the
// like.
#pragma once

#include "base/result.h"
#include "text/grammar.h"

namespace invar {

// {"format": FORMAT}, or the older {"structures": [{begin, schema, end}], "triggers": [...]}.  A format is
// one of const_string, json_schema, regex, grammar, any_text, sequence, or, tag, triggered_tags,
// tags_with_separator. Errors are BadRequest with a JSON pointer.
Result<GrammarSpec> structural_grammar(const Json& tag);

}  // namespace invar
