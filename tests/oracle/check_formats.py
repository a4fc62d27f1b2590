#!/usr/bin/env python3
"""Every format decodes as llama.cpp's dequantize_row_* does, bit for bit, over random blocks with every pattern of codes
and scales that a file may hold."""
import ctypes
import subprocess

import numpy as np

from oracle import llama
from oracle.common import ROOT, expect, fail, finish, skip

TOOL = ROOT / "build/tests/decode_blocks"
BLOCKS = 2000
# Where a block holds f16 numbers, which must be finite.
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "MXFP4": (), "NVFP4": ()}


def random_blocks(name, size, rng):
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for offset in HALVES[name]:  # any sign, sometimes subnormal, sometimes zero
        scale = rng.choice([-1.0, 1.0], BLOCKS) * rng.random(BLOCKS) * 2.0 ** rng.integers(-24, 5, BLOCKS)
        scale[::97] = 0
        blocks[:, offset:offset + 2] = scale.astype("<f2").view(np.uint8).reshape(BLOCKS, 2)
    if name == "MXFP4":
        blocks[:, 0] = np.arange(BLOCKS) % 255  # 255 is no number
    return blocks


def oracle(library, name, blocks, values):
    out = np.empty(len(blocks) * values, np.float32)
    if name in ("F32", "F16", "BF16"):
        u = blocks.reshape(-1)
        return u.view("<f4") if name == "F32" else u.view("<f2").astype(np.float32) if name == "F16" else \
            (u.view("<u2").astype(np.uint32) << 16).view(np.float32)
    function = getattr(library, "dequantize_row_" + name.lower().replace("_k", "_K"))
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
    function(blocks.tobytes(), out.ctypes.data, out.size)
    return out


def main():
    formats = [line.split() for line in subprocess.run([TOOL], capture_output=True, text=True, check=True).stdout.splitlines()]
    missing = sorted(set(HALVES) - {f[0] for f in formats})
    if missing:
        fail("formats.list", "not in the list of formats: " + ", ".join(missing))
    library, rng = llama.base_library() if llama.available() else None, np.random.default_rng(5)
    for name, _, values, size in formats:
        if library is None and name in HALVES:
            skip("formats." + name, "no npm package @node-llama-cpp/linux-x64")
            continue
        values, size = int(values), int(size)
        if name in HALVES:
            blocks = random_blocks(name, size, rng)
        else:  # plain floats: all finite bit patterns alike
            bits = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            blocks = bits[np.isfinite(oracle(library, name, bits, values))]
        done = subprocess.run([TOOL, name], input=blocks.tobytes(), capture_output=True)
        got, want = np.frombuffer(done.stdout, np.uint32), oracle(library, name, blocks, values).view(np.uint32)
        bad = len(want) if got.size != want.size else int((got != want).sum())
        expect(bad == 0, "formats." + name, f"{len(blocks)} blocks, {bad} of {want.size} values differ")
    finish()


if __name__ == "__main__":
    main()
