//! Filters, tests and global functions, by the rules of Jinja2 and of Python's str().
use super::args::Args;
use super::json::Dumps;
use super::text::*;
use super::values::*;
use indexmap::IndexMap;
use minijinja::filters as builtin;
use minijinja::value::{Kwargs, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

type Filter = fn(&Value, &Args) -> Result<Value, Error>;

/// Name, the most arguments after the value, and what it does.
const FILTERS: &[(&str, usize, Filter)] = &[
    ("capitalize", 0, |v, _| Ok(capitalize(&to_str(v)?).into())),
    ("center", 1, |v, a| Ok(pad(&to_str(v)?, a.int(0, "width")?.unwrap_or(80), " ", Align::Center)?.into())),
    ("count", 0, length),
    ("d", 2, default),
    ("default", 2, default),
    ("dictsort", 3, dictsort),
    ("e", 0, escape),
    ("escape", 0, escape),
    ("first", 0, |v, _| Ok(iterate(v)?.next().unwrap_or(Value::UNDEFINED))),
    ("float", 1, float),
    ("forceescape", 0, |v, _| Ok(Value::from_safe_string(escape_html(&to_str(v)?)))),
    ("indent", 3, indent),
    ("int", 2, int),
    ("items", 0, items),
    ("join", 2, join),
    ("length", 0, length),
    ("list", 0, |v, _| Ok(list(iterate(v)?.collect()))),
    ("lower", 0, |v, _| Ok(like(v, to_str(v)?.to_lowercase()))),
    ("replace", 3, |v, a| {
        let (old, new) = (a.printed(0, "old")?, a.printed(1, "new")?);
        let (Some(old), Some(new)) = (old, new) else { return Err(Error::from(ErrorKind::MissingArgument)) };
        Ok(replace(&to_str(v)?, &old, &new, a.int(2, "count")?)?.into())
    }),
    ("reverse", 0, reverse),
    ("string", 0, |v, _| Ok(if v.as_str().is_some() { v.clone() } else { to_str(v)?.into() })),
    ("tojson", 4, tojson),
    ("trim", 1, |v, a| {
        Ok(like(v, strip(&to_str(v)?, a.string(0, "chars")?.as_deref(), true, true).to_string()))
    }),
    ("upper", 0, |v, _| Ok(like(v, to_str(v)?.to_uppercase()))),
    ("wordcount", 0, |v, _| Ok(to_str(v)?.split_whitespace().count().into())),
];

type Any<'a> = Rest<ValueOrKwargs>;
type Name<'a> = Option<Cow<'a, str>>;

pub fn register(env: &mut Environment<'static>) {
    for &(name, most, filter) in FILTERS {
        env.add_filter(name, move |value: Value, rest: Rest<ValueOrKwargs>| {
            let args = Args::new(&rest.into_values())?;
            let result = filter(&value, &args)?;
            args.done(most)?;
            Ok::<_, Error>(result)
        });
    }
    register_generators(env);
    env.add_test("sequence", |v: &Value| match v.kind() {
        ValueKind::Iterable => !is_generator(v) && !is_view(v),
        kind => matches!(kind, ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined),
    });
    env.add_test("iterable", |v: &Value| check_iterable(v).is_ok());
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain);
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        let message = to_str(&message)?;
        Err(error(message.clone()).with_source(Cause::Raised(message)))
    });
    env.add_function("dict", |rest: Rest<ValueOrKwargs>| dict(&Args::new(&rest.into_values())?));
    env.add_function("cycler", |values: Rest<Value>| match values.is_empty() {
        true => Err(error("cycler: expected at least one value")),
        false => Ok(Value::from_object(Cycler { values: values.to_vec(), place: AtomicUsize::new(0) })),
    });
    env.add_function("joiner", |separator: Option<Value>| {
        let separator = separator.unwrap_or_else(|| Value::from(", "));
        Value::from_object(Joiner { separator, calls: AtomicUsize::new(0) })
    });
    // What prepass.rs writes into templates.
    env.add_function("__str", |v: Value| match v.as_str() {
        Some(_) => Ok(v),
        None => to_str(&v).map(Value::from),
    });
    env.add_function("__add", |values: Rest<Value>| {
        let mut values = values.iter();
        let first = values.next().cloned().unwrap_or_default();
        values.try_fold(first, |sum, next| add(&sum, next))
    });
    env.add_function("__iter", |v: Value| check_iterable(&v).map(|()| v));
}

