#!/usr/bin/env python3
"""Masks of grammars are those of web-xgrammar, an independent implementation, along random answers: JSON schemas, regular
expressions, lists of choices, GBNF, structural tags.  Where the text is forced, ours may allow the canonical token alone.

Only what both promise the same is compared: where the two define a language in another way (white space, escapes in strings,
-0, properties that no schema names) an independent validator judges our answers instead (tests/text/check_schemas.py).
What it allows and is no UTF-8 does not count.
"""
import json
import shutil
import subprocess
import sys

from oracle.common import ROOT, expect, fail, finish, skip

sys.path.append(str(ROOT / "tests/text"))
from tool import Tool, vocabulary  # noqa: E402

ORACLE = ROOT / "build/oracle/node_modules/@mlc-ai/web-xgrammar/lib/index.js"
WALKS = 6       # for each grammar
ADDED = [("<think>", 4), ("<tool_call>", 4), ("never", 5)]      # user-defined, unused: no text has them


def closed(properties, required=None):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, "additionalProperties": False}


WEATHER = closed({"city": {"enum": ["Oslo", "Os", "name"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "full": {"type": "boolean"}}, ["city", "full"])
SCHEMAS = {
    "boolean": {"type": "boolean"}, "null": {"type": "null"}, "const": {"const": {"a": [1, "x", None]}}, "enum": {"enum": ["a", "ab", "abc", 1, None, [True]]},
    "union": {"type": ["boolean", "null"]}, "any of": {"anyOf": [{"const": "name"}, {"type": "boolean"}, {"enum": ["x", 10]}]},
    "one of": {"oneOf": [{"type": "boolean"}, {"type": "null"}]},
    "order of properties": closed({"b": {"type": "boolean"}, "a": {"type": "null"}, "name": {"const": 1}}),
    "optional in front": closed({"a": {"type": "boolean"}, "ab": {"type": "null"}, "b": {"const": "x"}}, ["b"]),
    "optional behind": closed({"b": {"const": "x"}, "a": {"type": "boolean"}}, ["b"]), "all optional": closed({"a": {"type": "boolean"}, "b": {"type": "null"}}, []),
    "no properties": closed({}), "nested": closed({"at": closed({"deep": closed({"on": {"type": "boolean"}})}), "list": {"type": "array", "items": {"type": "null"}, "maxItems": 2}}),
    "forced key": closed({"temperature_celsius": {"type": "boolean"}, "temperature_kelvin": {"type": "null"}}, ["temperature_celsius"]),
    "list": {"type": "array", "items": {"type": "boolean"}}, "list of bounds": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "n"}], "items": False, "minItems": 2},
    "reference": {"$ref": "#/$defs/node", "$defs": {"node": closed({"on": {"type": "boolean"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}})}},
    "range": {"type": "integer", "minimum": 17, "maximum": 1305}, "small range": {"type": "integer", "minimum": 8, "maximum": 12},
    "negative range": {"type": "integer", "minimum": -120, "maximum": -7}, "tool": WEATHER,
    "letters": {"enum": ["\u00e9t\u00e9", "\u65e5\u672c", "\U0001F600!"]},
    "pattern": {"type": "string", "pattern": "^[a-c]{2,4}$"}, "pattern of words": {"type": "string", "pattern": "^(yes|no|n/a)$"},
}
REGEXES = {"digits": "[0-9]{3}-[0-9]{2}", "alternatives": "(a|ab)(c|bc)?[12]", "class": "[^a-y\\n]{1,3}z", "loops": "(ab)*(ba)+", "dots": "\\.{2,3}[.]"}
CHOICES = {"prefixes": ["true", "tr", "abc", "abca", "name"], "one": ["null"], "letters": ["\u00e9", "\u00e9t\u00e9", "z"]}
GRAMMARS = {
    "finite": 'root ::= "yes" | "no" | "n" "u"? "ll"', "recursive": 'root ::= "(" root ")" | "a"', "left and right": 'root ::= "a" root "b" | ""',
    "ambiguous": 'root ::= ("a" | "ab") ("c" | "bc") root?', "a literal or a class": 'root ::= item ("," root)?\nitem ::= "true" | [a-z]+ [0-9]',
    "repeats": 'root ::= ("ab" | [0-9]){2,3} x{2} y{1,} # comment\nx ::= "-"\ny ::= "."', "negated": 'root ::= "<" [^<>]* ">" root?', "lines": 'root ::=\n  "a"\n  | "b"  # here\n  | "c" (\n "d" )',
    "escapes": 'root ::= "\\x41\\u00e9\\n" [\\x30-\\x32\\]] "\\"" root?', "comparison": 'root ::= term (op term)*\nterm ::= [a-c] | "(" root ")"\nop ::= "+" | "-" | "=="',
    "json": 'root ::= object\nvalue ::= object | list | "true" | "null" | number\nobject ::= "{" (pair ("," pair)*)? "}"\npair ::= "\\"" [a-z]* "\\":" value\n'
            'list ::= "[" (value ("," value)*)? "]"\nnumber ::= "-"? ("0" | [1-9] [0-9]{0,3})',
}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


