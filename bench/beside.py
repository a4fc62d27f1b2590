#!/usr/bin/env python3
"""Invar and llama.cpp on the same file, one after the other, round after round, so that both see the same machine.

    make test                        (once: fetches llama.cpp's libraries for the tests)
    bench/beside.py MODEL.gguf [--rounds 5] [--threads 2] [--prompt 512] [--generate 32]

Prints a table of tokens per second (median, least and most over the rounds) and the median of the ratios of each round.
The generated tokens follow the prompt, so their depth is its length in both programs.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ours(a):
    """{test: tokens per second}, and the machine as our program saw it."""
    command = [a.invar, "bench", a.model, "-p", a.prompt, "-n", a.generate, "-d", f"0,{a.prompt}", "-r", 1, "--threads", a.threads, "--json"]
    j = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout)
    wanted = {(f"pp{a.prompt}", 0), (f"tg{a.generate}", a.prompt)}
    return {r["test"]: r["tok_s"]["median"] for r in j["results"] if (r["test"], r["depth"]) in wanted}, j["machine"]


def theirs(a):
    command = [a.python, ROOT / "tests/oracle/llama.py", "bench", a.model, a.threads, a.prompt, a.generate, 1]
    j = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True).stdout)
    return {test: v["median"] for test, v in j.items()}


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--generate", type=int, default=32)
    p.add_argument("--invar", default=str(ROOT / "build/invar"))
    p.add_argument("--python", default=str(ROOT / "build/venv/bin/python"), help="one that has numpy")
    a = p.parse_args()
    rows, bandwidth, machine = {}, [], {}
    for number in range(a.rounds):
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
        (mine, machine), other = ours(a), theirs(a)
        bandwidth.append(machine["read_gb_s"])
        for test in mine:
            rows.setdefault(test, []).append((mine[test], other[test]))
    print(f"{machine['cpu']}, {a.threads} threads, {machine['isa']}, read {spread(bandwidth)} GB/s, {a.rounds} rounds\n")
    print("| test | Invar tok/s | llama.cpp tok/s | ratio |\n| --- | --- | --- | --- |")
    for test, pairs in rows.items():
        print(f"| {test} | {spread([x for x, _ in pairs])} | {spread([y for _, y in pairs])} | {spread([x / y for x, y in pairs])} |")


if __name__ == "__main__":
    main()
