//! Text to token ids: byte pair encoding from the arrays of a model file.  Added tokens, Unicode
//! normalisation and word splitting are done here; `tokenizers` does the merging of one word.
use crate::patterns::{recipe, Splitter};
use crate::{is_mark, Code, Fault, MARK_CLOSE, MARK_OPEN};
use ahash::AHashMap;
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;
use tokenizers::models::bpe::BPE;
use tokenizers::Model;
use unicode_normalization_alignments::UnicodeNormalization;

/// What a GGUF file says under `tokenizer.ggml.`; `pre` and `merges` for gpt2, `scores` for llama.
pub struct Vocabulary {
    pub model: String,
    pub pre: String,
    pub pieces: Vec<String>,
    pub types: Vec<i32>, // empty: all normal
    pub scores: Vec<f32>,
    pub merges: Vec<String>,
    pub nfc: Option<bool>, // none: as the family was trained
    pub add_space_prefix: bool,
}

pub const NORMAL: i32 = 1;
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const UNUSED: i32 = 5;
pub const BYTE: i32 = 6;

/// Which added tokens are found in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    All,    // control and user-defined
    User,   // user-defined
    None,   // none: raw text
    Marked, // all, but not between marks; the marks are dropped
}

/// One U+2581 before the text: never, at its beginning, or also after each added token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    Never,
    First,
    Always,
}

pub enum Scheme {
    /// Words, then bytes as the characters of the GPT-2 byte alphabet.
    Bytes { splitters: Vec<Splitter>, nfc: bool },
    /// SentencePiece: spaces as U+2581, no words.
    Spaces(Prefix),
}

/// Everything a tokenizer is made of, whatever file it came from.
pub struct Parts {
    pub scheme: Scheme,
    pub pieces: Vec<String>,
    pub types: Vec<i32>,
    pub merges: Vec<(String, String)>,
    pub ignore_merges: bool,
    pub unknown: Option<String>,
}

pub struct Tokenizer {
    bpe: BPE,
    scheme: Scheme,
    all: Added,
    user: Added,
    control: Added,
    bytes: Vec<u8>,     // of all tokens, one after the other
    starts: Vec<usize>, // token i is bytes[starts[i]..starts[i + 1]]
    types: Vec<i32>,
    apart: AHashMap<Box<[u8]>, u32>, // ids of control and unused tokens, which merging may not know
    alphabet: [char; 256],
}

/// Added tokens of some types, found leftmost and longest first.
struct Added {
    search: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Added {
    fn new(parts: &Parts, types: &[i32]) -> Result<Added, Fault> {
        let chosen = |i: &usize| types.contains(&parts.types[*i]) && !parts.pieces[*i].is_empty();
        let ids: Vec<usize> = (0..parts.pieces.len()).filter(chosen).collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(ids.iter().map(|i| &parts.pieces[*i]))
            .map_err(|e| bad("tokens", e.to_string()))?;
        let search = (!ids.is_empty()).then_some(search);
        Ok(Added { search, ids: ids.iter().map(|i| *i as u32).collect() })
    }

    /// (start, end, id) of each added token in the text.
    fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        let matches = self.search.iter().flat_map(move |s| s.find_iter(text));
        matches.map(|m| (m.start(), m.end(), self.ids[m.pattern().as_usize()]))
    }
}

fn bad(key: &str, text: String) -> Fault {
    Fault(Code::BadVocab, format!("tokenizer.ggml.{key}: {text}"))
}

/// The GPT-2 alphabet: printable bytes stand for themselves, the others for U+0100 and on.
fn byte_alphabet() -> [char; 256] {
    let mut next = 0x100..;
    std::array::from_fn(|b| match b {
        33..=126 | 161..=172 | 174..=255 => b as u8 as char,
        _ => next.next().and_then(char::from_u32).unwrap_or('\0'),
    })
}

