#!/usr/bin/env python3
"""Writes the seed corpus of the parsers: tiny valid files (ok-*), and one file for each way to be broken (bad-*).

Usage: fuzz/make_corpus.py    (no arguments; replaces ok-*, bad-* and seed-* of fuzz/corpus/, leaves other files alone)
"""
import hashlib
import json
import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
TYPES = {  # name -> number, values and bytes of a block
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8),
    "IQ1_M": (29, 256, 56), "BF16": (30, 1, 2), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
BIG = 2 ** 63


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(kind, form, x):
    return struct.pack("<i" + form, kind, x)


def array(kind, count, body=b""):
    return struct.pack("<iiQ", ARRAY, kind, count) + body


def gguf(keys=None, tensors=None, magic=b"GGUF", version=3, n_tensors=None, n_keys=None, align=32, tail=b""):
    keys = [("general.architecture", struct.pack("<i", TEXT) + text("llama"))] + (keys or [])
    tensors = [("t", [4], 0, bytes(16))] if tensors is None else tensors
    out = magic + struct.pack("<IQQ", version, (len(tensors) if n_tensors is None else n_tensors) % 2 ** 64,
                              (len(keys) if n_keys is None else n_keys) % 2 ** 64)
    for key, body in keys:
        out += text(key) + body
    data = b""
    for name, dims, kind, body, *offset in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d % 2 ** 64) for d in dims)
        out += struct.pack("<iQ", kind, offset[0] if offset else len(data))
        data += body + bytes(-len(body) % align)
    return out + bytes(-len(out) % align) + data + tail


def gguf_files():
    for name, (number, values, size) in TYPES.items():
        yield f"ok-{name}", gguf(tensors=[("t", [values, 2], number, bytes(2 * size))])
    yield "ok-version-2", gguf(version=2)
    yield "ok-no-tensors", gguf(tensors=[])
    yield "ok-trailing", gguf(tail=b"more")
    yield "ok-alignment", gguf([("general.alignment", value(U32, "I", 64))], align=64)
    numbers = {"u8": (U8, "B"), "i8": (I8, "b"), "u16": (U16, "H"), "i16": (I16, "h"), "u32": (U32, "I"), "i32": (I32, "i"),
               "f32": (F32, "f"), "bool": (BOOL, "B"), "u64": (U64, "Q"), "i64": (I64, "q"), "f64": (F64, "d")}
    yield "ok-values", gguf([(k, value(*v, 1)) for k, v in numbers.items()] + [("text", struct.pack("<i", TEXT) + text("x"))])
    yield "ok-arrays", gguf([(k, array(v[0], 2, struct.pack("<2" + v[1], 1, 0))) for k, v in numbers.items()]
                            + [("texts", array(TEXT, 2, text("a") + text("")))])

    sound = gguf()
    for n in (0, 4, 8, 16, 23, 24, 40, 60, 80, 100, len(sound) - 17):
        yield f"bad-cut-{n}", sound[:n]
    yield "bad-magic", gguf(magic=b"GGUX")
    yield "bad-html", b"<!DOCTYPE html><html></html>"
    for v in (0, 1, 4, 3 << 24):
        yield f"bad-version-{v}", gguf(version=v)
    for n in (-1, 1 << 40, 100, 3):
        yield f"bad-keys-{n}", gguf(n_keys=n)
        yield f"bad-tensors-{n}", gguf(n_tensors=n)
    for name, key in {"empty": "", "nul": "a\0b", "twice": "general.architecture", "not-ascii": "\u00e9"}.items():
        yield f"bad-key-{name}", gguf([(key, value(U32, "I", 1))])
    for name, body in {"text-wraps": value(TEXT, "Q", 2 ** 64 - 1), "type": value(99, "I", 0), "type-negative": value(-1, "I", 0),
                       "bool": value(BOOL, "B", 7), "array-wraps": array(F64, 1 << 61), "array-long": array(U32, 1 << 33),
                       "array-type": array(99, 1), "nested": array(ARRAY, 1, struct.pack("<iQ", U32, 0)),
                       "texts": array(TEXT, 1 << 28), "text-of-array": array(TEXT, 1, struct.pack("<Q", 2 ** 64 - 1))}.items():
        yield f"bad-value-{name}", gguf([("x", body)])
    for name, body in {"0": value(U32, "I", 0), "3": value(U32, "I", 3), "huge": value(U32, "I", 1 << 31),
                       "text": struct.pack("<i", TEXT) + text("32")}.items():
        yield f"bad-alignment-{name}", gguf([("general.alignment", body)])
    for name, tensor in {"nameless": ("", [4], 0), "long-name": ("n" * 64, [4], 0), "nul": ("a\0b", [4], 0), "no-dims": ("t", [], 0),
                         "dims-5": ("t", [4, 1, 1, 1, 1], 0), "dim-0": ("t", [4, 0], 0), "dim-negative": ("t", [-4], 0),
                         "elements-wrap": ("t", [1 << 40, 1 << 40], 0), "bytes-wrap": ("t", [1 << 62], 0),
                         "padding-wraps": ("t", [BIG - 2], 24), "type-retired": ("t", [4], 4), "type-999": ("t", [4], 999),
                         "type-negative": ("t", [4], -1), "blocks": ("t", [33], 8), "outside": ("t", [1 << 30], 0)}.items():
        yield f"bad-tensor-{name}", gguf(tensors=[(*tensor, bytes(16))])
    for name, offset in {"odd": 33, "gap": 64, "overlap": 0, "huge": 2 ** 64 - 32}.items():
        yield f"bad-offset-{name}", gguf(tensors=[("a", [4], 0, bytes(16)), ("b", [4], 0, bytes(16), offset)])
    yield "bad-tensor-twice", gguf(tensors=[("a", [4], 0, bytes(16)), ("a", [4], 0, bytes(16))])
    yield "bad-sum-wraps", gguf(tensors=[("a", [BIG - 64], 24, b"", 0), ("b", [BIG - 64], 24, b"", BIG - 64)])


