#!/usr/bin/env python3
"""Invar and other engines on the same file, one after the other, round after round, so that all see the same machine.

    make test                        (once: fetches llama.cpp's libraries for the tests)
    bench/beside.py MODEL.gguf [--rounds 5] [--threads 2] [--prompt 512] [--generate 32]
                    [--ik PATH/llama-bench] [--no-llama] [--prefix "taskset -c 0,1"]

Prints a table of tokens per second (median, least and most over the rounds) and the median of the ratios of each round.
The generated tokens follow the prompt, so their depth is its length in all programs.  ik_llama.cpp is a program that you
built; both of its modes run, with and without run-time repacking.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def output(a, *command):
    command = shlex.split(a.prefix) + [str(x) for x in command]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads("\n".join(line for line in text.splitlines() if not line.startswith("WARNING")))


def ours(a):
    """{test: tokens per second}, and the machine as our program saw it."""
    j = output(a, a.invar, "bench", a.model, "-p", a.prompt, "-n", a.generate, "-d", f"0,{a.prompt}", "-r", 1, "--threads", a.threads, "--json")
    wanted = {(f"pp{a.prompt}", 0), (f"tg{a.generate}", a.prompt)}
    return {r["test"]: r["tok_s"]["median"] for r in j["results"] if (r["test"], r["depth"]) in wanted}, j["machine"]


def llama(a):
    j = output(a, a.python, ROOT / "tests/oracle/llama.py", "bench", a.model, a.threads, a.prompt, a.generate, 1)
    return {test: v["median"] for test, v in j.items()}


def ik(repack):
    def run(a):
        rows = output(a, a.ik, "-m", a.model, "-t", a.threads, "-p", a.prompt, "-n", 0, "-gp", f"{a.prompt},{a.generate}", "-r", 1, "-rtr", repack, "-o", "json")
        return {f"tg{a.generate}" if "tg" in r["test"] else f"pp{a.prompt}": r["avg_ts"] for r in rows}

    return run


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
    p.add_argument("--ik", help="llama-bench of ik_llama.cpp")
    p.add_argument("--no-llama", action="store_true", help="without llama.cpp")
    p.add_argument("--prefix", default="", help="put before each command")
    a = p.parse_args()
    peers = {} if a.no_llama else {"llama.cpp": llama}
    if a.ik:
        peers |= {"ik_llama.cpp": ik(0), "ik_llama.cpp -rtr": ik(1)}
    rates, bandwidth, machine = {}, [], {}
    for number in range(a.rounds):
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
        mine, machine = ours(a)
        bandwidth.append(machine["read_gb_s"])
        for name, result in [("Invar", mine)] + [(name, run(a)) for name, run in peers.items()]:
            for test, rate in result.items():
                rates.setdefault(test, {}).setdefault(name, []).append(rate)
    print(f"{machine['cpu']}, {a.threads} threads, {machine['isa']}, read {spread(bandwidth)} GB/s, {a.rounds} rounds\n")
    print("| test | program | tok/s | Invar's ratio |\n| --- | --- | --- | --- |")
    for test, by_name in rates.items():
        for name, values in by_name.items():
            ratio = "" if name == "Invar" else spread([x / y for x, y in zip(by_name["Invar"], values)])
            print(f"| {test} | {name} | {spread(values)} | {ratio} |")


if __name__ == "__main__":
    main()
