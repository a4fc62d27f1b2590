//! Chat templates: minijinja made to print what Python's Jinja2 prints with the settings of
//! `transformers`.  A pre-pass over the source (prepass.rs) and values, methods and filters with
//! Python's rules do it.  Rendering is bounded in work, output and nesting.
mod args;
mod filters;
mod json;
mod methods;
mod prepass;
mod text;
mod values;

use crate::{Code, Fault};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, Write};
use values::{error, Cause};

const FUEL: u64 = 2_000_000; // instructions: about 0.1 s
const FUEL_PER_BYTE: u64 = 16; // and as many for each byte of the variables
const MAX_FUEL: u64 = 20_000_000;
// Deeply nested values and expressions are compared, dropped and compiled by recursion.  Only what is
// used of this address space becomes memory.
const STACK: usize = 1 << 30; // bytes
const MAX_SOURCE: usize = 4 << 20; // bytes

pub struct Template {
    env: Environment<'static>,
}

const NAME: &str = "chat template";

impl Template {
    pub fn new(source: &str) -> Result<Template, Fault> {
        if source.len() > MAX_SOURCE {
            let text = format!("the template has {} bytes, at most {MAX_SOURCE} are supported", source.len());
            return Err(Fault(Code::Limit, text));
        }
        stacker::grow(STACK, || Template::compile(source))
    }

    fn compile(source: &str) -> Result<Template, Fault> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(fault)?);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(|out, _, value| Ok(out.write_str(&text::to_str(value)?)?));
        filters::register(&mut env);
        env.add_template_owned(NAME, prepass::rewrite(source)?).map_err(fault)?;
        Ok(Template { env })
    }

    /// `json` is an object with all variables; `now_unix` is what `strftime_now` tells.
    pub fn render(&self, json: &str, now_unix: i64) -> Result<String, Fault> {
        stacker::grow(STACK, || self.render_here(json, now_unix))
    }

    fn render_here(&self, json: &str, now_unix: i64) -> Result<String, Fault> {
        let variables = json::parse(json).map_err(|e| Fault(Code::BadArgument, format!("variables: {e}")))?;
        let Some(variables) = variables.downcast_object_ref::<values::Dict>() else {
            return Err(Fault(Code::BadArgument, "variables: expected an object".into()));
        };
        let strftime = Value::from_function(move |format: &str| strftime(format, now_unix));
        // No Dict: a variable that is not there must not be found as a method of that name.
        let mut scope = BTreeMap::from([("strftime_now".to_string(), strftime)]);
        scope.extend(variables.0.iter().map(|(key, value)| (key.to_string(), value.clone())));
        let mut out = Bounded(Vec::new());
        let mut env = self.env.clone();
        env.set_fuel(Some(MAX_FUEL.min(FUEL + FUEL_PER_BYTE * json.len() as u64)));
        let template = env.get_template(NAME).map_err(fault)?;
        template.render_captured_to(Value::from(scope), &mut out).map_err(fault)?;
        String::from_utf8(out.0).map_err(|e| Fault(Code::Internal, e.to_string()))
    }
}

/// Output of at most `text::MAX_TEXT` bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > text::MAX_TEXT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The plain message and its line; the library's long form would print values of variables.
fn fault(e: Error) -> Fault {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&e);
    let mut cause = None;
    while let Some(next) = source {
        cause = cause.or(next.downcast_ref::<Cause>());
        source = next.source();
    }
    let code = match (cause, e.kind()) {
        (Some(Cause::Raised(message)), _) => return Fault(Code::TemplateRaised, message.clone()),
        (_, ErrorKind::WriteFailure) => {
            return Fault(Code::Limit, format!("the prompt is longer than {} bytes", text::MAX_TEXT));
        }
        (_, ErrorKind::OutOfFuel) => return Fault(Code::Limit, "rendering takes too much work".into()),
        (Some(Cause::Limit), _) => Code::Limit,
        (_, ErrorKind::SyntaxError) => Code::TemplateSyntax,
        _ => Code::TemplateRuntime,
    };
    let text = match e.detail() {
        Some(detail) => format!("{}: {detail}", e.kind()),
        None => e.kind().to_string(),
    };
    let line = e.line().map_or(String::new(), |line| format!("line {line}: "));
    Fault(code, line + &text)
}

/// The C function with local time, as Python's `datetime.now().strftime`.
fn strftime(format: &str, now_unix: i64) -> Result<String, Error> {
    const LONGEST: usize = 4096;
    let format = CString::new(format).map_err(|_| error("strftime_now: the format has a NUL"))?;
    let mut out = vec![0u8; LONGEST];
    // SAFETY: plain C calls on memory of our own; strftime writes at most LONGEST bytes.
    let written = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        let seconds: libc::time_t = now_unix;
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return Err(error("strftime_now: the time is out of range"));
        }
        libc::strftime(out.as_mut_ptr().cast(), LONGEST, format.as_ptr(), &parts)
    };
    out.truncate(written);
    Ok(String::from_utf8_lossy(&out).into_owned())
}