impl Tokenizer {
    pub fn from_vocabulary(v: Vocabulary) -> Result<Tokenizer, Fault> {
        if v.model != "gpt2" && v.model != "llama" {
            let text = format!("tokenizer.ggml.model: tokenizer '{}' is not supported", v.model);
            return Err(Fault(Code::Unsupported, text));
        }
        let (n, pieces) = (v.pieces.len(), v.pieces);
        let types = if v.types.is_empty() { vec![NORMAL; n] } else { v.types };
        if types.len() != n {
            let found = types.len();
            return Err(bad("token_type", format!("{found} values, expected one for each of {n} tokens")));
        }
        if let Some(i) = types.iter().position(|t| !(0..=BYTE).contains(t)) {
            return Err(bad("token_type", format!("token {i} has type {}, expected 0 to 6", types[i])));
        }
        let mut parts = Parts {
            scheme: Scheme::Spaces(if v.add_space_prefix { Prefix::Always } else { Prefix::Never }),
            unknown: None,
            ignore_merges: false,
            merges: vec![],
            pieces,
            types,
        };
        if v.model == "llama" {
            parts.unknown = parts.types.iter().position(|t| *t == UNKNOWN).map(|i| parts.pieces[i].clone());
            parts.merges = merges_from_scores(&parts, &v.scores)?;
        } else {
            let recipe = recipe(&v.pre)?;
            let nfc = v.nfc.unwrap_or(recipe.nfc);
            parts.scheme = Scheme::Bytes { splitters: recipe.splitters, nfc };
            parts.ignore_merges = recipe.ignore_merges;
            parts.merges = split_merges(&v.merges)?;
        }
        Tokenizer::new(parts)
    }

    pub fn new(parts: Parts) -> Result<Tokenizer, Fault> {
        let mut known: AHashMap<&str, usize> = AHashMap::with_capacity(parts.pieces.len());
        for (i, piece) in parts.pieces.iter().enumerate() {
            known.entry(piece).or_insert(i); // of equal pieces the lowest id counts
        }
        // Control and unused tokens are no result of merging, unless the file says how.
        let merged = |kind: i32| kind != CONTROL && kind != UNUSED;
        let mut vocab: AHashMap<String, u32> = AHashMap::with_capacity(known.len());
        for (piece, i) in known.iter().filter(|(_, i)| merged(parts.types[**i])) {
            vocab.insert(piece.to_string(), *i as u32);
        }
        for (n, (a, b)) in parts.merges.iter().enumerate() {
            let whole = [a.as_str(), b.as_str()].concat();
            for piece in [a, b, &whole] {
                let Some(i) = known.get(piece.as_str()) else {
                    return Err(bad("merges", format!("merge {n} needs '{piece}', which is not a token")));
                };
                if !merged(parts.types[*i]) {
                    vocab.insert(piece.clone(), *i as u32);
                }
            }
        }
        let (all, user, control) = (
            Added::new(&parts, &[CONTROL, USER_DEFINED])?,
            Added::new(&parts, &[USER_DEFINED])?,
            Added::new(&parts, &[CONTROL])?,
        );
        let alphabet = byte_alphabet();
        let (bytes, starts) = piece_bytes(&parts, &alphabet);
        let mut bpe = BPE::builder().vocab_and_merges(vocab, parts.merges).ignore_merges(parts.ignore_merges);
        if matches!(parts.scheme, Scheme::Spaces(_)) {
            bpe = bpe.byte_fallback(true).fuse_unk(true);
            if let Some(unknown) = parts.unknown {
                bpe = bpe.unk_token(unknown);
            }
        }
        let bpe = bpe.build().map_err(|e| bad("merges", e.to_string()))?;
        let (scheme, types) = (parts.scheme, parts.types);
        let mut apart = AHashMap::new();
        for i in (0..types.len()).filter(|i| matches!(types[*i], CONTROL | UNUSED)) {
            apart.entry(bytes[starts[i]..starts[i + 1]].into()).or_insert(i as u32);
        }
        Ok(Tokenizer { bpe, scheme, all, user, control, bytes, starts, types, apart, alphabet })
    }

    pub fn encode(&self, text: &str, mode: Mode) -> Result<Vec<u32>, Fault> {
        let (text, found) = self.find_added(text, mode);
        let mut ids = Vec::with_capacity(text.len() / 3 + 4);
        let mut done = 0;
        for (start, end, id) in found {
            self.encode_stretch(&text[done..start], done == 0, &mut ids)?;
            ids.push(id);
            done = end;
        }
        self.encode_stretch(&text[done..], done == 0, &mut ids)?;
        Ok(ids)
    }

