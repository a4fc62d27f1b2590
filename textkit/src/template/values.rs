//! Python's containers as template values: dict, list, dict views, generators, bound methods.
use super::text::to_str;
use indexmap::IndexMap;
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, Tuple, Value, ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::fmt;
use std::sync::{Arc, Mutex};

/// What an error of ours is about, where the kind of the library does not say it.
#[derive(Debug)]
pub enum Cause {
    Raised(String), // by raise_exception
    Limit,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Raised(message) => message,
            Cause::Limit => "limit",
        })
    }
}

impl std::error::Error for Cause {}

pub fn error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

pub fn over_limit(text: impl Into<String>) -> Error {
    error(text).with_source(Cause::Limit)
}

/// The methods a template may call on a dict; attribute syntax finds them before keys of that name.
pub const DICT_METHODS: &[&str] = &["get", "items", "keys", "values", "copy", "fromkeys"];

macro_rules! render_as_python {
    () => {
        fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&to_str(&Value::from_dyn_object(self.clone())).map_err(|_| fmt::Error)?)
        }
    };
}

#[derive(Debug)]
pub struct Dict(pub IndexMap<Value, Value>);

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key).cloned()
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match DICT_METHODS.contains(&key) {
            true => Some(bound(Value::from_dyn_object(self.clone()), key)),
            false => self.0.get(&Value::from(key)).cloned(),
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_key_value_enumerator(|this| Box::new(this.0.iter().map(|(k, v)| (k.clone(), v.clone()))))
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
    render_as_python!();
}

#[derive(Debug)]
pub struct List(pub Vec<Value>);

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
    render_as_python!();
}

/// What `items()`, `keys()` and `values()` of a dict return.
#[derive(Debug)]
pub struct DictView {
    pub dict: Value,
    pub method: &'static str,
}

impl Object for DictView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let entry = |(k, v)| match self.method {
            "keys" => k,
            "values" => v,
            _ => tuple(vec![k, v]),
        };
        Enumerator::Values(pairs(&self.dict).into_iter().map(entry).collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.dict.len()
    }
    render_as_python!();
}

/// What `map`, `select` and the like return: can be walked once, is always true, has no length.
#[derive(Debug)]
pub struct Generator(Mutex<Vec<Value>>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let values = self.0.lock().map(|mut v| std::mem::take(&mut *v));
        Enumerator::Values(values.unwrap_or_default())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }
}

#[derive(Debug)]
struct Bound {
    object: Value,
    method: String,
}

impl Object for Bound {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.object.call_method(state, &self.method, args)
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<built-in method {} of dict object>", self.method)
    }
}

pub fn bound(object: Value, method: &str) -> Value {
    Value::from_object(Bound { object, method: method.into() })
}

pub fn list(values: Vec<Value>) -> Value {
    Value::from_object(List(values))
}

pub fn tuple(values: Vec<Value>) -> Value {
    Value::from(Tuple::from(values))
}

pub fn generator(values: Vec<Value>) -> Value {
    Value::from_object(Generator(Mutex::new(values)))
}

pub fn is_generator(v: &Value) -> bool {
    v.downcast_object_ref::<Generator>().is_some()
}

pub fn is_view(v: &Value) -> bool {
    v.downcast_object_ref::<DictView>().is_some()
}

pub fn is_float(v: &Value) -> bool {
    v.is_number() && !v.is_integer()
}

/// Keys and values of a mapping; nothing for other values.
pub fn pairs(v: &Value) -> Vec<(Value, Value)> {
    v.as_object().and_then(|o| o.try_iter_pairs()).into_iter().flatten().collect()
}

/// Iteration by Python's rules: none, numbers and booleans are refused.
pub fn iterate(v: &Value) -> Result<ValueIter, Error> {
    check_iterable(v)?;
    v.try_iter()
}

pub fn check_iterable(v: &Value) -> Result<(), Error> {
    match v.kind() {
        ValueKind::None | ValueKind::Number | ValueKind::Bool | ValueKind::Plain => {
            Err(error(format!("{} object is not iterable", v.kind())))
        }
        _ => Ok(()),
    }
}

pub fn integer(v: i128) -> Value {
    i64::try_from(v).map_or_else(|_| Value::from(v), Value::from)
}