JSON = {"type": "json_schema", "json_schema": {"enum": ["Oslo", "Os", 12, True, None]}}
CALLS = [tag("<function=weather>", JSON, "</function>"), tag("<function=now>", {"type": "const_string", "value": "{}"}, "</function>")]
TAGS = {
    "constant": {"type": "const_string", "value": "name: true"}, "sequence": {"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "regex", "pattern": "[0-9]{2}"}]},
    "or": {"type": "or", "elements": [JSON, {"type": "const_string", "value": "none"}]}, "tag": CALLS[0], "text in a tag": tag("<b>", {"type": "any_text"}, "</b>"),
    "grammar": tag("[", {"type": "grammar", "grammar": 'root ::= "x" root | "y"'}, "]"),
    "triggered": {"type": "triggered_tags", "triggers": ["<function="], "tags": CALLS},
    "triggered at least once": {"type": "triggered_tags", "triggers": ["<function="], "tags": CALLS, "at_least_one": True},
    "triggered once": {"type": "triggered_tags", "triggers": ["<function="], "tags": CALLS, "stop_after_first": True},
    "exactly one": {"type": "triggered_tags", "triggers": ["<function="], "tags": CALLS, "at_least_one": True, "stop_after_first": True},
    "two triggers": {"type": "triggered_tags", "triggers": ["<a", "<b"], "tags": [tag("<a>", {"type": "const_string", "value": "1"}, "</a>"), tag("<b>", {"type": "regex", "pattern": "[2-4]"}, "</b>")]},
    "separated": {"type": "tags_with_separator", "separator": ", ", "tags": CALLS}, "separated, one at least": {"type": "tags_with_separator", "separator": "\n", "tags": CALLS, "at_least_one": True},
}


def grammars():
    yield from (("json_schema", name, {"schema": schema}) for name, schema in SCHEMAS.items())
    yield from (("regex", name, {"text": regex}) for name, regex in REGEXES.items())
    yield from (("choice", name, {"choice": choice}) for name, choice in CHOICES.items())
    yield from (("gbnf", name, {"text": grammar}) for name, grammar in GRAMMARS.items())
    yield from (("tags", name, {"schema": {"type": "structural_tag", "format": form}}) for name, form in TAGS.items())


def main():
    if not (shutil.which("node") and ORACLE.exists()):
        skip("masks", "no npm package @mlc-ai/web-xgrammar")
        return finish()
    path = ROOT / "build/masks-vocabulary.json"
    pieces = vocabulary(path, ADDED)
    tool = Tool(ROOT / "build/tests/text/text_tool")
    tool.ask(load=str(path))
    lines, faults, names = [{"vocabulary": pieces + ["<|end|>"] + [""] * len(ADDED), "end": len(pieces)}], {}, []
    for kind, name, grammar in grammars():
        names.append(f"{kind}: {name}")
        for seed in range(WALKS):
            walk = tool.ask(grammar=kind, seed=seed, **grammar)
            if "error" in walk:
                faults.setdefault(names[-1], []).append("ours: " + walk["error"])
                break
            lines.append({"name": names[-1], "grammar": kind} | grammar | walk)
    done = subprocess.run(["node", ROOT / "tests/oracle/masks.mjs", ORACLE], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    steps = {}
    for said in map(json.loads, done.stdout.splitlines()):
        if "error" in said:
            faults.setdefault(said["name"], []).append("theirs: " + said["error"])
        else:
            count = steps.setdefault(said["name"], [0, 0])
            count[0] += said["steps"]
            count[1] += said["forced"]
            faults.setdefault(said["name"], []).extend(said["differences"])
    if done.returncode:
        fail("masks", done.stderr[-1500:])
    for name in names:
        wrong, (all_steps, forced) = faults.get(name, []), steps.get(name, (0, 0))
        expect(not wrong and all_steps > 0, "masks." + name.replace(": ", ".").replace(" ", "-"), "; ".join(wrong[:3]) or f"{all_steps} masks, {forced} of them forced")
    finish()


if __name__ == "__main__":
    main()