    /// The text without marks, and the added tokens in it, which never reach into marked text.
    fn find_added<'t>(&self, text: &'t str, mode: Mode) -> (Cow<'t, str>, Vec<(usize, usize, u32)>) {
        match mode {
            Mode::None => (text.into(), vec![]),
            Mode::User => (text.into(), self.user.find(text).collect()),
            Mode::All => (text.into(), self.all.find(text).collect()),
            Mode::Marked => {
                let mut plain = String::with_capacity(text.len());
                let mut found = vec![];
                let mut marked = false;
                for part in text.split_inclusive(is_mark) {
                    let inner = part.trim_end_matches(is_mark);
                    if !marked {
                        let at = plain.len();
                        found.extend(self.all.find(inner).map(|(s, e, id)| (at + s, at + e, id)));
                    }
                    plain.push_str(inner);
                    marked = if inner.len() < part.len() { part.ends_with(MARK_OPEN) } else { marked };
                }
                (plain.into(), found)
            }
        }
    }

    /// Puts marks around the text of each control token, and around an end of the text that begins
    /// one: two strings of a request may be joined by the template.
    pub fn mark_control(&self, text: &str) -> String {
        let text: Cow<str> = match text.contains(is_mark) {
            true => text.replace(is_mark, "\u{FFFD}").into(),
            false => text.into(),
        };
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        let last = self.control_begins(&text);
        for (start, end) in self.control.find(&text).map(|(s, e, _)| (s, e)).chain(last) {
            let start = start.max(done);
            if start < end {
                out.push_str(&text[done..start]);
                out.push(MARK_OPEN);
                out.push_str(&text[start..end]);
                out.push(MARK_CLOSE);
                done = end;
            }
        }
        out + &text[done..]
    }

    /// The longest end of the text that is the beginning of a control token.  Tokens that begin with
    /// a letter or digit are left out, or ordinary words would count.
    fn control_begins(&self, text: &str) -> Option<(usize, usize)> {
        let pieces = || self.control.ids.iter().map(|id| self.piece(*id));
        let longest = pieces().map(<[u8]>::len).max()?;
        let mut firsts = [false; 256];
        pieces().filter(|p| !p[0].is_ascii_alphanumeric()).for_each(|p| firsts[p[0] as usize] = true);
        let bytes = text.as_bytes();
        let from = bytes.len().saturating_sub(longest);
        let begins = |i: &usize| {
            text.is_char_boundary(*i)
                && firsts[bytes[*i] as usize]
                && pieces().any(|p| p.starts_with(&bytes[*i..]))
        };
        (from..bytes.len()).find(begins).map(|i| (i, bytes.len()))
    }

    fn encode_stretch(&self, text: &str, first: bool, ids: &mut Vec<u32>) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        match &self.scheme {
            Scheme::Spaces(prefix) => {
                let mut word = text.replace(' ', "\u{2581}");
                if *prefix == Prefix::Always || *prefix == Prefix::First && first {
                    word.insert(0, '\u{2581}');
                }
                self.merge(&word, ids)
            }
            Scheme::Bytes { splitters, nfc } => {
                let text: Cow<str> = match *nfc && !text.is_ascii() {
                    true => text.nfc().map(|(c, _)| c).collect::<String>().into(),
                    false => text.into(),
                };
                let mut words = vec![&*text];
                for splitter in splitters {
                    let mut next = Vec::with_capacity(words.len() + text.len() / 5);
                    words.into_iter().for_each(|w| splitter.split(w, &mut |piece| next.push(piece)));
                    words = next;
                }
                let mut word = String::new();
                words.into_iter().try_for_each(|w| {
                    word.clear();
                    word.extend(w.bytes().map(|b| self.alphabet[b as usize]));
                    self.merge(&word, ids)
                })
            }
        }
    }

    fn merge(&self, word: &str, ids: &mut Vec<u32>) -> Result<(), Fault> {
        let tokens = self.bpe.tokenize(word).map_err(|e| Fault(Code::Internal, e.to_string()))?;
        ids.extend(tokens.iter().map(|t| t.id));
        Ok(())
    }

    /// The raw bytes of a token; empty for an unknown id.
    pub fn piece(&self, id: u32) -> &[u8] {
        match self.starts.get(id as usize..).and_then(|s| s.get(..2)) {
            Some(&[start, end]) => &self.bytes[start..end],
            _ => &[],
        }
    }

    pub fn token_type(&self, id: u32) -> i32 {
        self.types.get(id as usize).copied().unwrap_or(0)
    }

    /// The id of a token by its text in the file.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.bpe.token_to_id(text).or_else(|| self.apart.get(text.as_bytes()).copied())
    }

    pub fn adds_space(&self) -> bool {
        matches!(self.scheme, Scheme::Spaces(Prefix::First | Prefix::Always))
    }

    pub fn len(&self) -> usize {
        self.types.len()
    }
}

