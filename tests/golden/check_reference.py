#!/usr/bin/env python3
"""The committed golden files are those that make_golden.py writes, and the reference agrees with itself: one token at
a time gives what the whole sequence gives."""
import sys
import tempfile
from pathlib import Path

import numpy as np

from golden import make_golden, qwen35


def main():
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        made, kept = Path(folder), make_golden.FOLDER
        make_golden.main(made)
        names = sorted(str(p.relative_to(kept)) for p in kept.rglob("*") if p.is_file())
        if names != sorted(str(p.relative_to(made)) for p in made.rglob("*") if p.is_file()):
            bad.append("files differ in number or name")
        for name in names:
            a, b = (kept / name).read_bytes(), (made / name).read_bytes() if (made / name).exists() else b""
            if name.endswith(".f32"):  # another BLAS may round another last bit
                same = len(a) == len(b) and np.allclose(np.frombuffer(a, "<f4"), np.frombuffer(b, "<f4"), rtol=2e-7, atol=1e-7)
            else:
                same = a == b
            if not same:
                bad.append(f"{name} is not what make_golden.py writes")
    print("ok golden.files  as make_golden.py writes them" if not bad else "FAIL golden.files  " + "; ".join(bad))

    for arch, c in make_golden.MODELS.items():
        weights = qwen35.tiny_weights(c)
        whole = qwen35.Sequence(c, weights).logits(make_golden.TOKENS)
        one = qwen35.Sequence(c, weights)
        steps = np.concatenate([one.logits([t]) for t in make_golden.TOKENS])
        error = np.abs(whole - steps).max()
        if error > 1e-11:
            bad.append(arch)
        print(f"{'ok' if error <= 1e-11 else 'FAIL'} golden.steps.{arch}  whole against one by one: {error:.1e}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
