#!/usr/bin/env python3
"""Is a turn's first token as late as its new tokens need, and no later?  A conversation through `invar serve`, turn by turn.

    build/invar bench MODEL --workload agent --print > agent.jsonl
    bench/first_token.py MODEL agent.jsonl [--restart 16] [--samples 3] [more flags of invar serve]

Of each turn, at the same depth and in turn, --samples times: the time to the first token with one new token (the fixed
cost), with --probe new tokens (which gives the time per token), and of the turn itself, whose new tokens are shuffled until the
last time.  Medians of these count.  Before turn --restart the server stops and starts again on its cache folder, once for
the fixed cost and once for the turn, a sample each.  Exit status 1: a turn more than 15 % late.
"""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workload import ask

ROOT = Path(__file__).resolve().parent.parent


class Server:
    def __init__(self, command):
        self.command = command
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=600)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("workload", help="what --print gave: one conversation")
    p.add_argument("--restart", type=int, default=16, help="before this turn; 0: never")
    p.add_argument("--samples", type=int, default=3, help="of each time; their median counts")
    p.add_argument("--probe", type=int, default=512, help="new tokens that give the time per token")
    p.add_argument("--invar", default=str(ROOT / "build" / "invar"))
    a, more = p.parse_known_args()
    turns = [json.loads(line) for line in open(a.workload)]
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        server = Server([a.invar, "serve", a.model, "--port", "0", "--cache-dir", folder, "--json", "-q", *more])

        where = argparse.Namespace(api="openai", model=None, key=None, timeout=3600)

        def first_token(prompt, answer_tokens=1):
            where.url = server.url
            request = {"conversation": 0, "turn": 0, "prompt": prompt, "answer_tokens": answer_tokens}
            result = ask(where, request, time.monotonic())
            return result["ttft_s"], result["prompt_rows"]

        def drawn(prefix, new):
            return first_token(prefix + draw.choices(prefix, k=new))[0]

        def restart():
            server.stop()
            server.start()
            first_token(turns[0]["prompt"][:1])  # what a process does once

        print("| turn | prompt | new | fixed, s | ms a token | expected, s | first token, s | ratio |")
        print("| " + "---: | " * 8)
        ratios = []
        first_token(turns[0]["prompt"], turns[0]["answer_tokens"])
        for number, (before, turn) in enumerate(zip(turns, turns[1:]), 2):
            before, prompt, restarted = before["prompt"], turn["prompt"], number == a.restart
            fixed, probes, took = [], [], []
            for sample in range(a.samples):
                fixed.append(drawn(before, 1))
                probes.append(drawn(before, 1 + a.probe))
                if sample + 1 < a.samples and not restarted:
                    new = prompt[len(before):]
                    took.append(first_token(before + draw.sample(new, k=len(new)))[0])
            per_token = (statistics.median(probes) - statistics.median(fixed)) / a.probe
            if restarted:
                restart()
                fixed = [drawn(before, 1)]
                restart()
            last, read = first_token(prompt, turn["answer_tokens"])
            took = statistics.median(took + [last])
            expected = statistics.median(fixed) + (read - 1) * per_token
            ratios.append(took / expected)
            print(f"| {number}{' (restarted)' if restarted else ''} | {len(prompt)} | {read} | {statistics.median(fixed):.3f} | {1e3 * per_token:.3f} | "
                  f"{expected:.3f} | {took:.3f} | {ratios[-1]:.2f} |", flush=True)
        server.stop()
    print(f"\nratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    return int(max(ratios) > 1.15)


if __name__ == "__main__":
    sys.exit(main())