/// These return one-shot generators, and take what is false in Python as empty.
fn register_generators(env: &mut Environment<'static>) {
    fn with(v: Value, filter: impl FnOnce(Value) -> Result<Vec<Value>, Error>) -> Result<Value, Error> {
        if !v.is_true() {
            return Ok(generator(vec![]));
        }
        check_iterable(&v)?;
        filter(v).map(generator)
    }
    env.add_filter("map", |s: &mut State, v: Value, a: Any| with(v, |v| builtin::map(s, v, a)));
    env.add_filter("select", |s: &mut State, v: Value, test: Name<'_>, a: Any| {
        with(v, |v| builtin::select(s, v, test, a))
    });
    env.add_filter("reject", |s: &mut State, v: Value, test: Name<'_>, a: Any| {
        with(v, |v| builtin::reject(s, v, test, a))
    });
    env.add_filter("selectattr", |s: &mut State, v: Value, key: Cow<'_, str>, test: Name<'_>, a: Any| {
        with(v, |v| builtin::selectattr(s, v, key, test, a))
    });
    env.add_filter("rejectattr", |s: &mut State, v: Value, key: Cow<'_, str>, test: Name<'_>, a: Any| {
        with(v, |v| builtin::rejectattr(s, v, key, test, a))
    });
    env.add_filter("unique", |s: &State, v: Value, options: Kwargs| {
        check_iterable(&v)?;
        Ok::<_, Error>(generator(builtin::unique(s, v, options)?.try_iter()?.collect()))
    });
    env.add_filter("groupby", |v: Value, rest: Rest<ValueOrKwargs>| {
        let args = rest.into_values();
        let (key, options): (Option<&str>, Kwargs) = minijinja::value::from_args(&args)?;
        let groups = builtin::groupby(v, key, options)?;
        let pair = |group: Value| group.try_iter().map(|parts| tuple(parts.collect()));
        groups.try_iter()?.map(pair).collect::<Result<_, Error>>().map(list)
    });
}

/// Safe (already escaped) if `v` is.
fn like(v: &Value, text: String) -> Value {
    if v.is_safe() {
        Value::from_safe_string(text)
    } else {
        text.into()
    }
}

fn escape(v: &Value, _: &Args) -> Result<Value, Error> {
    let text = to_str(v)?;
    Ok(Value::from_safe_string(if v.is_safe() { text } else { escape_html(&text) }))
}

fn default(v: &Value, args: &Args) -> Result<Value, Error> {
    let value = args.get(0, "default_value")?.unwrap_or_else(|| "".into());
    let also_false = args.flag(1, "boolean")?;
    Ok(if v.is_undefined() || also_false && !v.is_true() { value } else { v.clone() })
}

fn length(v: &Value, _: &Args) -> Result<Value, Error> {
    let length = match v.as_str() {
        Some(text) => Some(text.chars().count()),
        None if v.is_undefined() => Some(0),
        None if is_generator(v) => None,
        None => v.len(),
    };
    length.map(Value::from).ok_or_else(|| error(format!("a value of type {} has no length", v.kind())))
}

fn items(v: &Value, _: &Args) -> Result<Value, Error> {
    if !v.is_undefined() && v.kind() != ValueKind::Map {
        return Err(error("items: expected a mapping"));
    }
    Ok(generator(pairs(v).into_iter().map(|(k, v)| tuple(vec![k, v])).collect()))
}

fn reverse(v: &Value, _: &Args) -> Result<Value, Error> {
    if let Some(text) = v.as_str() {
        return Ok(text.chars().rev().collect::<String>().into());
    }
    let mut values: Vec<Value> = iterate(v)?.collect();
    values.reverse();
    Ok(generator(values))
}

