#!/usr/bin/env python3
"""No instruction leaks out of a tier: what its object file defines for the linker to merge carries the tier's name.

An inline function of a shared header that a tier file uses may be emitted there with wide instructions, and the
linker keeps one copy for all callers.  So every weak symbol of kernels_avx2 and kernels_avx512 must name its
tier, as templates on it do.  Takes the build folder; exit status 1 when a symbol leaks or an object is missing.
"""
import re
import subprocess
import sys
from pathlib import Path

TIERS = {"kernels_scalar.cpp.o": "Scalar", "kernels_avx2.cpp.o": "Avx2", "kernels_avx512.cpp.o": "Avx512"}


def main(build):
    bad, seen = [], 0
    for name, tier in TIERS.items():
        objects = list(Path(build).rglob(name))
        if not objects:
            bad.append(f"{name}: not found under {build}")
        for path in objects:
            table = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
            for line in table.splitlines():
                _, kind, symbol = line.split(maxsplit=2)
                if kind not in "WVu":  # weak functions, weak objects, unique data
                    continue
                seen += 1
                if not re.search(tier, symbol, re.IGNORECASE):
                    bad.append(f"{name}: weak symbol without {tier}: {symbol}")
    print("\n".join(bad[:40]) or f"symbols: {seen} merged by the linker, all of their own tier")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "build"))
