//! Python's str() and repr(), and its rules for strings.
use super::values::{error, is_float, is_generator, over_limit, pairs, DictView};
use crate::is_mark;
use minijinja::value::{Value, ValueKind};
use minijinja::Error;
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

pub const MAX_TEXT: usize = 64 << 20; // bytes of one string
const MAX_NESTING: usize = 256; // containers in containers

pub fn to_str(v: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_str(v, &mut out, 0)?;
    Ok(out)
}

fn write_repr(v: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    match v.kind() {
        ValueKind::String => write_quoted(v.as_str().unwrap_or(""), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        _ => write_str(v, out, depth)?,
    }
    Ok(())
}

fn write_str(v: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_NESTING {
        return Err(over_limit("a value is nested too deep to print"));
    }
    if out.len() > MAX_TEXT {
        return Err(over_limit("a value is too long to print"));
    }
    match v.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if v.is_true() { "True" } else { "False" }),
        ValueKind::Number if is_float(v) => out.push_str(&float_repr(f64::try_from(v.clone())?)),
        ValueKind::String => out.push_str(v.as_str().unwrap_or("")),
        ValueKind::Map => {
            out.push('{');
            for (i, (key, value)) in pairs(v).iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(key, out, depth + 1)?;
                out.push_str(": ");
                write_repr(value, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Iterable if is_generator(v) => out.push_str("<generator object>"),
        ValueKind::Seq | ValueKind::Iterable => {
            let view = v.downcast_object_ref::<DictView>();
            let (open, close) = if v.is_tuple() { ("(", ")") } else { ("[", "]") };
            if let Some(view) = view {
                write!(out, "dict_{}(", view.method).ok();
            }
            out.push_str(open);
            let mut n = 0;
            for item in v.try_iter()? {
                out.push_str(if n > 0 { ", " } else { "" });
                write_repr(&item, out, depth + 1)?;
                n += 1;
            }
            out.push_str(if v.is_tuple() && n == 1 { "," } else { "" });
            out.push_str(close);
            out.push_str(if view.is_some() { ")" } else { "" });
        }
        _ => write!(out, "{v}").map_err(|_| error("a value cannot be printed"))?,
    }
    Ok(())
}

/// Shortest digits that read back the same; exponent form below 1e-4 and from 1e16.
pub fn float_repr(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() { "nan".into() } else { if x > 0.0 { "inf" } else { "-inf" }.into() };
    }
    let mut shortest = format!("{:e}", x.abs());
    // Of two shortest forms equally near, Python takes the even one, as rounding to that many digits does.
    let digits = shortest.split('e').next().map_or(0, |m| m.replace('.', "").len());
    let rounded = format!("{:.*e}", digits.saturating_sub(1), x.abs());
    if rounded.parse() == Ok(x.abs()) {
        shortest = rounded;
    }
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.replace('.', "");
    let sign = if x.is_sign_negative() { "-" } else { "" };
    if !(-4..16).contains(&exponent) {
        let mark = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{mark}{:02}", exponent.abs());
    }
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    let point = exponent as usize + 1;
    let padded = format!("{digits:0<width$}", width = point + 1);
    format!("{sign}{}.{}", &padded[..point], &padded[point..])
}

/// A function that says whether all of a text matches, by the general categories of Unicode.
macro_rules! class {
    ($name:ident, $pattern:literal) => {
        pub fn $name(s: &str) -> bool {
            static PATTERN: LazyLock<Regex> =
                LazyLock::new(|| Regex::new($pattern).expect("a valid pattern"));
            PATTERN.is_match(s)
        }
    };
}

class!(is_alpha, r"\A\p{L}+\z");
class!(is_decimal, r"\A\p{Nd}+\z");
class!(
    is_digit,
    r"(?x)\A[\p{Nd}\u00B2\u00B3\u00B9\u1369-\u1371\u19DA\u2070\u2074-\u2079\u2080-\u2089
    \u2460-\u2468\u2474-\u247C\u2488-\u2490\u24EA\u24F5-\u24FD\u24FF\u2776-\u277E\u2780-\u2788\u278A-\u2792]+\z"
);
class!(is_numeric, r"\A\p{N}+\z");
class!(is_alnum, r"\A[\p{L}\p{N}]+\z");
class!(is_hidden, r"\A[\p{C}\p{Z}]\z");

/// str.isprintable() of one character.
fn printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    is_mark(c) || !is_hidden(c.encode_utf8(&mut [0; 4]))
}

fn write_quoted(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c if printable(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
}

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn strip<'a>(s: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let drop = |c: char| chars.map_or(is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(drop) } else { s };
    if right {
        s.trim_end_matches(drop)
    } else {
        s
    }
}