fn join(v: &Value, args: &Args) -> Result<Value, Error> {
    let separator = args.printed(0, "d")?.unwrap_or_default();
    let attribute = args.some(1, "attribute")?;
    let mut out = String::new();
    for (i, item) in iterate(v)?.enumerate() {
        let item = match &attribute {
            Some(name) => item.get_item(name)?,
            None => item,
        };
        out.push_str(if i > 0 { &separator } else { "" });
        out.push_str(&to_str(&item)?);
        check_length(out.len())?;
    }
    Ok(out.into())
}

fn indent(v: &Value, args: &Args) -> Result<Value, Error> {
    let indent = match args.some(0, "width")? {
        None => "    ".to_string(),
        Some(width) => indent_text(&width)?,
    };
    let (first, blank) = (args.flag(1, "first")?, args.flag(2, "blank")?);
    let text = super::args::need_str(v)?.to_string() + "\n";
    let lines = splitlines(&text, false);
    check_length(indent.len().saturating_mul(lines.len()).saturating_add(text.len()))?;
    let mut out = if first { indent.clone() } else { String::new() };
    for (i, line) in lines.into_iter().enumerate() {
        out.push_str(if i > 0 { "\n" } else { "" });
        out.push_str(if i > 0 && (blank || !line.is_empty()) { &indent } else { "" });
        out.push_str(line);
    }
    Ok(out.into())
}

/// A number of spaces, or the text itself.
fn indent_text(width: &Value) -> Result<String, Error> {
    match width.as_str() {
        Some(text) => Ok(text.to_string()),
        None => pad("", i64::try_from(width.clone())?, " ", Align::Left),
    }
}

fn tojson(v: &Value, args: &Args) -> Result<Value, Error> {
    let indent = args.some(1, "indent")?.filter(|i| !i.is_undefined());
    let indent = indent.map(|i| indent_text(&i)).transpose()?;
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some(separators) = args.some(2, "separators")?.filter(|s| !s.is_undefined()) {
        item = to_str(&separators.get_item_by_index(0)?)?;
        key = to_str(&separators.get_item_by_index(1)?)?;
    }
    let ascii = args.flag(0, "ensure_ascii")?;
    let sort_keys = args.flag(3, "sort_keys")?;
    Ok(Dumps { ascii, indent, item_separator: item, key_separator: key, sort_keys }.text(v)?.into())
}

fn dictsort(v: &Value, args: &Args) -> Result<Value, Error> {
    if v.kind() != ValueKind::Map {
        return Err(error("dictsort: expected a mapping"));
    }
    let case_sensitive = args.flag(0, "case_sensitive")?;
    let by_value = args.string(1, "by")?.as_deref() == Some("value");
    let reverse = args.flag(2, "reverse")?;
    let key = |(key, value): &(Value, Value)| {
        let key = if by_value { value } else { key };
        match key.as_str() {
            Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
            _ => key.clone(),
        }
    };
    let mut entries = pairs(v);
    entries.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        let order = match (a.as_str(), b.as_str()) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => a.cmp(&b),
        };
        if reverse {
            order.reverse()
        } else {
            order
        }
    });
    Ok(list(entries.into_iter().map(|(k, v)| tuple(vec![k, v])).collect()))
}

/// int() of a text: sign, underscores between digits, a prefix that agrees with the base.
fn int_of(text: &str, base: u32) -> Option<Value> {
    let text = strip(text, None, true, true);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixes: &[&str] = match base {
        16 => &["0x", "0X"],
        8 => &["0o", "0O"],
        2 => &["0b", "0B"],
        _ => &[],
    };
    let digits = prefixes.iter().find_map(|p| digits.strip_prefix(p)).unwrap_or(digits);
    if digits.starts_with(['_', '+', '-']) || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    i128::from_str_radix(&digits.replace('_', ""), base).ok().map(|v| integer(sign * v))
}

