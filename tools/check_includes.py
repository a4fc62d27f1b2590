#!/usr/bin/env python3
"""Who may include whom: an include goes to a lower level, and on one level folders do not see each other.

Unit tests may look anywhere.  Prints each forbidden edge; exit status 1 when there
is one.
"""
import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"

MODEL = {"layers", "state", "device", "files", "formats", "base"}
BELOW_ENGINE = MODEL | {"models", "decode", "text"}
MAY_INCLUDE = {
    "base": set(),
    "formats": {"base"},
    "text": {"base"},
    "files": {"formats", "base"},
    "device": {"formats", "base"},
    "state": {"base", "formats", "device/operands.h"},
    "layers": {"state", "device", "files", "formats", "base"},
    "models": MODEL,
    "decode": {"models/model.h", "layers", "state", "device", "files", "base"},
    "engine": BELOW_ENGINE,
}
ON_TOP = ("server", "capi", "cli")
BELOW_CLI = BELOW_ENGINE | {"engine", "server"}


def allowed(folder, target):
    """`target` is an include as written from src/."""
    first = target.split("/")[0]
    rules = BELOW_CLI if folder == "cli" else BELOW_ENGINE | {"engine"} if folder in ON_TOP else MAY_INCLUDE[folder]
    return first == folder or first in rules or target in rules


def main():
    bad, edges = [], 0
    for path in sorted(SRC.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".inl") or path.stem.endswith("_test"):
            continue
        folder = path.relative_to(SRC).parts[0]
        if folder not in MAY_INCLUDE and folder not in ON_TOP:
            bad.append(f"{path.relative_to(SRC)}: folder {folder} is not in the table")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not include or (include[1], folder) in (("textkit.h", "text"), ("invar.h", "capi")):
                continue
            edges += 1
            if not (SRC / include[1]).exists():
                bad.append(f"{path.relative_to(SRC)}:{number}: {include[1]} is not a file of src/")
            elif not allowed(folder, include[1]):
                bad.append(f"{path.relative_to(SRC)}:{number}: {folder} may not include {include[1]}")
    print("\n".join(bad) or f"includes: {edges} edges, none forbidden")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
