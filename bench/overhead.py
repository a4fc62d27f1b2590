#!/usr/bin/env python3
"""What the server costs: the time per token of `invar bench` and of answers through `invar serve`, round after round.

    bench/overhead.py MODEL [--rounds 5] [--tokens 128] [--streams 1,8] [more flags of invar serve]

Both generate --tokens tokens after a prompt of --prompt tokens; through the server as streams to curl, whose median time
per token after the first counts.  (A client in Python takes another 2 % from two cores.)  The server waits, asleep, while
`bench` runs.  Prints a table; a ratio is of times in the same round.  Both map the weights of a pack: two copies in huge
pages may not find room for as many, and packs of either kind differ by a tenth in speed.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

from first_token import Server

ROOT = Path(__file__).resolve().parent.parent


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--streams", default="1,8")
    p.add_argument("--invar", default=str(ROOT / "build" / "invar"))
    a, more = p.parse_known_args()
    server = Server([a.invar, "serve", a.model, "--pack-cache", "--port", "0", "--json", "-q", *more])
    draw = random.Random(1)

    def served(streams):
        """Milliseconds a token of each of several streams."""
        command = ["curl", "-sNf", "-o", "/dev/null", "-w", "%{time_starttransfer} %{time_total}", "-H", "Content-Type: application/json",
                   server.url + "/v1/completions", "-d"]
        curls = []
        for _ in range(streams):
            request = {"prompt": draw.choices(range(100, 200), k=a.prompt), "max_tokens": a.tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True}
            curls.append(subprocess.Popen([*command, json.dumps(request)], stdout=subprocess.PIPE, text=True))
        times = []
        for curl in curls:
            text, _ = curl.communicate()
            if curl.returncode != 0:
                sys.exit("a stream failed")
            first, last = map(float, text.split())
            times.append(1e3 * (last - first) / (a.tokens - 1))
        return statistics.median(times)

    def alone():
        command = [a.invar, "bench", a.model, "--pack-cache", "-p", 0, "-n", a.tokens, "-d", a.prompt, "-r", 1, "--json", "-q"]
        text = subprocess.run([str(x) for x in command], check=True, stdout=subprocess.PIPE, text=True).stdout
        return 1e3 / json.loads(text)["results"][0]["tok_s"]["median"]

    times = {}
    served(1)
    for _ in range(a.rounds):
        times.setdefault("bench", []).append(alone())
        for streams in [int(x) for x in a.streams.split(",")]:
            times.setdefault(f"{streams} streams" if streams > 1 else "1 stream", []).append(served(streams))
    server.stop()
    print("| | ms a token of each | to bench |\n| --- | --- | --- |")
    for name, values in times.items():
        print(f"| {name} | {spread(values)} | {spread([x / y for x, y in zip(values, times['bench'])])} |")


if __name__ == "__main__":
    main()
