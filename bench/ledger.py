#!/usr/bin/env python3
"""The memory of many turns: the budget against what the process took, and what grew.

    bench/ledger.py MODEL.gguf --memory 1GiB [--users 25] [--turns 20] [--scale 0.1] [more flags of invar bench]

Runs `invar bench --workload chat` and reads its JSON.  Exit status 1: more than 5 % over the budget, or grown by
more than 5 % of it since turn 50.  States that are kept for reuse fill the budget: choose it so small, or the turns so
long (--scale), that turn 50 finds it full.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--memory", required=True)
    p.add_argument("--users", default="25")
    p.add_argument("--turns", default="20")
    p.add_argument("--scale", default="0.1")
    p.add_argument("--invar", default=str(ROOT / "build" / "invar"))
    a, more = p.parse_known_args()
    command = [a.invar, "bench", a.model, "--workload", "chat", "--json", "-q", "--memory", a.memory, "--users",
               a.users, "--turns", a.turns, "--scale", a.scale, *more]
    run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    budget, peak = run["allowed_bytes"], run["peak_rss_bytes"]
    turns = sorted(run["turns"], key=lambda t: t["ended"])
    rss, rest = [t["rss_bytes"] for t in turns], [t["rss_bytes"] - t["states_bytes"] for t in turns]
    if len(rss) < 100:
        sys.exit(f"expected 100 turns or more, found {len(rss)}")
    grown, rest_grown = (max(of[50:]) - of[49] for of in (rss, rest))
    kinds = sorted(run["memory"].items(), key=lambda kind: -kind[1])
    hundreds = [(f"turns {i + 1}-{i + 100}", max(rss[i:i + 100])) for i in range(0, len(rss), 100)]
    for name, value in (("budget", budget), ("peak", peak), *kinds, ("all kinds", sum(run["memory"].values())),
                        ("after turn 1", rss[0]), ("after turn 50", rss[49]), *hundreds):
        print(f"{name:16} {value / 2**20:10.1f} MiB  {100 * value / budget:6.1f} %")
    for name, value in (("grown since 50", grown), ("without states", rest_grown)):
        print(f"{name:16} {value / 2**20:10.1f} MiB  {100 * value / budget:6.1f} %")
    return int(peak > 1.05 * budget or grown > 0.05 * budget)


if __name__ == "__main__":
    sys.exit(main())
