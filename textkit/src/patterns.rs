//! How text is cut into words before byte pair encoding, by the name in `tokenizer.ggml.pre`.
//! Every published pattern ends in `\s+(?!\S)|\s+`.  Crate `regex` has no look-ahead, so these two
//! alternatives become one `\s+`, and `Splitter` gives the last space back where the look-ahead would.
use crate::{Code, Fault};
use regex::Regex;

pub struct Splitter {
    regex: Regex,
    gives_space_back: bool, // the pattern ended in \s+(?!\S)|\s+
    takes_line_ends: bool,  // ... after an alternative \s*[\r\n]+
}

const LOOK_AHEAD: &str = r"|\s+(?!\S)|\s+";

impl Splitter {
    pub fn new(pattern: &str) -> Result<Splitter, String> {
        let stem = pattern.strip_suffix(LOOK_AHEAD);
        let plain = stem.map_or(pattern.to_string(), |stem| format!(r"{stem}|\s+"));
        Ok(Splitter {
            regex: Regex::new(&plain).map_err(|e| e.to_string())?,
            gives_space_back: stem.is_some(),
            takes_line_ends: pattern.contains(r"|\s*[\r\n]+"),
        })
    }

    /// Calls `word` for each match and for each stretch between matches, in order.
    pub fn split<'t>(&self, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        while let Some(found) = self.regex.find_at(text, done) {
            let mut end = found.end();
            if self.gives_space_back && end < text.len() {
                end -= self.last_space(found.as_str());
            }
            if end == found.start() {
                break; // an empty match: no pattern here has one
            }
            if found.start() > done {
                word(&text[done..found.start()]);
            }
            word(&text[found.start()..end]);
            done = end;
        }
        if done < text.len() {
            word(&text[done..]);
        }
    }

    /// Bytes of the last character of a run of two or more spaces that `\s+` matched.
    fn last_space(&self, run: &str) -> usize {
        let last = run.chars().next_back().map_or(0, char::len_utf8);
        let spaces = run.ends_with(char::is_whitespace) && run.chars().all(char::is_whitespace);
        let other_rule = self.takes_line_ends && run.contains(['\r', '\n']);
        if spaces && !other_rule && last < run.len() {
            last
        } else {
            0
        }
    }
}

pub struct Recipe {
    pub splitters: Vec<Splitter>, // each cuts the pieces of the one before
    pub ignore_merges: bool,      // a word that is a token is taken whole
    pub nfc: bool,                // the models of this family were trained on text in NFC
}

pub const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
const DEFAULT: [&str; 4] = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"];

/// The recipe of a name, or an error that names it: a wrong guess would give wrong tokens silently.
pub fn recipe(pre: &str) -> Result<Recipe, Fault> {
    let (patterns, ignore_merges, nfc): (&[&str], bool, bool) = match pre {
        "gpt-2" => (&[GPT2], false, false),
        "smollm" | "starcoder" | "refact" | "command-r" => (&[r"\p{N}", GPT2], false, false),
        "qwen2" | "deepseek-r1-qwen" => (&[QWEN2], false, true),
        "qwen35" => (&[QWEN35], false, true),
        "llama-bpe" | "llama3" | "llama-v3" => (&[LLAMA3], true, false),
        "glm4" | "chatglm-bpe" => (&[LLAMA3], false, false),
        "deepseek-v3" => (&DEEPSEEK, false, false),
        "default" | "" => (&DEFAULT, false, false),
        _ => {
            let text = format!("tokenizer.ggml.pre: word splitting '{pre}' is not supported");
            return Err(Fault(Code::Unsupported, text));
        }
    };
    let splitters: Result<Vec<_>, String> = patterns.iter().map(|p| Splitter::new(p)).collect();
    let splitters = splitters.map_err(|e| Fault(Code::Internal, e))?;
    Ok(Recipe { splitters, ignore_merges, nfc })
}