def safe(header, data=8, length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(data)


def entry(**change):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | change


def safetensors_files():
    widths = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
    for dtype, width in widths.items():
        yield f"ok-{dtype}", safe({"a": {"dtype": dtype, "shape": [3, 1], "data_offsets": [0, 3 * width]}}, 3 * width)
    yield "ok-metadata", safe({"__metadata__": {"format": "pt"}, "a": entry()})
    yield "ok-scalar", safe({"a": entry(shape=[], data_offsets=[0, 4])}, 4)
    yield "ok-none", safe({}, 0)
    yield "ok-empty", safe({"a": entry(shape=[0, 5], data_offsets=[0, 0])}, 0)
    yield "ok-two-padded", safe(json.dumps({"b": entry(data_offsets=[8, 16]), "a": entry()}).encode() + b"   ", 16)

    sound = safe({"a": entry()})
    for n in (0, 7, 8, 20, len(sound) - 1):
        yield f"bad-cut-{n}", sound[:n]
    for n in (0, 1 << 26, 100_000_001, 2 ** 64 - 1):
        yield f"bad-length-{n}", safe({"a": entry()}, length=n)
    one = json.dumps(entry()).encode()
    for name, header in {"not-json": b"{xx", "array": b"[1]", "utf8": b'{"\xff":1}', "space": b" {}", "name-twice": b'{"a":' + one + b',"a":' + one + b"}",
                         "deep": b'{"a":' * 500 + b"1" + b"}" * 500, "number": b'{"a":1}', "two": b"{}{}", "metadata": b'{"__metadata__":{"a":1}}',
                         "field-twice": b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}'}.items():
        yield f"bad-json-{name}", safe(header)
    for name, change in {"begin": dict(data_offsets=[8, 0]), "past": dict(data_offsets=[0, 1 << 40]), "negative": dict(data_offsets=[-8, 0]),
                         "float": dict(data_offsets=[0.0, 8]), "one": dict(data_offsets=[8]), "gap": dict(data_offsets=[4, 12]),
                         "shape-float": dict(shape=[2.0]), "shape-negative": dict(shape=[-2]), "shape-other": dict(shape=[3]),
                         "shape-wraps": dict(shape=[1 << 33, 1 << 33]), "dtype": dict(dtype="F7"), "dtype-number": dict(dtype=5), "field": dict(more=1)}.items():
        yield f"bad-entry-{name}", safe({"a": entry(**change)})
    for field in ("dtype", "shape", "data_offsets"):
        yield f"bad-without-{field}", safe({"a": {k: v for k, v in entry().items() if k != field}})
    yield "bad-overlap", safe({"a": entry(), "b": entry(data_offsets=[4, 12])}, 12)
    yield "bad-tail", safe({"a": entry()}, 9)


def config_files():
    dense = {"max_position_embeddings": 64, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2,
             "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "vocab_size": 9}
    delta = dense | {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                     "linear_value_head_dim": 2, "head_dim": 8, "layer_types": ["full_attention", "linear_attention"],
                     "mtp_num_hidden_layers": 1, "eos_token_id": [1, 2],
                     "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [1, 0, 0]}}
    experts = delta | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "shared_expert_intermediate_size": 4}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    llama = {"architectures": ["LlamaForCausalLM"]}
    sound = {"llama": llama | dense, "qwen2": {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 8} | dense,
             "llama3": llama | dense | {"rope_scaling": llama3}, "linear": llama | dense | {"rope_scaling": {"type": "linear", "factor": 2}},
             "qwen35": {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": delta},
             "qwen35moe": {"architectures": ["Qwen3_5MoeForCausalLM"]} | experts}
    for name, config in sound.items():
        yield f"ok-{name}", json.dumps(config).encode()
    for name, change in {"class": {"architectures": ["X"]}, "zero": {"hidden_size": 0}, "text": {"hidden_size": "8"}, "huge": {"head_dim": 1 << 40},
                         "float": {"num_hidden_layers": 2.0}, "eps": {"rms_norm_eps": "nan"}, "heads": {"num_attention_heads": 9},
                         "act": {"hidden_act": "gelu"}, "factors": {"rope_scaling": llama3 | {"high_freq_factor": 1.0}},
                         "quantized": {"quantization_config": {}}, "eos": {"eos_token_id": [-1]}}.items():
        yield f"bad-{name}", json.dumps(llama | dense | change).encode()
    yield "bad-empty", b""
    yield "bad-array", b"[]"
    yield "bad-twice", b'{"architectures":["LlamaForCausalLM"],"architectures":["LlamaForCausalLM"]}'
    yield "bad-deep", b"[" * 1000


def stored_state(tokens=(1, 2, 3), pages=1, page_bytes=64, set_bytes=0, magic=b"invstate", version=1, body=None, position=None):
    """A head file of the disk store (src/state/store_format.h)."""
    body = struct.pack(f"<{len(tokens)}i", *tokens) + bytes(32 * pages) + bytes(8 * (len(tokens) // 64)) if body is None else body
    head = magic + struct.pack("<II32sqqqQ32s", version, 1, bytes(32), len(tokens) if position is None else position, page_bytes,
                               set_bytes, 7, bytes(32)) + hashlib.sha256(body).digest()
    return head + hashlib.sha256(head).digest() + body


def blob(codec=0, size=256, body=bytes(256), magic=b"invblob1"):
    return magic + struct.pack("<QQ", codec % 2 ** 64, size % 2 ** 64) + body


def stored_state_files():
    zeros = bytes.fromhex("28b52ffd600000 030800 00")  # zstd: one run of 256 zeros
    yield "ok-head", stored_state()
    yield "ok-page-full", stored_state(range(64))
    yield "ok-fixed-only", stored_state(page_bytes=0, pages=0, set_bytes=4096)
    yield "ok-blob", blob()
    yield "ok-blob-packed", blob(1, body=zeros)
    sound = stored_state()
    for n in (0, 7, 8, 12, 100, 143, 175, 176, len(sound) - 1):
        yield f"bad-cut-{n}", sound[:n]
    for at in (9, 20, 50, 150, 180):
        yield f"bad-bit-{at}", sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1:]
    for n in (0, -1, 4, (1 << 24) + 1, BIG - 1):
        yield f"bad-position-{n}", stored_state(position=n)
    for n in (-1, (1 << 34) + 1, BIG - 1):
        yield f"bad-page-bytes-{n}", stored_state(page_bytes=n)
        yield f"bad-set-bytes-{n}", stored_state(set_bytes=n)
    yield "bad-magic", stored_state(magic=b"invstore")
    yield "bad-version", stored_state(version=2)
    yield "bad-tail", sound + b"x"
    for name, data in {"codec": blob(2), "size": blob(size=255), "size-huge": blob(size=-1), "short": blob(body=bytes(255)),
                       "long": blob(body=bytes(257)), "digest": blob(body=bytes(255) + b"x"), "packed-empty": blob(1, body=b""),
                       "packed-cut": blob(1, body=zeros[:-1]), "packed-tail": blob(1, body=zeros + b"x"),
                       "packed-more": blob(1, body=zeros + zeros), "head": blob()[:23]}.items():
        yield f"bad-blob-{name}", data


def http_files():
    """The first byte says how the rest is cut."""
    top = b"\x04POST /v1/x?q=1 HTTP/1.1\r\nHost: h\r\n"
    yield "ok-length", top + b"Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n"
    yield "ok-chunks", top + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: 1\r\n\r\n"
    yield "ok-old", b"\x00\r\nGET http://h/a//b/ HTTP/1.0\r\n\r\n"
    yield "bad-both", top + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "bad-fold", top + b"A: b\r\n c\r\n\r\n"
    yield "bad-chunk", top + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"


def answer_files():
    """The fixtures of the parser's tests, each as text of its own dialect."""
    dialects = ["qwen_xml", "glm", "llama3", "hermes", "none"]
    for i, item in enumerate(json.loads((CORPUS.parent.parent / "tests/data/answers.json").read_text())):
        flags = dialects.index(item["format"]) + 32 * item.get("in_thought", False) + 64 * item.get("calls_in_thought", False)
        while flags % 5 != dialects.index(item["format"]):
            flags += 1
        data = bytes.fromhex(item["hex"]) if "hex" in item else item["text"].encode()
        yield f"seed-{i:02}", bytes([flags, 3 + i % 5]) + data


def grammar_files():
    tools = [{"type": "function", "function": {"name": "save", "parameters": {"type": "object", "required": ["path"], "properties": {
        "path": {"type": "string"}, "n": {"type": ["integer", "null"]}, "kind": {"enum": ["x", "y"]}}}}}]
    messages = [{"role": "system", "content": "A"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, {"role": "tool", "content": "r"}, {"role": "system", "content": "late"}]
    schemas = [{}, {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}, {"enum": [1, "a", None]}, {"type": "string", "pattern": "^a+$"},
               {"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "number"}}}, {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
               {"type": "object", "properties": {"a": {"not": {}}}}]
    for i, schema in enumerate(schemas):
        yield f"ok-schema-{i}", b"\0" + json.dumps(schema).encode()
    yield "seed-regex-big", b"\1(a{1000}){1000}"
    yield "ok-regex", b"\1[a-f]{2,5}(x|y)?"
    yield "ok-lark", b'\2start: "a" b+\nb: /[0-9]+/ ","\n'
    yield "ok-messages", b"\3" + json.dumps(messages).encode()
    for kind in (4, 5):
        yield f"ok-tools-{kind}", bytes([kind]) + json.dumps(tools).encode()
    yield "ok-gbnf", b'\6root ::= "(" root ")" | [^a-c\\x41]{1,3} rest*\nrest ::= "x" | .  # a comment\n'
    yield "ok-gbnf-regular", b'\6root ::= ("a" | "ab"+) "\\u00e9"? | ""'
    yield "seed-gbnf-big", b'\6root ::= ((("a"{2000}){2000}){2000} root)?'
    call = {"type": "tag", "begin": "<f=on>", "content": {"type": "json_schema", "json_schema": {"type": "boolean"}}, "end": "</f>"}
    yield "ok-tags-triggered", b"\7" + json.dumps({"format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [call]}}).encode()
    yield "ok-tags-forms", b"\7" + json.dumps({"type": "sequence", "elements": [{"type": "or", "elements": [call, {"type": "regex", "pattern": "a*"}]}, {"type": "any_text"}]}).encode()
    yield "ok-tags-older", b"\7" + json.dumps({"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f"]}).encode()
    for name, data in {"gbnf": b"\6root ::= a", "gbnf-deep": b"\6root ::= " + b"(" * 1000, "gbnf-set": b"\6root ::= [", "tags": b"\7[]", "tags-type": b'\7{"type":"odd"}',
                       "tags-deep": b"\7" + b'{"type":"or","elements":[' * 100 + b"{}" + b"]}" * 100, "json": b'\0{"type":', "type": b'\0{"type":"strange"}', "list": b"\0[1]", "regex": b"\1(", "lark": b"\2start: x",
                       "lark-empty": b"\2", "role": b'\3[{"role":"king"}]', "tools": b"\4[]", "name": b'\5[{"name":"a b"}]',
                       "deep": b"\0" + b'{"items":' * 200 + b"{}" + b"}" * 200, "ref": b'\0{"$ref":"http://example.invalid/x"}', "empty": b""}.items():
        yield f"bad-{name}", data


def main():
    for kind, files in (("gguf", gguf_files()), ("safetensors", safetensors_files()), ("config", config_files()),
                        ("stored_state", stored_state_files()), ("http", http_files()), ("answer", answer_files()),
                        ("grammar", grammar_files())):
        folder = CORPUS / kind
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("ok-*"), *folder.glob("bad-*"), *folder.glob("seed-*")]:
            old.unlink()
        for name, data in files:
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
