#!/usr/bin/env python3
"""llama.cpp as an oracle: logits, token ids and block decoding from the libraries of the npm package
@node-llama-cpp/linux-x64 (pinned in package.json), which ships no headers.

The parameter structs differ between versions.  They are returned through a hidden pointer and passed on the stack,
so a blob that is larger than any of them will do; of the context's only the first four 32-bit fields are set: n_ctx,
n_batch, n_ubatch, n_seq_max.  Keys and values stay in F16, its default.

    llama.py bench MODEL.gguf THREADS PROMPT GENERATE REPEATS      tokens per second, as JSON
"""
import ctypes
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

LIBRARIES = Path(__file__).resolve().parents[2] / "build/oracle/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"


class Blob(ctypes.Structure):
    _fields_ = [("u32", ctypes.c_uint32 * 256), ("align", ctypes.c_void_p)]


class Batch(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.POINTER(ctypes.c_float)),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq", ctypes.POINTER(ctypes.c_int32)),
                ("seq", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
quiet = LOG(lambda level, text, user: None)


def available():
    return LIBRARIES.is_dir()


def base_library():
    """libggml-base: dequantize_row_* of every format."""
    return ctypes.CDLL(str(LIBRARIES / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)


class Llama:
    """One model.  Calls are not thread safe."""

    def __init__(self, path):
        base_library()
        self.ggml = ctypes.CDLL(str(LIBRARIES / "libggml.v0.5.0.so"), mode=ctypes.RTLD_GLOBAL)
        self.lib = lib = ctypes.CDLL(str(LIBRARIES / "libllama.v0.5.0.so"), mode=ctypes.RTLD_GLOBAL)
        P, I = ctypes.c_void_p, ctypes.c_int32
        for name, result, *arguments in (
                ("llama_log_set", None, LOG, P), ("llama_model_default_params", Blob), ("llama_context_default_params", Blob),
                ("llama_model_load_from_file", P, ctypes.c_char_p, Blob), ("llama_model_get_vocab", P, P),
                ("llama_vocab_n_tokens", I, P), ("llama_init_from_model", P, P, Blob), ("llama_free", None, P),
                ("llama_set_n_threads", None, P, I, I), ("llama_batch_init", Batch, I, I, I), ("llama_batch_free", None, Batch),
                ("llama_decode", I, P, Batch), ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), P, I),
                ("llama_synchronize", None, P), ("llama_get_memory", P, P), ("llama_memory_clear", None, P, ctypes.c_bool),
                ("llama_tokenize", I, P, ctypes.c_char_p, I, ctypes.POINTER(I), I, ctypes.c_bool, ctypes.c_bool)):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        lib.llama_log_set(quiet, None)
        self.ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        self.ggml.ggml_backend_load_all_from_path(str(LIBRARIES).encode())  # picks the processor's library
        self.model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.n_vocab = lib.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text, special=False):
        """Ids of `text` (bytes), without an added begin token; `special`: control tokens in the text are recognised."""
        ids = (ctypes.c_int32 * (len(text) + 16))()
        n = self.lib.llama_tokenize(self.vocab, text, len(text), ids, len(ids), False, special)
        if n < 0:
            raise RuntimeError("llama.cpp does not tokenize the text")
        return list(ids[:n])

    def sequence(self, n, threads, rows_per_pass=512):
        p = self.lib.llama_context_default_params()
        p.u32[0], p.u32[1], p.u32[2], p.u32[3] = n + 8, max(n, 512), rows_per_pass, 1
        made = self.lib.llama_init_from_model(self.model, p)
        if not made:
            raise RuntimeError("llama.cpp makes no sequence")
        self.lib.llama_set_n_threads(made, threads, threads)
        return made

    def decode(self, made, tokens, first, wanted):
        """Feeds tokens at positions from `first` on; `wanted`: "all" or "last" rows' logits are computed."""
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n = len(tokens)
        for i, t in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq[i] = t, first + i, 1
            batch.seq[i][0] = 0
            batch.logits[i] = wanted == "all" or i == len(tokens) - 1
        status = self.lib.llama_decode(made, batch)
        self.lib.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama.cpp's decode says {status}")

    def logits(self, tokens, threads=2):
        """float32 [len(tokens), vocab]"""
        made = self.sequence(len(tokens), threads)
        self.decode(made, tokens, 0, "all")
        rows = [np.ctypeslib.as_array(self.lib.llama_get_logits_ith(made, i), (self.n_vocab,)).copy() for i in range(len(tokens))]
        self.lib.llama_free(made)
        return np.stack(rows)

    def bench(self, threads, prompt, generate, repeats):
        """Tokens per second: `prompt` rows in one go, then `generate` rows one by one; one warm-up before."""
        made, memory = self.sequence(prompt + generate, threads), None
        seconds = {"pp": [], "tg": []}
        ids = [100 + (i * 7919) % (1000 if self.n_vocab > 2000 else self.n_vocab - 101) for i in range(prompt + generate)]
        memory = self.lib.llama_get_memory(made)
        for r in range(repeats + 1):
            self.lib.llama_memory_clear(memory, True)
            for what, parts in (("pp", [ids[:prompt]]), ("tg", [[t] for t in ids[prompt:]])):
                start, at = time.perf_counter(), 0 if what == "pp" else prompt
                for part in parts:
                    if part:
                        self.decode(made, part, at, "last")
                        self.lib.llama_synchronize(made)
                        at += len(part)
                if r:
                    seconds[what].append(time.perf_counter() - start)
        self.lib.llama_free(made)
        counts = {"pp": prompt, "tg": generate}
        return {f"{w}{counts[w]}": {"median": counts[w] / statistics.median(s), "min": counts[w] / max(s), "max": counts[w] / min(s)}
                for w, s in seconds.items() if counts[w]}


if __name__ == "__main__":
    if len(sys.argv) != 7 or sys.argv[1] != "bench":
        sys.exit(__doc__)
    print(json.dumps(Llama(sys.argv[2]).bench(*map(int, sys.argv[3:]))))
