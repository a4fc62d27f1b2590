"""text_tool (tool.cpp) as an object, and a vocabulary of JSON for it."""
import json
import subprocess


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.passed = self.failed = 0

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def encode(self, texts, mode):
        return self.ask(encode=[t.hex() for t in texts], mode=mode).get("ids", [None] * len(texts))

    def expect(self, same, where, got, wanted):
        self.passed += same
        self.failed += not same
        if not same and self.failed <= 20:
            at = next((i for i, (a, b) in enumerate(zip(got or "", wanted or "")) if a != b), 0)
            print(f"{where}:\n   got    {got[max(0, at - 40):at + 80]!r}\n   wanted {wanted[max(0, at - 40):at + 80]!r}")


def vocabulary(path, added=()):
    """Bytes, some pieces that JSON is full of, an end, and added tokens as (text, type).  Returns the pieces."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    of_byte = {b: chr(b) if b in printable else chr(next(rest)) for b in range(256)}
    tokens, merges = [of_byte[b] for b in range(256)], []
    for a, b in [('{', '"'), ('"', ':'), ('"', ','), (',', '"'), ('t', 'r'), ('u', 'e'), ('tr', 'ue'), ('n', 'u'), ('l', 'l'), ('nu', 'll'), ('1', '0'), ('a', 'm'), ('n', 'am'),
                 ('nam', 'e'), ('}', '}'), ('\\', 'u'), ('[', '"'), ('0', '0')]:
        tokens.append(a + b)
        merges.append(f"{a} {b}")
    end = len(tokens)
    types = [1] * end + [3] + [kind for _, kind in added]
    tokens += ["<|end|>"] + [text for text, _ in added]
    path.write_text(json.dumps({"model": "gpt2", "pre": "llama-bpe", "tokens": tokens, "types": types, "merges": merges, "eos": [end]}))
    return tokens[:end]
