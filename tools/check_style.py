#!/usr/bin/env python3
"""The rules of CONTRIBUTING.md that a line of Python can hold: sizes, words, ASCII, head comments, settings.

Prints each offence as FILE:LINE: why; exit status 1 when there is one.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES = 800, 150
CODE = {".cpp", ".h", ".inl", ".rs", ".py"}
WORDS = re.compile(r"(?<![A-Za-z])(session|slot|cell|ubatch|worker|manager|helper|util)(e?s)?(?![a-z])", re.IGNORECASE)
NAME_IN_QUOTES = re.compile(r'"[\w/.:*-]+"')  # of an interface, and not of our choice
ENVIRONMENT = re.compile(r"\b(secure_)?getenv\b|\benviron\b")
SETTINGS = ("src/base/options",)  # the one place that may read the environment
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
OWN_NAMES = ("tools/check_style.py",)  # holds the words it looks for


def functions(lines):
    """(first line, length) of each C++ or Rust function at a brace in column 0 to 4, as clang-format lays it out."""
    start = indent = None
    for number, line in enumerate(lines, 1):
        head = re.match(r"( {0,4})[A-Za-z_\[<~].*\)[^;=]*\{$", line)
        if start is None and head and not re.match(r"\s*(namespace|struct|class|enum|extern|impl|mod|union)\b", line):
            start, indent = number, head[1]
        elif start is not None and re.match(indent + r"\}[;,)]*$", line):
            yield start, number - start + 1
            start = None


def offences(name, text):
    suffix, lines = Path(name).suffix, text.splitlines()
    if len(lines) > FILE_LINES and "_table" not in name:
        yield 1, f"{len(lines)} lines; the limit is {FILE_LINES}"
    if suffix != ".py":
        for first, length in functions(lines):
            if length > FUNCTION_LINES:
                yield first, f"a function of {length} lines; the limit is {FUNCTION_LINES}"
    head = lines[1] if lines and lines[0].startswith("#!") else lines[0] if lines else ""
    if not head.startswith(("//", "/*", '"""', "#", 'r"""')):
        yield 1, "no comment at its head"
    for number, line in enumerate(lines, 1):
        if not line.isascii() and not name.startswith("tests/"):
            yield number, "not ASCII"
        if suffix != ".py" and (word := WORDS.search(NAME_IN_QUOTES.sub("", line))):
            yield number, f"the word '{word[0]}' means three things; see the glossary of docs/tour.md"
        if suffix in (".cpp", ".h", ".inl") and ENVIRONMENT.search(line) and not name.startswith(SETTINGS):
            yield number, "the environment is read in base/options alone"
        if UNFINISHED.search(line):
            yield number, "unfinished work belongs in an issue"


def main():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    names = [n for n in names if Path(n).suffix in CODE and (ROOT / n).exists() and n not in OWN_NAMES]
    bad = [f"{n}:{at}: {why}" for n in names for at, why in offences(n, (ROOT / n).read_text())]
    print("\n".join(bad) or f"style: {len(names)} files, nothing to say")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
