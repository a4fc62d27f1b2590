//! Which tokens may come next: `llguidance` over the vocabulary of a tokenizer.
use crate::tokenizer::{Mode, Tokenizer, CONTROL, UNUSED, USER_DEFINED};
use crate::{Code, Fault};
use llguidance::api::{GrammarWithLexer, StopReason, TopLevelGrammar};
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::ParserFactory;
use serde_json::{json, Value};
use std::sync::Arc;

/// Compilation recurses: over nested rules, and over the properties of an object.
const STACK: usize = 1 << 30; // bytes; only what is used becomes memory

struct Vocabulary {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl Vocabulary {
    fn tokens(&self, bytes: &[u8], mode: Mode) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.tokenizer.encode(text, mode).unwrap_or_else(|_| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.tokens(bytes, Mode::None)
    }

    fn tokenize_bytes_special(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.tokens(bytes, Mode::All)
    }

    /// Whether forced text may be forced as the tokens that encoding gives.
    fn tokenize_is_canonical(&self) -> bool {
        !self.tokenizer.adds_space()
    }
}

/// The numbers are `tk_grammar_kind` of textkit.h.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
}

/// The vocabulary of a model as a tree, shared by all its grammars.
pub struct GrammarEnv {
    factory: ParserFactory,
}

impl GrammarEnv {
    pub fn new(tokenizer: Arc<Tokenizer>, ends: &[u32]) -> Result<GrammarEnv, Fault> {
        let n = tokenizer.len() as u32;
        let first = *ends.first().ok_or_else(|| bad("expected at least one token that ends an answer"))?;
        if let Some(end) = ends.iter().find(|end| **end >= n) {
            return Err(bad(&format!("expected end tokens below {n}, found {end}")));
        }
        // Control and user-defined tokens never stand for their text, but a grammar can name them.
        let word = |id: u32| match tokenizer.token_type(id) {
            CONTROL | USER_DEFINED => [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.piece(id)].concat(),
            UNUSED | 0 => vec![],
            _ => tokenizer.piece(id).to_vec(),
        };
        let words: Vec<Vec<u8>> = (0..n).map(word).collect();
        let trie = TokTrie::from(&TokRxInfo::new(n, first), &words).with_eos_tokens(ends);
        let env: TokEnv = Arc::new(Vocabulary { trie, tokenizer });
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| bad(&e.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false; // they would show the answer
        limits.max_lexer_states = 50_000;
        limits.max_items_in_row = 10_000; // some five for each of a thousand optional properties
        limits.step_max_items = 2_000_000; // grammars by characters over large vocabularies; some 0.1 s
        Ok(GrammarEnv { factory })
    }

    /// The matcher at its beginning, and what of the grammar is not enforced.
    pub fn compile(&self, kind: Kind, text: &str, strict: bool) -> Result<(Matcher, String), Fault> {
        stacker::grow(STACK, || self.compile_here(kind, text, strict))
    }

    fn compile_here(&self, kind: Kind, text: &str, strict: bool) -> Result<(Matcher, String), Fault> {
        let grammar = match kind {
            Kind::JsonSchema => TopLevelGrammar::from_json_schema(with_options(text, strict)?),
            Kind::Regex => TopLevelGrammar::from_regex(text),
            Kind::Lark => TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(text.to_string())),
        };
        let mut matcher = llguidance::Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(bad(&error)),
            None => {
                let warnings = matcher.grammar_warnings().join("\n");
                Ok((Matcher(matcher), warnings))
            }
        }
    }
}

/// A schema with the way it is to be taken: compact output, unknown keywords refused or ignored.
fn with_options(text: &str, strict: bool) -> Result<Value, Fault> {
    let options = json!({
        "whitespace_flexible": false, "lenient": !strict, "coerce_one_of": true,
        "json_allow_general_unicode_escapes": false,
    });
    match serde_json::from_str(text).map_err(|e| bad(&e.to_string()))? {
        Value::Object(mut schema) => {
            schema.insert("x-guidance".into(), options);
            Ok(Value::Object(schema))
        }
        other => Ok(json!({"allOf": [other], "x-guidance": options})),
    }
}

pub struct Matcher(llguidance::Matcher);

impl Matcher {
    /// `alone`: with lexer states of its own.  They are counted, and too many are the end of all that share them.
    pub fn copy(&self, alone: bool) -> Matcher {
        Matcher(if alone { self.0.deep_clone() } else { self.0.clone() })
    }

    /// Clears the bits of tokens that may not come next, and all beyond the vocabulary.
    pub fn mask(&mut self, words: &mut [u64]) -> Result<(), Fault> {
        let mask = self.0.compute_mask_or_eos().map_err(limit)?;
        let halves = mask.as_slice();
        let half = |i: usize| u64::from(halves.get(i).copied().unwrap_or(0));
        for (i, word) in words.iter_mut().enumerate() {
            *word &= half(2 * i) | half(2 * i + 1) << 32;
        }
        Ok(())
    }

    pub fn accept(&mut self, token: u32) -> Result<bool, Fault> {
        if self.complete() {
            return Ok(false);
        }
        Ok(self.0.try_consume_tokens(&[token]).map_err(limit)? == 1)
    }

    pub fn complete(&self) -> bool {
        !matches!(self.0.stop_reason(), StopReason::NotStopped)
    }

    pub fn may_end(&mut self) -> Result<bool, Fault> {
        Ok(self.complete() || self.0.is_accepting().map_err(limit)?)
    }
}

fn bad(text: &str) -> Fault {
    Fault(Code::BadArgument, text.to_string())
}

fn limit(error: impl ToString) -> Fault {
    Fault(Code::Limit, error.to_string())
}

// Matchers move between threads, and what they come from is shared.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<GrammarEnv>();
    shared::<Matcher>();
};
