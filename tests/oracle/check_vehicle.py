#!/usr/bin/env python3
"""A small trained hybrid (tests/data/vehicle-trial-q8_0.gguf, 5.8 M parameters) keeps what it learned on its way through
the engine: the loss of each kind of text is PyTorch's on the unrounded weights within 1 %, and questions about facts
far back in the text, up to 3,500 tokens, are answered as often.

The samples are held-out documents: token ids, the positions of answer tokens, how many of them PyTorch has as its best
token, and the summed negative log-likelihood of tokens 1 and up (BF16 weights, fp32 arithmetic).
"""
import json
from collections import defaultdict

import numpy as np

from oracle.common import DATA, expect, fail, finish, logits

MODEL = DATA / "vehicle-trial-q8_0.gguf"
TOLERANCE = 0.01
MAY_MISS = {"retr": 0, "mqar": 1}  # answer tokens more than PyTorch


def main():
    got, want, missed = defaultdict(float), defaultdict(float), defaultdict(int)
    try:
        for line in (DATA / "vehicle-trial-samples.jsonl").read_text().splitlines():
            sample = json.loads(line)
            rows, ids = logits(MODEL, sample["ids"]).astype(float), np.array(sample["ids"])
            top = rows[:-1].max(1)
            chosen = rows[np.arange(len(ids) - 1), ids[1:]]
            got[sample["domain"]] += float((top + np.log(np.exp(rows[:-1] - top[:, None]).sum(1)) - chosen).sum())
            want[sample["domain"]] += sample["nll"]
            right = sum(int(rows[i - 1].argmax()) == ids[i] for i in sample["answers"])
            missed[sample["domain"]] += sample["answers_right"] - right
    except RuntimeError as problem:
        fail("vehicle", str(problem))
        finish()
    for domain in sorted(want):
        ratio = got[domain] / want[domain]
        expect(abs(ratio - 1) < TOLERANCE, "vehicle.loss." + domain, f"{ratio:.4f} of PyTorch's")
    for domain, allowed in MAY_MISS.items():
        expect(missed[domain] <= allowed, "vehicle.answers." + domain, f"{missed[domain]} fewer answer tokens than PyTorch")
    finish()


if __name__ == "__main__":
    main()
