//! Python's str() and repr(), and its rules for strings.
use super::values::{error, is_float, is_generator, over_limit, pairs, DictView};
use crate::is_mark;
use minijinja::value::{Value, ValueKind};
use minijinja::Error;
use std::fmt::Write;

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
    let shortest = format!("{:e}", x.abs());
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

/// Close to str.isprintable(): no control, format, private-use or separator characters but the space.
fn printable(c: char) -> bool {
    const FORMAT: &[(u32, u32)] = &[
        (0xAD, 0xAD),
        (0x600, 0x605),
        (0x61C, 0x61C),
        (0x6DD, 0x6DD),
        (0x70F, 0x70F),
        (0x890, 0x891),
        (0x8E2, 0x8E2),
        (0x180E, 0x180E),
        (0x200B, 0x200F),
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0xD800, 0xF8FF),
        (0xFDD0, 0xFDEF),
        (0xFEFF, 0xFEFF),
        (0xFFF0, 0xFFFB),
        (0xFFFE, 0xFFFF),
        (0x110BD, 0x110BD),
        (0x110CD, 0x110CD),
        (0x13430, 0x1343F),
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
        (0xE0000, 0xE00FF),
        (0xE01F0, 0x10FFFF),
    ];
    let code = c as u32;
    let hidden = c.is_control() || c.is_whitespace() || FORMAT.iter().any(|(a, b)| (*a..=*b).contains(&code));
    c == ' ' || is_mark(c) || !hidden
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

pub fn title(s: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in s.chars() {
        match (c.is_alphabetic(), inside) {
            (true, false) => out.extend(c.to_uppercase()),
            (true, true) => out.extend(c.to_lowercase()),
            _ => out.push(c),
        }
        inside = c.is_alphabetic();
    }
    out
}

pub fn capitalize(s: &str) -> String {
    let mut rest = s.chars();
    let first = rest.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + &rest.as_str().to_lowercase()
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
