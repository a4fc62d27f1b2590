"""lm-evaluation-harness through local-completions: its log-likelihoods are those of a direct pass, its answers those of `run`."""
import array
import json
import math
import os
import subprocess
import sys

from common import HERE, INVAR, MODEL, PLACE, Server, expect, fail, finish, prepared, quiet, skip

PAIRS = [["The capital of the north is", " a cold harbour"], ["count: 1 2 3", " 4"], ["red stone", ", blue river"], ["x", " y"], ["the", " end"]]
BEGINS = ["The first thing to know is", "one two three"]
VENV = PLACE / "lm-eval"


def install():
    return quiet(sys.executable, "-m", "venv", VENV) and quiet(VENV / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                                                               HERE / "requirements-lm-eval.txt")


def rows(folder, tokens):
    """The logits of one pass, a list of rows."""
    out = folder / "logits.npy"
    subprocess.run([INVAR, "logits", MODEL, "--tokens", ",".join(map(str, tokens)), "-o", out, "-q"], check=True, capture_output=True)
    data = out.read_bytes()
    values = array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])
    width = len(values) // len(tokens)
    return [values[i * width:(i + 1) * width] for i in range(len(tokens))]


def direct(folder, begin, whole):
    logits, total, greedy = rows(folder, whole), 0.0, True
    for i in range(len(begin), len(whole)):
        row, token = logits[i - 1], whole[i]
        best = max(row)
        total += row[token] - best - math.log(math.fsum(math.exp(x - best) for x in row))
        greedy = greedy and row[token] == best
    return total, greedy


def main():
    wanted = (HERE / "requirements-lm-eval.txt").read_text()
    if not prepared(PLACE / "lm-eval.txt", wanted, install):
        skip("lm-eval", "cannot be installed")
        finish()
    with Server(None) as server:
        done = subprocess.run([VENV / "bin/python", HERE / "lm_eval_client.py"], input=json.dumps({"pairs": PAIRS, "begins": BEGINS}), text=True,
                              capture_output=True, timeout=300,
                              env={"PATH": os.environ["PATH"], "HOME": str(server.path), "URL": server.url, "HF_HUB_OFFLINE": "1"})
        if done.returncode:
            fail("lm-eval", done.stderr[-1500:])
            finish()
        told = json.loads(done.stdout)
        for i, ((score, greedy), (begin, whole)) in enumerate(zip(told["scores"], told["tokens"])):
            total, best = direct(server.path, begin, whole)
            expect(abs(score - total) < 1e-5 and greedy == best, f"lm-eval-loglikelihood-{i}", f"{score} {total} {greedy}")
        for begin, text in zip(BEGINS, told["texts"]):
            run = subprocess.run([INVAR, "run", MODEL, "--raw", "-p", begin, "-n", "12", "--temperature", "0", "--stop", "\n", "--json", "-q"],
                                 check=True, capture_output=True, text=True)
            said = json.loads(run.stdout)["output"]["text"]
            expect(text == said, "lm-eval-generate", f"{text!r} {said!r}")
    finish()


main()
