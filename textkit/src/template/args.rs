//! Arguments of a filter, method or function, by place or by name.
use super::text::to_str;
use super::values::error;
use minijinja::value::{from_args, Kwargs, Value};
use minijinja::{Error, ErrorKind};

pub struct Args {
    pub values: Vec<Value>,
    pub named: Kwargs,
}

impl Args {
    pub fn new(all: &[Value]) -> Result<Args, Error> {
        let (values, named): (&[Value], Kwargs) = from_args(all)?;
        Ok(Args { values: values.to_vec(), named })
    }

    pub fn get(&self, place: usize, name: &str) -> Result<Option<Value>, Error> {
        match self.values.get(place) {
            Some(value) => Ok(Some(value.clone())),
            None => self.named.get::<Option<Value>>(name),
        }
    }

    /// As `get`, with none the same as absent.
    pub fn some(&self, place: usize, name: &str) -> Result<Option<Value>, Error> {
        Ok(self.get(place, name)?.filter(|v| !v.is_none()))
    }

    pub fn need(&self, place: usize, name: &str) -> Result<Value, Error> {
        self.get(place, name)?.ok_or_else(|| Error::from(ErrorKind::MissingArgument))
    }

    pub fn flag(&self, place: usize, name: &str) -> Result<bool, Error> {
        Ok(self.get(place, name)?.is_some_and(|v| v.is_true()))
    }

    pub fn int(&self, place: usize, name: &str) -> Result<Option<i64>, Error> {
        self.some(place, name)?.map(i64::try_from).transpose()
    }

    /// A string; other values are refused.
    pub fn string(&self, place: usize, name: &str) -> Result<Option<String>, Error> {
        self.some(place, name)?.map(|v| need_str(&v).map(str::to_string)).transpose()
    }

    pub fn need_string(&self, place: usize, name: &str) -> Result<String, Error> {
        Ok(need_str(&self.need(place, name)?)?.to_string())
    }

    /// str() of any value.
    pub fn printed(&self, place: usize, name: &str) -> Result<Option<String>, Error> {
        self.get(place, name)?.map(|v| to_str(&v)).transpose()
    }

    /// No argument may be left over.
    pub fn done(&self, most: usize) -> Result<(), Error> {
        match self.values.len() > most {
            true => Err(Error::from(ErrorKind::TooManyArguments)),
            false => self.named.assert_all_used(),
        }
    }
}

pub fn need_str(v: &Value) -> Result<&str, Error> {
    v.as_str().ok_or_else(|| error(format!("expected a string, found {}", v.kind())))
}
