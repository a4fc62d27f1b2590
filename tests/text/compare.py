"""Compares the text layer with the Python libraries it must equal: `jinja2` as transformers sets it up,
and `tokenizers`.  Needs both, and text_tool:  python tests/text/compare.py --tool build/tests/text/text_tool
The last line counts; the exit status is 1 if anything differs."""
import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import conversations
import strings
import vocabularies
from tool import Tool

HERE = Path(__file__).resolve().parent
NOW = datetime.datetime(2026, 7, 4, 9, 5, 3)
VARIABLES = {
    "text": "Hello, World", "blank": "", "space": " \t x\u00a0\x1c ", "scripts": "Grüße ﬁ 日本 ß İ ΑΣ", "lines": "a\nb\r\nc\rd\u2028e\x0bf\n", "nothing": None,
    "yes": True, "no": False, "five": 5, "half": 1.5, "huge": 1e22, "tiny": 1e-7, "long": 123456789012345678901234567890, "numbers": [3, 1, 2], "empty": [],
    "letters": ["b", "A", "c"], "mixed": [1, "x", None, True, 1.0, {"k": "v"}, ["n"]], "table": {"b": 1, "a": 2, "C": 3},
    "tricky": {"items": {"x": 1}, "keys": "K", "get": 2, "k": None, "values": [1]},
    "rows": [{"name": "x", "value": 1, "group": "p"}, {"name": "y", "value": 2, "group": "q"}, {"name": "z", "group": "p"}],
    "single": "it's", "double": 'say "hi"', "both": "it's \"x\"", "slash": "a\\b", "html": "<a href='x'>&\"</a>",
    "control": "\x00\x1f\x7f\x80\u200b\u2028\ufeff\U0001F600\ue000", "tree": [{"name": "r", "children": [{"name": "s", "children": []}]}, {"name": "t"}]}


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the model's own text; it prints what is in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def python_render(source, variables):
    """The text, or None and what went wrong."""
    def refuse(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals |= {"raise_exception": refuse, "strftime_now": NOW.strftime}
    try:
        return env.from_string(source).render(**json.loads(variables)), None
    except Exception as e:      # whatever a template does wrong in Python must be an error for us too
        return None, f"{type(e).__name__}: {e}"


def compare_templates(tool):
    templates = {f.stem: f.read_text() for f in sorted((HERE / "templates").glob("*.jinja"))}
    contexts = list(conversations.all_contexts())
    cases = [(f"{name}/{i}", source, c) for name, source in templates.items() for i, c in enumerate(contexts)]
    variables = json.dumps(VARIABLES)
    for number, line in enumerate((HERE / "features.txt").read_text().split("\n")):
        cases.append((f"features.txt:{number + 1}", line, variables))
    for where, source, context in cases:
        wanted, error = python_render(source, context)
        answer = tool.ask(template=source, variables=context, now=int(time.mktime(NOW.timetuple())))
        got = answer.get("text")
        tool.expect(got == wanted, where, got if got is not None else "error: " + answer["error"], wanted if wanted is not None else "error: " + error)


def compare_tokenizer(tool, name, tokenizer, loaded, texts, folder):
    path = folder / "tokenizer.json"
    path.write_text(loaded)
    answer = tool.ask(load=str(path))
    if "error" in answer:
        tool.expect(False, name, answer["error"], "a tokenizer")
        return
    for mode, special_is_text in ((0, False), (1, True)):
        tokenizer.encode_special_tokens = special_is_text
        for text, got in zip(texts, tool.encode(texts, mode), strict=True):
            wanted = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
            tool.expect(got == wanted, f"{name}, mode {mode}, {text!r}", got, wanted)


def compare_tokenizers(tool, count):
    texts = strings.all_strings(count)
    corpus = [t.decode(errors="replace") for t in texts]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for i, name in enumerate(vocabularies.FAMILIES):
            tokenizer = vocabularies.byte_level(name, corpus)
            compare_tokenizer(tool, name, tokenizer, json.dumps(vocabularies.arrays(tokenizer, name)), texts[i % 4::4], folder)
            compare_tokenizer(tool, name + " from JSON", tokenizer, tokenizer.to_str(), texts[i % 20::20], folder)
        tokenizer = vocabularies.sentence_piece(corpus)
        compare_tokenizer(tool, "SentencePiece from JSON", tokenizer, tokenizer.to_str(), texts[::10], folder)
        gguf = vocabularies.arrays(tokenizer, "")
        (folder / "tokenizer.json").write_text(json.dumps(gguf))
        tool.ask(load=str(folder / "tokenizer.json"))
        for mode in (0, 1):
            for text, got in zip(texts[::10], tool.encode(texts[::10], mode), strict=True):
                wanted = vocabularies.merge_by_score(gguf, text.decode(errors="replace"), mode == 0)
                tool.expect(got == wanted, f"SentencePiece by scores, mode {mode}, {text!r}", got, wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="the program built from tests/text/tool.cpp")
    parser.add_argument("--strings", type=int, default=5000)
    options = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    tool = Tool(options.tool)
    compare_templates(tool)
    compare_tokenizers(tool, options.strings)
    print(f"{tool.passed} passed, {tool.failed} failed")
    sys.exit(tool.failed > 0 or tool.passed < 5200)


if __name__ == "__main__":
    main()