/// A line of `merges` splits at the first space that is not its first byte.
fn split_merges(lines: &[String]) -> Result<Vec<(String, String)>, Fault> {
    let split = |(i, line): (usize, &String)| {
        let at = line.bytes().skip(1).position(|b| b == b' ').map(|p| p + 1);
        match at {
            Some(at) => Ok((line[..at].to_string(), line[at + 1..].to_string())),
            None => Err(bad("merges", format!("merge {i} is '{line}', expected two pieces and a space"))),
        }
    };
    lines.iter().enumerate().map(split).collect()
}

/// SentencePiece files hold scores, no merges: every way to cut a piece into two known pieces is a
/// merge, ordered by the score of the piece, then by its id.
fn merges_from_scores(parts: &Parts, scores: &[f32]) -> Result<Vec<(String, String)>, Fault> {
    const LONGEST: usize = 1024; // bytes; the work below grows with the square
    let n = parts.pieces.len();
    if scores.len() != n {
        return Err(bad("scores", format!("{} values, expected one for each of {n} tokens", scores.len())));
    }
    if let Some(i) = scores.iter().position(|s| s.is_nan()) {
        return Err(bad("scores", format!("the score of token {i} is not a number")));
    }
    if let Some(i) = parts.pieces.iter().position(|p| p.len() > LONGEST) {
        return Err(bad(
            "tokens",
            format!("token {i} has {} bytes, at most {LONGEST} are supported", parts.pieces[i].len()),
        ));
    }
    let known: ahash::AHashSet<&str> = parts.pieces.iter().map(String::as_str).collect();
    let mut order: Vec<usize> = (0..n).filter(|i| matches!(parts.types[*i], NORMAL | USER_DEFINED)).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let mut merges = vec![];
    for i in order {
        let piece = &parts.pieces[i];
        for (at, _) in piece.char_indices().skip(1) {
            let (a, b) = piece.split_at(at);
            if known.contains(a) && known.contains(b) {
                merges.push((a.to_string(), b.to_string()));
            }
        }
    }
    Ok(merges)
}

fn piece_bytes(parts: &Parts, alphabet: &[char; 256]) -> (Vec<u8>, Vec<usize>) {
    let byte_of: AHashMap<char, u8> = (0..=255).map(|b| (alphabet[b as usize], b)).collect();
    let (mut bytes, mut starts) = (vec![], vec![0]);
    for (piece, kind) in parts.pieces.iter().zip(&parts.types) {
        let hex = piece.strip_prefix("<0x").and_then(|h| h.strip_suffix('>'));
        match (&parts.scheme, *kind) {
            (_, CONTROL) | (Scheme::Bytes { .. }, USER_DEFINED) => bytes.extend(piece.bytes()),
            (Scheme::Spaces(_), BYTE) => match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(piece.bytes()),
            },
            (Scheme::Spaces(_), _) => bytes.extend(piece.replace('\u{2581}', " ").bytes()),
            (Scheme::Bytes { .. }, _) => piece.chars().for_each(|c| match byte_of.get(&c) {
                Some(byte) => bytes.push(*byte),
                None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }),
        }
        starts.push(bytes.len());
    }
    (bytes, starts)
}
