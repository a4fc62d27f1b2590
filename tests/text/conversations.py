"""Conversations as a server gets them: fixed ones for each feature, random ones for the rest."""
import json
import random

PARAMETERS = {"type": "object", "required": ["place"], "properties": {
    "place": {"type": "string", "description": "Town, e.g. 'Łódź', <PL> & \"more\""},
    "unit": {"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"},
    "days": {"type": "integer", "minimum": 1, "maximum": 1e22, "default": 1.0},
    "where": {"type": "object", "properties": {"lat": {"type": ["number", "null"], "default": None},
                                               "tags": {"type": "array", "items": {"type": "string"}}}}}}
TOOLS = [{"type": "function", "function": {"name": "forecast", "description": "Weather;\nsecond line \U0001F326", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}}]
ARGUMENTS = {"place": "Zürich \"x\" <y> & 'z'", "days": 3, "ratio": 0.1, "big": 1e22, "tiny": 1e-07, "neg": -2.5, "one": 1.0, "on": True,
             "off": False, "none": None, "list": [1, 2.0, "a", None, {"k": "v'"}], "nested": {"b": [], "a": {}, "日本": "\u2028 \t \\"},
             "items": 1, "large": 12345678901234567890}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, ident="abcdefgh1"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, ident="abcdefgh1"):
    return {"role": "tool", "tool_call_id": ident, "name": "forecast", "content": content}


def system(content):
    return {"role": "system", "content": content}


FIXED = [
    {"messages": [user("Hello, who are you?")]},
    {"messages": [system("Be brief. \n"), user(" Hi <there> & \"you\" it's")]},
    {"messages": [system("S"), user("\n\nWhat?\n"), assistant("4 \n"), user("thanks 谢谢 \U0001F64F")]},
    {"messages": [user("Weather?")], "tools": TOOLS},
    {"messages": [system("S"), user("Weather?")], "tools": TOOLS},
    {"messages": [user("W?"), assistant("", tool_calls=[call("forecast", ARGUMENTS)]), result('{"t": 21.5}'), assistant("21.5"), user("And?")], "tools": TOOLS},
    {"messages": [user("W?"), assistant("Look.", tool_calls=[call("forecast", {"place": "P"}), call("ping", {}, "123456789")]), result("21"),
                  result("pong", "123456789")], "tools": TOOLS},
    {"messages": [user("W?"), assistant(None, tool_calls=[call("forecast", json.dumps({"place": "Q"}))]), result("rain"), user("ok")], "tools": TOOLS},
    {"messages": [user("Q1"), assistant("A1", reasoning_content="think\n step "), user("Q2"), assistant("A2", reasoning_content="more")]},
    {"messages": [user("Q1"), assistant("<think>\nhmm\n</think>\n\nA1"), user("Q2"), assistant("<think>x</think>A2"), user("Q3")]},
    {"messages": [user([{"type": "text", "text": "Look "}, {"type": "image"}, {"type": "text", "text": "please"}]), assistant("I see.")]},
    {"messages": [user(None)]}, {"messages": [{"role": "user"}]}, {"messages": []}, {"messages": [system("only")]},
    {"messages": [user("a"), user("b"), assistant("c")]}, {"messages": [assistant("hello"), user("hi")]},
    {"messages": [system("\u00a0 \u3000sys\u200b\ufeff \r\n"), user("\x1c\x85 \t\v\f crlf\r\nline2\u2028x\u2029 "), assistant(" \n\n ok \n")]},
    {"messages": [user("Q")], "enable_thinking": False}, {"messages": [user("Q")], "enable_thinking": True, "effort": "high"},
    {"messages": [user("Q")], "effort": "low", "builtin_tools": ["browser", "code"], "date_string": "01 Jan 2026"},
    {"messages": [user("Q")], "documents": [{"title": "D1", "text": "one\ntwo"}, {"text": "<x> \"q\""}]},
    {"messages": [{"role": "developer", "content": "Dev"}, user("Q")]},
    {"messages": [user("w"), assistant("", tool_calls=[call("ping", {})]), result({"t": 21.0, "ok": True, "n": None})], "tools": []},
    {"messages": [user("\u00dcn\u00ef"), assistant("ß İ ŉ ǆ ﬀ ᾳ ΣΑΣ")]},
]

WORDS = ["hello", "it's", "say \"hi\"", "<b>", "&amp;", "日本", "é", "\n", "\n\n", " ", "  ", "\t", "\U0001F600", "a\\b", "{x}", "{{y}}", "{%", "<think>",
         "</think>", "<|im_end|>", "</s>", "1.5", "0", "None", "null", "\u00a0", "\r\n", "```py\nx=1\n```", "|", "%", "#", "ß", "…"]


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self, most=8):
        return "".join(self.r.choice(WORDS) + self.r.choice(["", " "]) for _ in range(self.r.randint(0, most)))

    def number(self):
        r = self.r
        return r.choice([r.randint(-10 ** r.randint(0, 22), 10 ** r.randint(1, 22)), r.uniform(-1e3, 1e3), r.random() * 10 ** r.randint(-12, 25),
                         float(r.randint(-5, 5)), 1e16, 1e-5])

    def value(self, depth=0):
        kind = self.r.randint(0, 8 if depth < 3 else 6)
        if kind < 7:
            return [None, True, False, self.number(), self.number(), self.text(5), self.text(2)][kind]
        if kind == 7:
            return [self.value(depth + 1) for _ in range(self.r.randint(0, 3))]
        names = ["a", "items", "keys", "get", "name", "type", "x y", "é", "\"q\"", "1"]
        return {self.r.choice(names): self.value(depth + 1) for _ in range(self.r.randint(0, 4))}

    def content(self):
        kind = self.r.random()
        if kind < 0.8:
            return self.text()
        return self.r.choice(["", None, [{"type": "text", "text": self.text(4)}, {"type": "image"}, {"type": "text", "text": self.text(2)}]])

    def conversation(self):
        r, messages = self.r, []
        if r.random() < 0.5:
            messages.append(system(self.text()))
        for _ in range(r.randint(1, 4)):
            messages.append(user(self.content()))
            turn = assistant(self.content())
            if r.random() < 0.3:
                turn["reasoning_content"] = turn["thinking"] = self.text()
            if r.random() < 0.4:
                turn["tool_calls"] = [call("f", {f"p{i}": self.value() for i in range(r.randint(0, 3))})]
                messages += [turn, result(self.content() if r.random() < 0.8 else self.value())]
            elif r.random() < 0.9:
                messages.append(turn)
        out = {"messages": messages}
        if r.random() < 0.5:
            out["tools"] = TOOLS[:r.randint(1, 2)]
        if r.random() < 0.4:
            out["enable_thinking"] = r.choice([True, False])
        return out


def all_contexts():
    """Variables as JSON text."""
    source = Random(7)
    for conversation in FIXED + [source.conversation() for _ in range(40)]:
        for prompt in (True, False):
            context = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": prompt}
            yield json.dumps(context | conversation, ensure_ascii=prompt)
