#!/usr/bin/env python3
"""Writes golden.txt: random blocks of every weight format and the fp32 bits that they decode to.

A line is: format, hex of the block, hex of the values (little-endian).  The values come from the `gguf` package
(PyPI), which decodes independently of this project:  pip install gguf && python3 make.py > golden.txt
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

# Block bytes and the offsets of the f16 fields.
FORMATS = {
    "Q4_0": (18, (0,)), "Q4_1": (20, (0, 2)), "Q5_0": (22, (0,)), "Q5_1": (24, (0, 2)), "Q8_0": (34, (0,)),
    "Q2_K": (84, (80, 82)), "Q3_K": (110, (108,)), "Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)),
    "Q6_K": (210, (208,)), "MXFP4": (17, ()), "NVFP4": (36, ()),
}
BLOCKS = 6
E8M0 = (0, 1, 2, 100, 127, 252)
UE4M3 = (0, 1, 7, 8, 9, 0x40, 0x55, 0x7E)


def main():
    rng = np.random.default_rng(11)
    for name, (size, halves) in FORMATS.items():
        for i in range(BLOCKS):
            block = rng.integers(0, 256, size, dtype=np.uint8)
            for at in halves:  # finite, of both signs, down to subnormals
                scale = np.float16(rng.uniform(-1, 1) * 2.0 ** (4 - 5 * i))
                block[at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
            if name == "MXFP4":
                block[0] = E8M0[i]
            if name == "NVFP4":
                block[:4] = rng.choice(UE4M3, 4)
            with np.errstate(all="ignore"):
                values = dequantize(block.reshape(1, size), Type[name]).astype("<f4")
            assert np.isfinite(values).all()
            print(name, block.tobytes().hex(), values.tobytes().hex())


if __name__ == "__main__":
    main()
