//! A Hugging Face `tokenizer.json` to the parts of a tokenizer: byte pair encoding over bytes or
//! over SentencePiece text.  What these parts cannot express is refused by name, never guessed.
use crate::patterns::{Splitter, GPT2};
use crate::tokenizer::{Parts, Prefix, Scheme, BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED};
use crate::{Code, Fault};
use serde_json::Value;

const LARGEST_ID: u64 = 1 << 24;

fn bad(text: impl Into<String>) -> Fault {
    Fault(Code::BadVocab, format!("tokenizer.json: {}", text.into()))
}

fn unsupported(what: impl Into<String>) -> Fault {
    Fault(Code::Unsupported, format!("tokenizer.json: {} is not supported", what.into()))
}

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or("")
}

pub fn parse(bytes: &[u8], nfc: Option<bool>) -> Result<Parts, Fault> {
    let file: Value = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    let model = &file["model"];
    if !matches!(text(model, "type"), "BPE" | "") {
        return Err(unsupported(format!("the model '{}'", text(model, "type"))));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if !text(model, key).is_empty() {
            return Err(unsupported(key));
        }
    }
    let mut steps = Steps { splitters: vec![], bytes: false, nfc: false, spaces: None };
    steps.normalizer(&file["normalizer"])?;
    steps.pre_tokenizer(&file["pre_tokenizer"])?;
    let scheme = match (steps.bytes, steps.spaces) {
        (true, None) => Scheme::Bytes { splitters: steps.splitters, nfc: nfc.unwrap_or(steps.nfc) },
        (false, Some(prefix)) if steps.splitters.is_empty() => Scheme::Spaces(prefix),
        _ => return Err(unsupported("a way of splitting that is neither bytes nor SentencePiece")),
    };
    let unknown = model["unk_token"].as_str().map(str::to_string);
    let (pieces, types) = pieces(&file, matches!(scheme, Scheme::Spaces(_)), unknown.as_deref())?;
    let ignore_merges = model["ignore_merges"].as_bool().unwrap_or(false);
    Ok(Parts { scheme, pieces, types, merges: merges(&model["merges"])?, ignore_merges, unknown })
}

/// The lists of steps, of which two outcomes are known: see `Scheme`.
struct Steps {
    splitters: Vec<Splitter>,
    bytes: bool,
    nfc: bool,
    spaces: Option<Prefix>,
}

impl Steps {
    fn normalizer(&mut self, step: &Value) -> Result<(), Fault> {
        match text(step, "type") {
            _ if step.is_null() => Ok(()),
            "NFC" => Ok(self.nfc = true),
            "Prepend" if text(step, "prepend") == "\u{2581}" => Ok(self.spaces = Some(Prefix::Always)),
            "Replace" if text(&step["pattern"], "String") == " " && text(step, "content") == "\u{2581}" => {
                self.spaces.get_or_insert(Prefix::Never);
                Ok(())
            }
            "Sequence" => each(&step["normalizers"], |s| self.normalizer(s)),
            other => Err(unsupported(format!("the normalizer '{other}'"))),
        }
    }

    fn pre_tokenizer(&mut self, step: &Value) -> Result<(), Fault> {
        match text(step, "type") {
            _ if step.is_null() => Ok(()),
            "Sequence" => each(&step["pretokenizers"], |s| self.pre_tokenizer(s)),
            "Split" if text(step, "behavior") == "Isolated" && step["invert"] != true => {
                self.split(text(&step["pattern"], "Regex"))
            }
            "Digits" if step["individual_digits"] == true => self.split(r"\p{N}"),
            "ByteLevel" if step["add_prefix_space"] != true => {
                self.bytes = true;
                if step["use_regex"] != false {
                    self.split(GPT2)?;
                }
                Ok(())
            }
            "Metaspace" if text(step, "replacement") == "\u{2581}" && step["split"] == false => {
                self.spaces = Some(match text(step, "prepend_scheme") {
                    "never" => Prefix::Never,
                    "first" => Prefix::First,
                    _ => Prefix::Always,
                });
                Ok(())
            }
            other => Err(unsupported(format!("the pre-tokenizer '{other}' with these options"))),
        }
    }

    fn split(&mut self, pattern: &str) -> Result<(), Fault> {
        if pattern.is_empty() {
            return Err(unsupported("a Split without a regular expression"));
        }
        let splitter =
            Splitter::new(pattern).map_err(|e| unsupported(format!("the pattern '{pattern}' ({e})")))?;
        self.splitters.push(splitter);
        Ok(())
    }
}

fn each(list: &Value, step: impl FnMut(&Value) -> Result<(), Fault>) -> Result<(), Fault> {
    list.as_array().into_iter().flatten().try_for_each(step)
}

/// Pieces and types by id: the vocabulary, then the added tokens over it; gaps are unused.
fn pieces(file: &Value, spaces: bool, unknown: Option<&str>) -> Result<(Vec<String>, Vec<i32>), Fault> {
    let vocab = file["model"]["vocab"].as_object().ok_or_else(|| bad("model.vocab: expected an object"))?;
    let mut entries = vec![];
    for (piece, id) in vocab {
        let byte = spaces && piece.len() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
        let kind = match Some(piece.as_str()) == unknown {
            true => UNKNOWN,
            false if byte => BYTE,
            false => NORMAL,
        };
        entries.push((id, piece.as_str(), kind));
    }
    for added in file["added_tokens"].as_array().into_iter().flatten() {
        let piece = text(added, "content");
        if let Some(flag) = ["single_word", "lstrip", "rstrip"].iter().find(|f| added[**f] == true) {
            return Err(unsupported(format!("{flag} of the added token '{piece}'")));
        }
        let kind = if added["special"] == true { CONTROL } else { USER_DEFINED };
        entries.push((&added["id"], piece, kind));
    }
    let (mut pieces, mut types) = (vec![], vec![]);
    for (id, piece, kind) in entries {
        let id = id.as_u64().filter(|id| *id < LARGEST_ID);
        let id = id.ok_or_else(|| bad(format!("'{piece}': expected an id below {LARGEST_ID}")))? as usize;
        if id >= pieces.len() {
            pieces.resize(id + 1, String::new());
            types.resize(id + 1, UNUSED);
        }
        pieces[id] = piece.to_string();
        types[id] = kind;
    }
    Ok((pieces, types))
}

/// Merges are pairs, or in older files lines with a space between the two pieces.
fn merges(list: &Value) -> Result<Vec<(String, String)>, Fault> {
    let list = list.as_array().ok_or_else(|| bad("model.merges: expected a list"))?;
    let pair = |(i, merge): (usize, &Value)| {
        let parts = match merge {
            Value::String(line) => line.split_once(' '),
            _ => merge[0].as_str().zip(merge[1].as_str()),
        };
        let parts = parts.map(|(a, b)| (a.to_string(), b.to_string()));
        parts.ok_or_else(|| bad(format!("model.merges: entry {i} is {merge}, expected two pieces")))
    };
    list.iter().enumerate().map(pair).collect()
}