fn float_of(text: &str) -> Option<f64> {
    let text = strip(text, None, true, true);
    if text.starts_with('_') || text.ends_with('_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn truncated(x: f64) -> Option<Value> {
    (x.abs() < 1e38).then(|| integer(x as i128))
}

fn int(v: &Value, args: &Args) -> Result<Value, Error> {
    let default = args.get(0, "default")?.unwrap_or_else(|| 0.into());
    let base = args.int(1, "base")?.unwrap_or(10);
    let base = u32::try_from(base).ok().filter(|b| (2..=36).contains(b));
    let base = base.ok_or_else(|| error("int: expected a base of 2 to 36"))?;
    let value = match v.kind() {
        ValueKind::String => {
            let text = v.as_str().unwrap_or("");
            int_of(text, base).or_else(|| float_of(text).and_then(truncated))
        }
        ValueKind::Bool => Some(Value::from(v.is_true() as i64)),
        ValueKind::Number if is_float(v) => truncated(f64::try_from(v.clone())?),
        ValueKind::Number => Some(v.clone()),
        _ => None,
    };
    Ok(value.unwrap_or(default))
}

fn float(v: &Value, args: &Args) -> Result<Value, Error> {
    let default = args.get(0, "default")?.unwrap_or_else(|| 0.0.into());
    let value = match v.kind() {
        ValueKind::String => float_of(v.as_str().unwrap_or("")),
        ValueKind::Bool => Some(v.is_true() as u8 as f64),
        ValueKind::Number => Some(f64::try_from(v.clone())?),
        _ => None,
    };
    Ok(value.map_or(default, Value::from))
}

fn dict(args: &Args) -> Result<Value, Error> {
    let mut entries = IndexMap::new();
    if let Some(source) = args.values.first() {
        match source.kind() {
            ValueKind::Map => entries.extend(pairs(source)),
            _ => {
                for pair in iterate(source)? {
                    entries.insert(pair.get_item_by_index(0)?, pair.get_item_by_index(1)?);
                }
            }
        }
    }
    for name in args.named.args() {
        entries.insert(Value::from(name), args.named.get::<Value>(name)?);
    }
    Ok(Value::from_object(Dict(entries)))
}

/// Python's `+`; a plain string added to a safe one is escaped.
fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    const MAX_ITEMS: usize = 1 << 20;
    let bad = || error(format!("unsupported operands for +: {} and {}", a.kind(), b.kind()));
    let is_list = |v: &Value| matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable);
    let is_number = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        check_length(x.len() + y.len())?;
        if !a.is_safe() && !b.is_safe() {
            return Ok([x, y].concat().into());
        }
        let part = |v: &Value, text: &str| if v.is_safe() { text.to_string() } else { escape_html(text) };
        Ok(Value::from_safe_string(part(a, x) + &part(b, y)))
    } else if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        let values: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).take(MAX_ITEMS + 1).collect();
        match values.len() > MAX_ITEMS {
            true => Err(over_limit(format!("a list of more than {MAX_ITEMS} items"))),
            false => Ok(if a.is_tuple() { tuple(values) } else { list(values) }),
        }
    } else if is_number(a) && is_number(b) {
        let number =
            |v: &Value| if v.kind() == ValueKind::Bool { Value::from(v.is_true() as i64) } else { v.clone() };
        let (a, b) = (number(a), number(b));
        if is_float(&a) || is_float(&b) {
            return Ok((f64::try_from(a)? + f64::try_from(b)?).into());
        }
        i128::try_from(a)?.checked_add(i128::try_from(b)?).map(integer).ok_or_else(bad)
    } else {
        Err(bad())
    }
}

/// `cycler(a, b)`: next(), current, reset().
#[derive(Debug)]
struct Cycler {
    values: Vec<Value>,
    place: AtomicUsize,
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let place = self.place.load(Relaxed);
        (key.as_str()? == "current").then(|| self.values[place % self.values.len()].clone())
    }
    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, _: &[Value]) -> Result<Value, Error> {
        match method {
            "next" => Ok(self.values[self.place.fetch_add(1, Relaxed) % self.values.len()].clone()),
            "reset" => {
                self.place.store(0, Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// `joiner(', ')`: empty on the first call, then the separator.
#[derive(Debug)]
struct Joiner {
    separator: Value,
    calls: AtomicUsize,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn call(self: &Arc<Self>, _: &mut State, _: &[Value]) -> Result<Value, Error> {
        Ok(if self.calls.fetch_add(1, Relaxed) == 0 { "".into() } else { self.separator.clone() })
    }
}