/// At most `most` cuts at `separator`, or at runs of white space; `right` counts from the end.
pub fn split<'a>(s: &'a str, separator: Option<&str>, most: usize, right: bool) -> Vec<&'a str> {
    let mut parts = vec![];
    if let Some(separator) = separator {
        let pieces = most.saturating_add(1);
        match right {
            true => parts.extend(s.rsplitn(pieces, separator)),
            false => parts.extend(s.splitn(pieces, separator)),
        }
    } else {
        let mut rest = strip(s, None, !right, right);
        while !rest.is_empty() {
            let at = if right { rest.rfind(is_space) } else { rest.find(is_space) };
            let Some(at) = at.filter(|_| parts.len() < most) else {
                parts.push(rest);
                break;
            };
            let after = at + rest[at..].chars().next().map_or(0, char::len_utf8);
            parts.push(if right { &rest[after..] } else { &rest[..at] });
            rest = strip(if right { &rest[..at] } else { &rest[after..] }, None, !right, right);
        }
    }
    if right {
        parts.reverse();
    }
    parts
}

pub fn splitlines(s: &str, keep_ends: bool) -> Vec<&str> {
    const ENDS: &str = "\n\r\x0b\x0c\x1c\x1d\x1e\u{85}\u{2028}\u{2029}";
    let mut lines = vec![];
    let mut rest = s;
    while let Some((at, end)) = rest.char_indices().find(|(_, c)| ENDS.contains(*c)) {
        let after = at + if rest[at..].starts_with("\r\n") { 2 } else { end.len_utf8() };
        lines.push(&rest[..if keep_ends { after } else { at }]);
        rest = &rest[after..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// Title case of one letter: upper case but for ligatures, digraphs, Greek with iota, and Georgian.
fn title_letter(c: char) -> String {
    let code = c as u32;
    let one = match code {
        0x1C4..=0x1CC => 0x1C5 + (code - 0x1C4) / 3 * 3,
        0x1F1..=0x1F3 => 0x1F2,
        0x10D0..=0x10FF => code,
        0x1F80..=0x1FAF => code | 8,
        0x1FB3 | 0x1FC3 | 0x1FF3 => code + 9,
        0x1FBC | 0x1FCC | 0x1FFC => code,
        _ => 0,
    };
    if one > 0 {
        return char::from_u32(one).map_or(String::new(), String::from);
    }
    let mut upper = c.to_uppercase();
    let first = upper.next().map(String::from).unwrap_or_default();
    let rest: String = upper.collect();
    match first.starts_with(char::is_alphabetic) && first != "\u{2bc}" {
        true if (0x1F80..0x2000).contains(&code) => first + &rest.replace('\u{399}', "\u{345}"),
        true => first + &rest.to_lowercase(),
        false => first + &rest,
    }
}

pub fn capitalize(s: &str) -> String {
    let Some(first) = s.chars().next() else { return String::new() };
    // The whole text in lower case, as the form of a sigma depends on the letters before it.
    let lower = s.to_lowercase();
    title_letter(first) + &lower[first.to_lowercase().map(char::len_utf8).sum()..]
}

pub fn title(s: &str) -> String {
    let cased = |c: char| c.is_lowercase() || c.is_uppercase() || (c.to_lowercase().ne([c]));
    let mut out = String::new();
    let mut rest = s;
    while let Some(start) = rest.find(cased) {
        let word = &rest[start..];
        let end = word.find(|c| !cased(c)).unwrap_or(word.len());
        out.push_str(&rest[..start]);
        out.push_str(&capitalize(&word[..end]));
        rest = &word[end..];
    }
    out + rest
}

#[derive(Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Right,
    Center,
}

pub fn pad(s: &str, width: i64, fill: &str, align: Align) -> Result<String, Error> {
    let missing = width.saturating_sub(s.chars().count() as i64).max(0) as usize;
    check_length(missing.saturating_mul(fill.len().max(1)))?;
    let left = match align {
        Align::Left => 0,
        Align::Right => missing,
        Align::Center => missing / 2 + (missing & width as usize & 1),
    };
    Ok([&fill.repeat(left), s, &fill.repeat(missing - left)].concat())
}

pub fn replace(s: &str, old: &str, new: &str, most: Option<i64>) -> Result<String, Error> {
    let found = if old.is_empty() { s.len() + 1 } else { s.matches(old).count() };
    check_length(found.saturating_mul(new.len()).saturating_add(s.len()))?;
    Ok(match most.map(usize::try_from) {
        Some(Ok(most)) => s.replacen(old, new, most),
        _ => s.replace(old, new),
    })
}

pub fn escape_html(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

pub fn check_length(bytes: usize) -> Result<(), Error> {
    match bytes > MAX_TEXT {
        true => Err(over_limit(format!("a text of {bytes} bytes, at most {MAX_TEXT} are supported"))),
        false => Ok(()),
    }
}
