"""Small vocabularies trained here, as tokenizer.json for both sides and as the arrays of a GGUF file."""
import json
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + SPACES]
# name: patterns, whole words first, NFC
FAMILIES = {"gpt-2": ([GPT2], False, False), "smollm": ([r"\p{N}", GPT2], False, False), "qwen2": ([QWEN2], False, True),
            "qwen35": ([QWEN35], False, True), "llama-bpe": ([LLAMA3], True, False), "glm4": ([LLAMA3], False, False),
            "deepseek-v3": (DEEPSEEK, False, False), "default": ([r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"], False, False)}
CONTROL, USER = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>", "<tool_call>"]


def add_tokens(tokenizer):
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in USER])


def byte_level(name, corpus):
    patterns, whole_words, nfc = FAMILIES[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1500, show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    add_tokens(tokenizer)
    return tokenizer


def sentence_piece(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1500, show_progress=False, max_token_length=12, limit_alphabet=500,
                                                              special_tokens=["<unk>", *byte_tokens]))
    model = json.loads(tokenizer.to_str())
    model["added_tokens"] = []      # byte tokens are no added tokens
    tokenizer = Tokenizer.from_str(json.dumps(model))
    add_tokens(tokenizer)
    return tokenizer


def arrays(tokenizer, pre):
    """What a GGUF file would hold; scores fall with the id."""
    file = json.loads(tokenizer.to_str())
    added = {t["content"]: t["special"] for t in file["added_tokens"]}
    tokens = [t for t, _ in sorted(tokenizer.get_vocab().items(), key=lambda e: e[1])]
    is_byte = re.compile(r"<0x[0-9A-F]{2}>").fullmatch
    types = [(3 if added[t] else 4) if t in added else 2 if t == "<unk>" else 6 if is_byte(t) and not pre else 1 for t in tokens]
    out = {"model": "gpt2" if pre else "llama", "pre": pre, "tokens": tokens, "types": types}
    if pre:
        return out | {"merges": [" ".join(m) for m in file["model"]["merges"]]}
    return out | {"scores": [-float(i) for i in range(len(tokens))], "add_space_prefix": True}


def merge_by_score(gguf, text, special):
    """SentencePiece as its authors describe it: join the neighbours with the best score, again and again."""
    ids = {t: i for i, (t, kind) in enumerate(zip(gguf["tokens"], gguf["types"])) if kind in (1, 4)}
    everything = {t: i for i, t in enumerate(gguf["tokens"])}
    wanted = CONTROL + USER if special else USER
    out = []
    for part in re.split("(" + "|".join(map(re.escape, wanted)) + ")", text):
        if part in wanted:
            out.append(everything[part])
            continue
        symbols = list("\u2581" + part.replace(" ", "\u2581")) if part else []
        while True:
            best = max(((gguf["scores"][ids[a + b]], -i) for i, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in ids), default=None)
            if best is None:
                break
            i = -best[1]
            symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
        for s in symbols:
            out += [ids[s]] if s in ids else [everything[f"<0x{b:02X}>"] for b in s.encode()]
    return out
