//! Rewrites the source of a template where minijinja and Jinja2 differ and no registered function
//! can help.  Only code inside `{{ }}` and `{% %}` changes, and lines stay where they are.
//!
//!   generation ... endgeneration   with ... endwith
//!   for x in E                     for x in __iter(E)       none is no empty list
//!   a ~ b                          __str(a) ~ __str(b)      Python's str()
//!   a + b                          __add(a, b)              Python's rules for lists and safe text
//!   x['items']                     x.__getitem__('items')   keys before methods
//!   +a                             a
//!   '\/'                           '\\/'                    Python's escapes
use super::values::DICT_METHODS;
use crate::{Code, Fault};

const MAX_NESTING: usize = 100; // brackets in brackets
const MAX_TOKENS: usize = 10_000; // between two marks; an operator chain is compiled by recursion

pub fn rewrite(source: &str) -> Result<String, Fault> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len() * 5 / 4);
    let mut rest = source.as_str();
    let mut raw = false;
    while let Some(at) = rest.find('{') {
        let (text, code) = rest.split_at(at);
        out.push_str(text);
        rest = code;
        let end = match code.as_bytes().get(1) {
            Some(b'#') if !raw => code[2..].find("#}").map_or(code.len(), |end| end + 4),
            Some(b'%') if raw => {
                raw = tag_name(&code[2..]) != "endraw";
                2
            }
            Some(b'%' | b'{') if !raw => {
                let close = if code.as_bytes()[1] == b'%' { "%}" } else { "}}" };
                let Some(end) = code_end(&code[2..], close) else { break };
                raw = close == "%}" && tag_name(&code[2..]) == "raw";
                out.push_str(&code[..2]);
                let inner = &code[2..2 + end];
                out.push_str(&if raw { inner.to_string() } else { rewrite_code(inner, close == "%}")? });
                out.push_str(close);
                rest = &code[end + 4..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&code[..end]);
        rest = &code[end..];
    }
    out.push_str(rest);
    Ok(out)
}

fn tag_name(code: &str) -> &str {
    let code = code.trim_start_matches(['-', '+']).trim_start();
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

/// Where the closing mark is: outside of strings and brackets.
fn code_end(code: &str, close: &str) -> Option<usize> {
    let bytes = code.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => at += string_length(&bytes[at..]) - 1,
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' if depth > 0 => depth -= 1,
            _ if depth == 0 && bytes[at..].starts_with(close.as_bytes()) => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Bytes of the string literal at the beginning, with its quotes; an open one takes all.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != bytes[0] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

#[derive(PartialEq, Clone, Copy, Debug)]
enum Kind {
    Space,
    String,
    Number,
    Name,
    Sign,
}

type Token<'a> = (Kind, &'a str);

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = vec![];
    let mut rest = code;
    while let Some(first) = rest.bytes().next() {
        let run = |inside: fn(u8) -> bool| rest.bytes().position(|b| !inside(b)).unwrap_or(rest.len());
        let (kind, length) = match first {
            b if b.is_ascii_whitespace() => (Kind::Space, run(|b| b.is_ascii_whitespace())),
            b'\'' | b'"' => (Kind::String, string_length(rest.as_bytes())),
            b'0'..=b'9' => (Kind::Number, number_length(rest.as_bytes())),
            b if is_name(b) => (Kind::Name, run(is_name)),
            _ if ["==", "!=", "<=", ">=", "**", "//"].iter().any(|sign| rest.starts_with(sign)) => {
                (Kind::Sign, 2)
            }
            _ => (Kind::Sign, 1),
        };
        tokens.push((kind, &rest[..length]));
        rest = &rest[length..];
    }
    tokens
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn number_length(bytes: &[u8]) -> usize {
    let hex = bytes.len() > 1 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X');
    let digit_at = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 1;
    while at < bytes.len() {
        let inside = match bytes[at] {
            b'.' => digit_at(at + 1),
            b'+' | b'-' => !hex && matches!(bytes[at - 1], b'e' | b'E') && digit_at(at + 1),
            b => b.is_ascii_alphanumeric() || b == b'_',
        };
        if !inside {
            break;
        }
        at += 1;
    }
    at
}

/// One piece of code between its opening and closing marks.
fn rewrite_code(code: &str, is_tag: bool) -> Result<String, Fault> {
    let inner = code.strip_prefix(['-', '+']).unwrap_or(code);
    let open = &code[..code.len() - inner.len()];
    let body = inner.strip_suffix(['-', '+']).unwrap_or(inner);
    let close = &inner[body.len()..];
    let mut all = tokens(body);
    if all.len() > MAX_TOKENS {
        return Err(Fault(
            Code::Limit,
            format!("template: an expression of more than {MAX_TOKENS} words and signs"),
        ));
    }
    let mut out = open.to_string();
    let mut at = 0;
    if is_tag {
        at = all.iter().position(|t| t.0 != Kind::Space).map_or(all.len(), |i| i + 1);
        out.extend(all[..at].iter().map(|t| match t.1 {
            "generation" => "with",
            "endgeneration" => "endwith",
            other => other,
        }));
        if tag_name(body) == "for" {
            guard_loop(&mut all);
        }
    }
    while at < all.len() {
        let mut level = Level { tokens: &all, at };
        out.push_str(&level.rewrite(0)?);
        at = level.at;
        out.push_str(all.get(at).map_or("", |t| t.1)); // a closing bracket too many
        at += 1;
    }
    Ok(out + close)
}

/// `for x in E if ...`: E becomes `__iter(E)`.
fn guard_loop(all: &mut Vec<Token>) {
    let (mut depth, mut start, mut end) = (0, None, all.len());
    for (i, token) in all.iter().enumerate() {
        match token.1 {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "in" if depth == 0 && start.is_none() => start = Some(i + 1),
            "if" | "recursive" if depth == 0 && start.is_some() => {
                end = i;
                break;
            }
            _ => {}
        }
    }
    if let Some(start) = start {
        all.splice(end..end, [(Kind::Sign, ")"), (Kind::Space, " ")]);
        all.splice(start..start, [(Kind::Space, " "), (Kind::Name, "__iter"), (Kind::Sign, "(")]);
    }
}

/// The tokens of one bracket level.
struct Level<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

/// Operands with the separators after them: signs and words that bind less than `*` does.
#[derive(Default)]
struct Operands {
    texts: Vec<String>,
    separators: Vec<String>,
}

impl Level<'_> {
    /// Up to the closing bracket of this level, or the end.
    fn rewrite(&mut self, depth: usize) -> Result<String, Fault> {
        if depth > MAX_NESTING {
            return Err(Fault(Code::Limit, format!("template: more than {MAX_NESTING} nested brackets")));
        }
        let mut operands = Operands { texts: vec![String::new()], separators: vec![] };
        let mut complete = false; // the text so far is an operand, so a sign after it has two sides
        let mut is_attribute = false; // after a dot, a bar or `is`: a word here is no keyword
        while let Some(&(kind, token)) = self.tokens.get(self.at) {
            self.at += 1;
            let text = operands.texts.last_mut().map_or_else(String::new, std::mem::take);
            let text = match (kind, token) {
                (Kind::Sign, ")" | "]" | "}") => {
                    self.at -= 1;
                    operands.put(text);
                    break;
                }
                (Kind::Sign, "(" | "[" | "{") => {
                    let inner = self.rewrite(depth + 1)?;
                    let close = self.tokens.get(self.at).map_or("", |t| t.1);
                    self.at += 1;
                    let is_method = token == "[" && complete && names_method(&inner);
                    (complete, is_attribute) = (true, false);
                    match is_method {
                        true => format!("{text}.__getitem__({inner})"),
                        false => [text.as_str(), token, &inner, close].concat(),
                    }
                }
                (Kind::Space, _) => text + token,
                (Kind::Sign, "+") if !complete => text,
                (Kind::Sign, "+" | "-") if complete => {
                    operands.separate(text, token, &mut complete, &mut is_attribute)
                }
                (Kind::Sign, "~" | "=" | "==" | "!=" | "<" | ">" | "<=" | ">=" | "," | ":") => {
                    operands.separate(text, token, &mut complete, &mut is_attribute)
                }
                (Kind::Name, "and" | "or" | "not" | "in" | "if" | "else") if !is_attribute => {
                    operands.separate(text, token, &mut complete, &mut is_attribute)
                }
                (Kind::String, _) => {
                    (complete, is_attribute) = (true, false);
                    text + &python_literal(token)
                }
                _ => {
                    complete = kind != Kind::Sign;
                    is_attribute = matches!(token, "." | "|" | "is");
                    text + token
                }
            };
            operands.put(text);
        }
        Ok(operands.join())
    }
}

fn names_method(literal: &str) -> bool {
    let literal = literal.trim();
    let quoted = literal.len() > 2 && literal.starts_with(['\'', '"']);
    quoted && DICT_METHODS.contains(&&literal[1..literal.len() - 1])
}

impl Operands {
    fn put(&mut self, text: String) {
        if let Some(last) = self.texts.last_mut() {
            *last = text;
        }
    }

    /// Ends an operand; gives the text of the next.
    fn separate(&mut self, text: String, sign: &str, complete: &mut bool, is_attribute: &mut bool) -> String {
        self.put(text);
        self.separators.push(sign.into());
        self.texts.push(String::new());
        (*complete, *is_attribute) = (false, false);
        String::new()
    }

    /// Puts it together again: first `~`, which binds tighter, then `+` and `-` from the left.
    fn join(self) -> String {
        let separators = |i: usize| self.separators.get(i).map_or("", String::as_str);
        let mut out = String::new();
        let mut terms = vec![]; // of the sum since the last other separator
        let mut i = 0;
        while i < self.texts.len() {
            let sign = if i > 0 { separators(i - 1) } else { "" };
            let mut term = self.texts[i].clone();
            if separators(i) == "~" {
                term = printed(&term);
            }
            while separators(i) == "~" {
                i += 1;
                term.push('~');
                term.push_str(&printed(&self.texts[i]));
            }
            match sign {
                "+" => terms.push(term),
                "-" => terms = vec![sum(terms) + "-" + &term],
                _ => {
                    out.push_str(&sum(terms));
                    out.push_str(sign);
                    terms = vec![term];
                }
            }
            i += 1;
        }
        out + &sum(terms)
    }
}

fn sum(mut terms: Vec<String>) -> String {
    if terms.len() < 2 {
        return terms.pop().unwrap_or_default();
    }
    let space = terms[0].len() - terms[0].trim_start().len();
    let inner: Vec<&str> = terms.iter().map(|t| t.trim()).collect();
    if inner.contains(&"") {
        return terms.join("+"); // a syntax error must stay one
    }
    format!("{}__add({}) ", &terms[0][..space], inner.join(", "))
}

fn printed(operand: &str) -> String {
    match operand.trim() {
        "" => operand.to_string(),
        text => format!(" __str({text}) "),
    }
}

/// A string literal decoded by Python's rules and written with plain escapes only.
fn python_literal(literal: &str) -> String {
    if !literal.contains('\\') || literal.len() < 2 {
        return literal.to_string();
    }
    let quote = &literal[..1];
    match unescape(&literal[1..literal.len() - 1]) {
        Some(text) => {
            let escaped = text.replace('\\', r"\\").replace(quote, &format!("\\{quote}"));
            [quote, &escaped, quote].concat()
        }
        None => literal.to_string(), // minijinja will refuse it
    }
}

fn unescape(body: &str) -> Option<String> {
    let mut out = String::new();
    let mut high = None; // the first half of a surrogate pair
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest[at + 1..].chars().next()?;
        rest = &rest[at + 1 + escape.len_utf8()..];
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let plain = "abfnrtv\\'\"".find(escape).map(|i| "\x07\x08\x0c\n\r\t\x0b\\'\"".as_bytes()[i] as char);
        if digits > 0 {
            let code = u32::from_str_radix(rest.get(..digits)?, 16).ok()?;
            rest = &rest[digits..];
            match (code, high.take()) {
                (0xD800..=0xDBFF, _) => high = Some(code),
                (0xDC00..=0xDFFF, Some(first)) => {
                    out.extend(char::from_u32(0x10000 + ((first - 0xD800) << 10) + (code - 0xDC00)))
                }
                _ => out.push(char::from_u32(code).unwrap_or('\u{FFFD}')),
            }
        } else if let Some(c) = plain {
            out.push(c);
        } else if escape.is_digit(8) {
            let more = rest.bytes().take(2).take_while(|b| (b'0'..b'8').contains(b)).count();
            let code = rest[..more].bytes().fold(escape as u32 - 48, |code, b| code * 8 + (b - 48) as u32);
            out.extend(char::from_u32(code));
            rest = &rest[more..];
        } else if escape != '\n' {
            out.extend(['\\', escape]);
        }
    }
    Some(out + rest)
}
