//! JSON in, as Python's json.loads reads it, and out, as json.dumps writes it.
use super::text::{float_repr, to_str};
use super::values::{error, is_float, is_generator, is_view, list, over_limit, pairs, Dict};
use crate::is_mark;
use indexmap::IndexMap;
use minijinja::value::{Value, ValueKind};
use minijinja::Error;

const MAX_NESTING: usize = 256;

/// Integers keep up to 128 bits and `1.0` stays a float, which serde_json cannot do for both.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let value = parser.value();
    parser.space();
    match value {
        Ok(_) if parser.at < text.len() => Err(format!("JSON: expected the end at byte {}", parser.at)),
        Ok(value) => Ok(value),
        Err(expected) => Err(format!("JSON: expected {expected} at byte {}", parser.at)),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, &'static str>; // the error is what was expected

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Takes `word` if it comes next.
    fn take(&mut self, word: &str) -> bool {
        let here = self.rest().starts_with(word);
        self.at += if here { word.len() } else { 0 };
        here
    }

    fn need(&mut self, word: &'static str) -> Parsed<()> {
        self.take(word).then_some(()).ok_or(word)
    }

    fn value(&mut self) -> Parsed<Value> {
        self.space();
        match self.text.as_bytes().get(self.at) {
            Some(b'"') => Ok(Value::from(self.string()?)),
            Some(b'[') => {
                let mut values = vec![];
                self.items("[", "]", |p| Ok(values.push(p.value()?)))?;
                Ok(list(values))
            }
            Some(b'{') => {
                let mut entries = IndexMap::new();
                self.items("{", "}", |p| {
                    p.space();
                    let key = p.string()?;
                    p.space();
                    p.need(":")?;
                    entries.insert(Value::from(key), p.value()?);
                    Ok(())
                })?;
                Ok(Value::from_object(Dict(entries)))
            }
            _ if self.take("null") => Ok(Value::from(())),
            _ if self.take("true") => Ok(Value::from(true)),
            _ if self.take("false") => Ok(Value::from(false)),
            _ => self.number(),
        }
    }

    fn items(
        &mut self,
        open: &'static str,
        close: &'static str,
        mut item: impl FnMut(&mut Self) -> Parsed<()>,
    ) -> Parsed<()> {
        self.need(open)?;
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err("less nesting");
        }
        self.space();
        if !self.take(close) {
            loop {
                item(self)?;
                self.space();
                if !self.take(",") {
                    break;
                }
            }
            self.need(close)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn number(&mut self) -> Parsed<Value> {
        let rest = self.rest();
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-'));
        let number = &rest[..end.unwrap_or(rest.len())];
        if !number.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
            return Err("a value");
        }
        let length = number.len();
        let whole =
            number.parse::<i64>().map(Value::from).or_else(|_| number.parse::<i128>().map(Value::from));
        let value = whole.or_else(|_| number.parse::<f64>().map(Value::from)).map_err(|_| "a number")?;
        self.at += length;
        Ok(value)
    }

    fn string(&mut self) -> Parsed<String> {
        self.need("\"")?;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let end = rest.find(['"', '\\']).ok_or("a closing quote")?;
            out.push_str(&rest[..end]);
            self.at += end;
            if self.take("\"") {
                return Ok(out);
            }
            let escape = self.rest().chars().nth(1).ok_or("an escape")?;
            self.at += 1 + escape.len_utf8();
            out.push(match escape {
                '"' | '\\' | '/' => escape,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\x08',
                'f' => '\x0c',
                'u' => self.unicode()?,
                _ => return Err("an escape"),
            });
        }
    }

    /// Four hexadecimal digits, and the second half of a surrogate pair; a lone half is U+FFFD.
    fn unicode(&mut self) -> Parsed<char> {
        let high = self.hex()?;
        if (0xD800..0xDC00).contains(&high) && self.rest().starts_with("\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or('\u{FFFD}'));
            }
            self.at = back;
        }
        Ok(char::from_u32(high).unwrap_or('\u{FFFD}'))
    }

    fn hex(&mut self) -> Parsed<u32> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).ok_or("four hexadecimal digits")?;
        self.at += 4;
        Ok(code)
    }
}

/// The arguments of json.dumps.
pub struct Dumps {
    pub ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Dumps {
    pub fn text(&self, v: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(v, 0, &mut out)?;
        Ok(out)
    }

    fn write(&self, v: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_NESTING {
            return Err(over_limit("tojson: the value is nested too deep"));
        }
        match v.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if v.is_true() { "true" } else { "false" }),
            ValueKind::Number if is_float(v) => out.push_str(&match f64::try_from(v.clone())? {
                x if x.is_nan() => "NaN".into(),
                x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
                x => float_repr(x),
            }),
            ValueKind::Number => out.push_str(&to_str(v)?),
            ValueKind::String => self.string(v.as_str().unwrap_or(""), out),
            ValueKind::Map => {
                let mut entries = pairs(v);
                if self.sort_keys {
                    entries.sort_by(|a, b| match (a.0.as_str(), b.0.as_str()) {
                        (Some(a), Some(b)) => a.cmp(b),
                        _ => a.0.cmp(&b.0),
                    });
                }
                self.items('{', '}', depth, entries, out, |(key, value), out| {
                    match key.kind() {
                        ValueKind::String => self.string(key.as_str().unwrap_or(""), out),
                        ValueKind::Bool | ValueKind::None | ValueKind::Number => {
                            out.push('"');
                            self.write(&key, depth, out)?;
                            out.push('"');
                        }
                        _ => return Err(error("tojson: keys must be str, int, float, bool or None")),
                    }
                    out.push_str(&self.key_separator);
                    self.write(&value, depth + 1, out)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable if !is_view(v) && !is_generator(v) => {
                self.items('[', ']', depth, v.try_iter()?, out, |item, out| {
                    self.write(&item, depth + 1, out)
                })?;
            }
            kind => return Err(error(format!("tojson: a value of type {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn items<T>(
        &self,
        open: char,
        close: char,
        depth: usize,
        items: impl IntoIterator<Item = T>,
        out: &mut String,
        mut write: impl FnMut(T, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line =
            |depth: usize| self.indent.as_ref().map_or(String::new(), |i| format!("\n{}", i.repeat(depth)));
        out.push(open);
        let mut any = false;
        for item in items {
            out.push_str(if any { &self.item_separator } else { "" });
            out.push_str(&line(depth + 1));
            write(item, out)?;
            any = true;
        }
        if any {
            out.push_str(&line(depth));
        }
        out.push(close);
        super::text::check_length(out.len())
    }

    fn string(&self, s: &str, out: &mut String) {
        out.push('"');
        for c in s.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                c if c < ' ' || self.ascii && c > '~' && !is_mark(c) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|u| out.push_str(&format!("\\u{u:04x}")));
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
