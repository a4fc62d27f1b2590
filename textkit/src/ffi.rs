//! The C functions of textkit.h.  Each turns pointers into Rust values, catches panics and reports
//! failures as a code and a text; nothing keeps a pointer to an argument.
use crate::grammar::{GrammarEnv, Kind, Matcher};
use crate::template::Template;
use crate::tokenizer::{Mode, Tokenizer, Vocabulary};
use crate::{tokenizer_json, Code, Fault};
use std::borrow::Cow;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TkStr {
    data: *const u8,
    len: usize,
}

#[repr(C)]
pub struct TkBuf {
    data: *mut u8,
    len: usize,
    cap: usize,
}

#[repr(C)]
pub struct TkVocab {
    model: TkStr,
    pre: TkStr,
    pieces: *const TkStr,
    n_pieces: usize,
    types: *const i32,
    n_types: usize,
    scores: *const f32,
    n_scores: usize,
    merges: *const TkStr,
    n_merges: usize,
    nfc: i32, // below 0: as the family was trained
    add_space_prefix: bool,
}

/// Memory of the caller as a slice; null is fine for none.
unsafe fn view<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, len)
    }
}

impl TkStr {
    unsafe fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(view(self.data, self.len))
    }
}

/// A list of strings of a file, which must be UTF-8.
unsafe fn strings(data: *const TkStr, len: usize, key: &str) -> Result<Vec<String>, Fault> {
    let convert = |(i, s): (usize, &TkStr)| {
        let text = std::str::from_utf8(view(s.data, s.len));
        let fault = |e| Fault(Code::BadVocab, format!("tokenizer.ggml.{key}: entry {i} is not UTF-8 ({e})"));
        text.map(str::to_string).map_err(fault)
    };
    view(data, len).iter().enumerate().map(convert).collect()
}

unsafe fn utf8<'a>(data: *const u8, len: usize) -> Result<&'a str, Fault> {
    let text = std::str::from_utf8(view(data, len));
    text.map_err(|e| Fault(Code::BadArgument, format!("expected UTF-8: {e}")))
}

unsafe fn borrow<'a, T>(object: *const T) -> Result<&'a T, Fault> {
    object.as_ref().ok_or_else(|| Fault(Code::BadArgument, "expected an object, found null".into()))
}

unsafe fn borrow_mut<'a, T>(object: *mut T) -> Result<&'a mut T, Fault> {
    object.as_mut().ok_or_else(|| Fault(Code::BadArgument, "expected an object, found null".into()))
}

/// Runs a call: stores its value at `out`, or its message at `err` if that is wanted.
unsafe fn call<T>(out: *mut T, err: *mut *mut c_char, f: impl FnOnce() -> Result<T, Fault>) -> Code {
    if out.is_null() {
        return Code::BadArgument;
    }
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Fault(Code::Internal, format!("panic: {text}")))
    });
    match result {
        Ok(value) => {
            out.write(value);
            Code::Ok
        }
        Err(Fault(code, text)) => {
            if !err.is_null() {
                let line = CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default();
                err.write(line.into_raw());
            }
            code
        }
    }
}

fn buffer(bytes: Vec<u8>) -> TkBuf {
    let mut bytes = std::mem::ManuallyDrop::new(bytes);
    TkBuf { data: bytes.as_mut_ptr(), len: bytes.len(), cap: bytes.capacity() }
}

