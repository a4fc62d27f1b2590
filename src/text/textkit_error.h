// Results of textkit's C functions as our own: an error text, a text.
#pragma once

#include <string>

#include "base/result.h"
#include "textkit.h"

namespace invar {

// Takes `message` (may be null) over.  `where` is used if the message names no place itself.
Error textkit_error(tk_code code, char* message, const std::string& where);

std::string take_text(tk_buf buf);

}  // namespace invar
