//! Methods of strings, dicts and lists, by Python's rules.
use super::args::{need_str, Args};
use super::text::*;
use super::values::*;
use minijinja::formatting::{format, FormatStyle};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Called for every method the library does not know itself.
pub fn call(_: &mut State, object: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Args::new(args)?;
    let (value, most) = match object.kind() {
        _ if method == "__getitem__" => (get_item(object, &args.need(0, "key")?)?, 1),
        ValueKind::String => string_method(object.as_str().unwrap_or(""), method, &args)?,
        ValueKind::Map => dict_method(object, method, &args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(object, method, &args)?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    args.done(most)?;
    Ok(value)
}

/// `x['items']`: the key, or the method if there is no such key.
fn get_item(object: &Value, key: &Value) -> Result<Value, Error> {
    let found = object.get_item(key)?;
    let known = object.as_object().is_some_and(|o| o.get_value(key).is_some());
    match key.as_str() {
        Some(name) if object.kind() == ValueKind::Map && !known && DICT_METHODS.contains(&name) => {
            Ok(bound(object.clone(), name))
        }
        _ => Ok(found),
    }
}

fn unsafe_method(kind: &str, method: &str) -> Error {
    error(format!("access to attribute '{method}' of '{kind}' object is unsafe"))
}

/// The value and how many arguments the method takes at most.
fn dict_method(object: &Value, method: &str, args: &Args) -> Result<(Value, usize), Error> {
    let view = |method| Value::from_object(DictView { dict: object.clone(), method });
    Ok(match method {
        "items" => (view("items"), 0),
        "keys" => (view("keys"), 0),
        "values" => (view("values"), 0),
        "copy" => (Value::from_object(Dict(pairs(object).into_iter().collect())), 0),
        "get" => {
            let found =
                object.as_object().and_then(|o| args.need(0, "key").ok().and_then(|k| o.get_value(&k)));
            let default = args.get(1, "default")?;
            (found.or(default).unwrap_or_else(|| Value::from(())), 2)
        }
        "pop" | "popitem" | "update" | "setdefault" | "clear" => return Err(unsafe_method("dict", method)),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

fn list_method(object: &Value, method: &str, args: &Args) -> Result<(Value, usize), Error> {
    Ok(match method {
        "count" => {
            let wanted = args.need(0, "value")?;
            (object.try_iter()?.filter(|v| *v == wanted).count().into(), 1)
        }
        "index" => {
            let wanted = args.need(0, "value")?;
            let place = object.try_iter()?.position(|v| v == wanted);
            (place.ok_or_else(|| error("the value is not in the list"))?.into(), 1)
        }
        "copy" => (list(object.try_iter()?.collect()), 0),
        "append" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" | "clear" => {
            return Err(unsafe_method("list", method))
        }
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

fn string_method(s: &str, method: &str, args: &Args) -> Result<(Value, usize), Error> {
    Ok(match method {
        "upper" => (s.to_uppercase().into(), 0),
        "lower" => (s.to_lowercase().into(), 0),
        "title" => (title(s).into(), 0),
        "capitalize" => (capitalize(s).into(), 0),
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.string(0, "chars")?;
            (strip(s, chars.as_deref(), method != "rstrip", method != "lstrip").into(), 1)
        }
        "split" | "rsplit" => {
            let separator = args.string(0, "sep")?;
            if separator.as_deref() == Some("") {
                return Err(error("empty separator"));
            }
            let most = args.int(1, "maxsplit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
            let parts = split(s, separator.as_deref(), most, method == "rsplit");
            (list(parts.into_iter().map(Value::from).collect()), 2)
        }
        "splitlines" => {
            let lines = splitlines(s, args.flag(0, "keepends")?);
            (list(lines.into_iter().map(Value::from).collect()), 1)
        }
        "partition" | "rpartition" => {
            (partition(s, &args.need_string(0, "sep")?, method == "rpartition")?, 1)
        }
        "replace" => {
            let (old, new) = (args.need_string(0, "old")?, args.need_string(1, "new")?);
            (replace(s, &old, &new, args.int(2, "count")?)?.into(), 3)
        }
        "removeprefix" => (s.strip_prefix(&*args.need_string(0, "prefix")?).unwrap_or(s).into(), 1),
        "removesuffix" => (s.strip_suffix(&*args.need_string(0, "suffix")?).unwrap_or(s).into(), 1),
        "startswith" | "endswith" => (begins_or_ends(s, method == "startswith", args)?.into(), 3),
        "find" | "rfind" | "index" | "rindex" | "count" => (find(s, method, args)?, 3),
        "join" => (join(s, &args.need(0, "iterable")?)?, 1),
        "isdigit" => (is_digit(s).into(), 0),
        "isdecimal" => (is_decimal(s).into(), 0),
        "isnumeric" => (is_numeric(s).into(), 0),
        "isalpha" => (is_alpha(s).into(), 0),
        "isalnum" => (is_alnum(s).into(), 0),
        "isspace" => ((!s.is_empty() && s.chars().all(is_space)).into(), 0),
        "isascii" => (s.is_ascii().into(), 0),
        "islower" => ((s.chars().any(char::is_lowercase) && !s.chars().any(char::is_uppercase)).into(), 0),
        "isupper" => ((s.chars().any(char::is_uppercase) && !s.chars().any(char::is_lowercase)).into(), 0),
        "zfill" => {
            let sign = if s.starts_with(['+', '-']) { 1 } else { 0 };
            let width = args.need(0, "width").and_then(i64::try_from)?.saturating_sub(sign as i64);
            ((s[..sign].to_string() + &pad(&s[sign..], width, "0", Align::Right)?).into(), 1)
        }
        "ljust" | "rjust" | "center" => {
            let align = match method {
                "ljust" => Align::Left,
                "rjust" => Align::Right,
                _ => Align::Center,
            };
            let fill = args.string(1, "fillchar")?.unwrap_or(" ".into());
            (pad(s, args.need(0, "width").and_then(i64::try_from)?, &fill, align)?.into(), 2)
        }
        "format" => (format_braces(s, args)?, args.values.len()),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// A Python index into the characters as a byte offset, clamped.
fn offset(s: &str, index: i64) -> usize {
    let count = s.chars().count() as i64;
    let index = if index < 0 { (index + count).max(0) } else { index };
    s.char_indices().nth(index as usize).map_or(s.len(), |(at, _)| at)
}

/// The part of `s` between the optional arguments start and end, and where it begins.
fn part<'a>(s: &'a str, args: &Args) -> Result<Option<(usize, &'a str)>, Error> {
    let (start, end) = (args.int(1, "start")?.unwrap_or(0), args.int(2, "end")?.unwrap_or(i64::MAX));
    if start > s.chars().count() as i64 {
        return Ok(None);
    }
    let start = offset(s, start);
    Ok(s.get(start..offset(s, end)).map(|part| (start, part)))
}

fn begins_or_ends(s: &str, begins: bool, args: &Args) -> Result<bool, Error> {
    let wanted = args.need(0, "prefix")?;
    let Some((_, text)) = part(s, args)? else { return Ok(false) };
    let test =
        |w: &Value| Ok(if begins { text.starts_with(need_str(w)?) } else { text.ends_with(need_str(w)?) });
    if !wanted.is_tuple() {
        return test(&wanted);
    }
    for w in wanted.try_iter()? {
        if test(&w)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn find(s: &str, method: &str, args: &Args) -> Result<Value, Error> {
    let wanted = args.need_string(0, "sub")?;
    let part = part(s, args)?;
    if method == "count" {
        let count = |text: &str| match wanted.is_empty() {
            true => text.chars().count() + 1,
            false => text.matches(&wanted).count(),
        };
        return Ok(part.map_or(0, |(_, text)| count(text)).into());
    }
    let place = part.and_then(|(start, text)| {
        let at = if method.starts_with('r') { text.rfind(&wanted) } else { text.find(&wanted) };
        at.map(|at| s[..start + at].chars().count() as i64)
    });
    match place {
        None if method.ends_with("index") => Err(error("substring not found")),
        place => Ok(place.unwrap_or(-1).into()),
    }
}

fn partition(s: &str, separator: &str, right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(error("empty separator"));
    }
    let parts = match if right { s.rsplit_once(separator) } else { s.split_once(separator) } {
        Some((a, b)) if right => [a, separator, b],
        Some((a, b)) => [a, separator, b],
        None if right => ["", "", s],
        None => [s, "", ""],
    };
    Ok(tuple(parts.into_iter().map(Value::from).collect()))
}

fn join(separator: &str, items: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for (i, item) in iterate(items)?.enumerate() {
        out.push_str(if i > 0 { separator } else { "" });
        out.push_str(need_str(&item)?);
        check_length(out.len())?;
    }
    Ok(out.into())
}

/// str.format; a field may ask for at most 99999 characters.
fn format_braces(s: &str, args: &Args) -> Result<Value, Error> {
    let mut digits = 0;
    for c in s.chars() {
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > 5 {
            return Err(over_limit("format: a width is too large"));
        }
    }
    let mut values = args.values.clone();
    let names: Vec<&str> = args.named.args().collect();
    if !names.is_empty() {
        let named: Result<Vec<_>, Error> =
            names.iter().map(|n| Ok((*n, args.named.get::<Value>(n)?))).collect();
        values.push(minijinja::value::Kwargs::from_iter(named?).into());
    }
    Ok(format(FormatStyle::StrFormat, s, &values)?.into())
}