#[no_mangle]
pub unsafe extern "C" fn tk_buf_free(b: TkBuf) {
    if !b.data.is_null() {
        drop(Vec::from_raw_parts(b.data, b.len, b.cap));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_string_free(text: *mut c_char) {
    if !text.is_null() {
        drop(CString::from_raw(text));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_new(
    vocab: *const TkVocab,
    out: *mut *mut Tokenizer,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || {
        let v = borrow(vocab)?;
        let tokenizer = Tokenizer::from_vocabulary(Vocabulary {
            model: v.model.text().into_owned(),
            pre: v.pre.text().into_owned(),
            pieces: strings(v.pieces, v.n_pieces, "tokens")?,
            types: view(v.types, v.n_types).to_vec(),
            scores: view(v.scores, v.n_scores).to_vec(),
            merges: strings(v.merges, v.n_merges, "merges")?,
            nfc: (v.nfc >= 0).then_some(v.nfc > 0),
            add_space_prefix: v.add_space_prefix,
        })?;
        Ok(Arc::into_raw(Arc::new(tokenizer)).cast_mut())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_from_json(
    data: *const u8,
    len: usize,
    nfc: i32,
    out: *mut *mut Tokenizer,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || {
        let parts = tokenizer_json::parse(view(data, len), (nfc >= 0).then_some(nfc > 0))?;
        Ok(Arc::into_raw(Arc::new(Tokenizer::new(parts)?)).cast_mut())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_tokenizer_free(t: *mut Tokenizer) {
    if !t.is_null() {
        drop(Arc::from_raw(t));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_encode(
    t: *const Tokenizer,
    data: *const u8,
    len: usize,
    mode: i32,
    ids: *mut u32,
    cap: usize,
    count: *mut usize,
    err: *mut *mut c_char,
) -> Code {
    call(count, err, || {
        let mode = match mode {
            0 => Mode::All,
            1 => Mode::User,
            2 => Mode::None,
            3 => Mode::Marked,
            _ => return Err(Fault(Code::BadArgument, format!("expected a mode of 0 to 3, found {mode}"))),
        };
        let text = String::from_utf8_lossy(view(data, len));
        let found = borrow(t)?.encode(&text, mode)?;
        if !ids.is_null() {
            ids.copy_from_nonoverlapping(found.as_ptr(), found.len().min(cap));
        }
        Ok(found.len())
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_mark_control(
    t: *const Tokenizer,
    data: *const u8,
    len: usize,
    out: *mut TkBuf,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || Ok(buffer(borrow(t)?.mark_control(utf8(data, len)?).into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn tk_piece(t: *const Tokenizer, id: u32, data: *mut *const u8, len: *mut usize) {
    let piece = (*t).piece(id);
    data.write(piece.as_ptr());
    len.write(piece.len());
}

#[no_mangle]
pub unsafe extern "C" fn tk_token_type(t: *const Tokenizer, id: u32) -> i32 {
    (*t).token_type(id)
}

#[no_mangle]
pub unsafe extern "C" fn tk_find(t: *const Tokenizer, data: *const u8, len: usize) -> i64 {
    let id = std::str::from_utf8(view(data, len)).ok().and_then(|text| (*t).find(text));
    id.map_or(-1, i64::from)
}

#[no_mangle]
pub unsafe extern "C" fn tk_size(t: *const Tokenizer) -> usize {
    (*t).len()
}

#[no_mangle]
pub unsafe extern "C" fn tk_adds_space(t: *const Tokenizer) -> bool {
    (*t).adds_space()
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_new(
    data: *const u8,
    len: usize,
    out: *mut *mut Template,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || Ok(Box::into_raw(Box::new(Template::new(utf8(data, len)?)?))))
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_free(t: *mut Template) {
    if !t.is_null() {
        drop(Box::from_raw(t));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_template_render(
    t: *const Template,
    json: *const u8,
    len: usize,
    now_unix: i64,
    out: *mut TkBuf,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || Ok(buffer(borrow(t)?.render(utf8(json, len)?, now_unix)?.into_bytes())))
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_env_new(
    t: *const Tokenizer,
    ends: *const u32,
    n_ends: usize,
    out: *mut *mut GrammarEnv,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || {
        borrow(t)?;
        Arc::increment_strong_count(t);
        let env = GrammarEnv::new(Arc::from_raw(t), view(ends, n_ends))?;
        Ok(Box::into_raw(Box::new(env)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_grammar_env_free(e: *mut GrammarEnv) {
    if !e.is_null() {
        drop(Box::from_raw(e));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_new(
    e: *const GrammarEnv,
    kind: i32,
    text: *const u8,
    len: usize,
    strict: bool,
    ignored: *mut TkBuf,
    out: *mut *mut Matcher,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || {
        let kind = match kind {
            0 => Kind::JsonSchema,
            1 => Kind::Regex,
            2 => Kind::Lark,
            _ => return Err(Fault(Code::BadArgument, format!("expected a kind of 0 to 2, found {kind}"))),
        };
        let (matcher, warnings) = borrow(e)?.compile(kind, utf8(text, len)?, strict)?;
        if !ignored.is_null() {
            ignored.write(buffer(warnings.into_bytes()));
        }
        Ok(Box::into_raw(Box::new(matcher)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_copy(
    m: *const Matcher,
    alone: bool,
    out: *mut *mut Matcher,
    err: *mut *mut c_char,
) -> Code {
    call(out, err, || Ok(Box::into_raw(Box::new(borrow(m)?.copy(alone)))))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_free(m: *mut Matcher) {
    if !m.is_null() {
        drop(Box::from_raw(m));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_mask(
    m: *mut Matcher,
    words: *mut u64,
    n_words: usize,
    may_end: *mut bool,
    err: *mut *mut c_char,
) -> Code {
    call(may_end, err, || {
        let words = if words.is_null() { &mut [] } else { slice::from_raw_parts_mut(words, n_words) };
        let matcher = borrow_mut(m)?;
        matcher.mask(words)?;
        matcher.may_end()
    })
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_accept(
    m: *mut Matcher,
    token: u32,
    fits: *mut bool,
    err: *mut *mut c_char,
) -> Code {
    call(fits, err, || borrow_mut(m)?.accept(token))
}

#[no_mangle]
pub unsafe extern "C" fn tk_matcher_complete(m: *const Matcher) -> bool {
    (*m).complete()
}
