//! Tokenizers, chat templates and grammars behind a C interface (textkit.h).  The only Rust of the project:
//! it names the libraries `tokenizers`, `minijinja` and `llguidance`; everything above it is C++.
mod ffi;
mod grammar;
mod patterns;
mod template;
mod tokenizer;
mod tokenizer_json;

/// Why a call failed; the numbers are `tk_code` of textkit.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Code {
    Ok,
    BadArgument,
    BadVocab,
    Unsupported,
    TemplateSyntax,
    TemplateRaised,
    TemplateRuntime,
    Limit,
    Internal,
}

/// A code and one line for people.  A fault of a vocabulary begins with the key concerned and `": "`.
#[derive(Debug)]
pub struct Fault(pub Code, pub String);

/// Characters around text that must stay text when a prompt is encoded.  Both are noncharacters of
/// Unicode, meant for internal use: they are taken out of what comes from outside.
pub const MARK_OPEN: char = '\u{FDD0}';
pub const MARK_CLOSE: char = '\u{FDD1}';

pub fn is_mark(c: char) -> bool {
    c == MARK_OPEN || c == MARK_CLOSE
}
