"""Random answers under 200 JSON schemas, judged by `jsonschema`: what the masks let through must validate.

The answers are chosen token by token, at random among those that the mask allows, over a small vocabulary; so a mask that
allows one token too many shows soon.  Needs text_tool:  python tests/text/check_schemas.py
"""
import json
import random
import re
import sys
from pathlib import Path

import jsonschema

from tool import Tool, vocabulary

ROOT = Path(__file__).resolve().parent.parent.parent
ANSWERS = 3     # for each schema
BY_HAND = [
    {}, True, {"type": "object"}, {"type": "array"}, {"type": ["string", "null"]}, {"const": {"a": [1, "x", None]}}, {"enum": ["a", 1, None, [True]]},
    {"type": "string", "pattern": "^[a-c]{2,4}$"}, {"type": "string", "pattern": "x"}, {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}, {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "email"}, {"type": "string", "format": "time"}, {"type": "string", "format": "hostname"},
    {"type": "integer", "minimum": -17, "maximum": 1305}, {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 7}, {"type": "number", "minimum": -0.5, "maximum": 2.25},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}], "items": False, "minItems": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}, "value": {"type": "integer"}},
                                                "required": ["value"], "additionalProperties": False}}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"type": "integer", "minimum": 10, "maximum": 12}, {"const": "none"}]},
]
WORDS = ["name", "size", "kind", "a b", "x/y", "\u00e9t\u00e9", "q\"uote", "list", "deep", "on"]


def leaf(r):
    low = r.randint(-50, 50)
    return r.choice([
        {"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"},
        {"type": "string", "enum": r.sample(WORDS, 3)}, {"type": "integer", "minimum": low, "maximum": low + r.randint(0, 200)},
        {"type": "string", "maxLength": r.randint(0, 9)}, {"type": "number", "minimum": low}, {"const": r.choice([1, "x", None, True, [1], {"k": "v"}])},
        {"type": "string", "pattern": r.choice(["^a+$", "^[0-9]{3}-[0-9]{2}$", "^(yes|no)$", "\\d"])}, {"type": ["integer", "null"]}])


def schema(r, depth):
    kind = r.randrange(6) if depth else 0
    if kind < 2:
        return leaf(r)
    if kind == 2:
        low = r.randint(0, 2)
        return {"type": "array", "items": schema(r, depth - 1), "minItems": low, "maxItems": low + r.randint(0, 3)}
    if kind == 3:
        return {"anyOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}
    names = r.sample(WORDS, r.randint(1, 5))
    return {"type": "object", "properties": {n: schema(r, depth - 1) for n in names}, "required": [n for n in names if r.random() < 0.6], "additionalProperties": False}


def main():
    path = ROOT / "build/schemas-vocabulary.json"
    vocabulary(path)
    tool = Tool(ROOT / "build/tests/text/text_tool")
    tool.ask(load=str(path))
    r = random.Random(11)
    schemas = BY_HAND + [schema(r, 3) for _ in range(200 - len(BY_HAND))]
    checker = jsonschema.FormatChecker()
    checker.checks("time")(lambda v: bool(re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", v, re.I)))  # its own knows no zones
    for i, s in enumerate(schemas):
        judge, faults = jsonschema.Draft202012Validator(s, format_checker=checker), []
        for seed in range(ANSWERS):
            got = tool.ask(schema=s, strict=True, seed=1000 * i + seed)
            if "error" in got:
                faults.append(got["error"])
                continue
            try:
                value = json.loads(got["answer"])
            except ValueError as e:
                faults.append(f"{got['answer'][:200]!r}: {e}")
                continue
            faults += [f"{got['answer'][:200]}: {e.message[:200]}" for e in judge.iter_errors(value)]
        tool.expect(not faults, f"schema {i} {json.dumps(s)[:300]}: {faults}", "", "")
    print(f"{tool.passed} passed, {tool.failed} failed")
    return bool(tool.failed)


if __name__ == "__main__":
    sys.exit(main())
