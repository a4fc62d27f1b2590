#include "text/textkit_error.h"

namespace invar {

namespace {

Code code_of(tk_code code) {
  switch (code) {
    case TK_BAD_VOCAB:
    case TK_TEMPLATE_SYNTAX:
      return Code::BadFile;
    case TK_UNSUPPORTED:
      return Code::Unsupported;
    default:
      return Code::BadRequest;
  }
}

}  // namespace

Error textkit_error(tk_code code, char* message, const std::string& where) {
  Error error = {code_of(code), where, message ? message : "no message"};
  tk_string_free(message);
  if (code == TK_BAD_VOCAB || code == TK_UNSUPPORTED) {  // "key: message"
    const size_t colon = error.message.find(": ");
    if (colon != std::string::npos) {
      error.where = error.message.substr(0, colon);
      error.message.erase(0, colon + 2);
    }
  }
  return error;
}

std::string take_text(tk_buf buf) {
  std::string text(buf.data, buf.len);
  tk_buf_free(buf);
  return text;
}

}  // namespace invar
