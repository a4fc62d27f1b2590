#!/usr/bin/env python3
"""Sends a workload of `invar bench MODEL --workload NAME` to another server, and puts both in one table.

    build/invar bench MODEL --workload agent --print > agent.jsonl
    build/invar bench MODEL --workload agent --json > ours.json
    bench/workload.py agent.jsonl --url http://127.0.0.1:8080 --api llama --ours ours.json

Both sides get the same token ids; in later prompts a generated answer stands for the true one, so the work does not depend
on what was answered.  Each conversation has a thread that waits for its answer before it goes on.  --api: `openai` posts to
/v1/completions, `llama` to the /completion of llama.cpp and its relatives, which tells how many tokens it processed.
"""
import argparse
import http.client
import json
import math
import sys
import threading
import time
import urllib.parse


def body_of(a, request):
    body = {"prompt": request["prompt"], "temperature": 0, "stream": True, "ignore_eos": True}
    if a.api == "llama":
        return body | {"n_predict": request["answer_tokens"], "cache_prompt": True}
    body |= {"max_tokens": request["answer_tokens"], "stream_options": {"include_usage": True}}
    return body | ({"model": a.model} if a.model else {})


def events(response):
    """The objects of a stream of server-sent events."""
    for line in response:
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            event = json.loads(data)
            if "error" in event:
                raise RuntimeError(f"the server says {event['error']}")
            yield event


def counts(a, event, result):
    """What an event says of tokens, into the result; None where the server says nothing."""
    timings, usage = event.get("timings") or {}, event.get("usage") or {}
    if usage:
        details = usage.get("prompt_tokens_details") or {}
        result["answer_tokens"] = usage["completion_tokens"]
        if details.get("cached_tokens") is not None:
            result["prompt_rows"] = usage["prompt_tokens"] - details["cached_tokens"]
    if "prompt_n" in timings:
        result["prompt_rows"] = timings["prompt_n"]
    if "predicted_n" in timings:
        result["answer_tokens"] = timings["predicted_n"]


def ask(a, request, due):
    """One request; the time to the first token counts from when it was due."""
    url = urllib.parse.urlsplit(a.url)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=a.timeout)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {a.key}"} if a.key else {})
    path = url.path.rstrip("/") + ("/completion" if a.api == "llama" else "/v1/completions")
    connection.request("POST", path, json.dumps(body_of(a, request)), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"the server says {response.status}: {response.read(500)!r}")
    result = {"conversation": request["conversation"], "turn": request["turn"], "prompt_tokens": len(request["prompt"]),
              "prompt_rows": None, "answer_tokens": None, "ttft_s": None, "tpot_s": None}
    first = last = None
    for event in events(response):
        if "content" in event and not event.get("stop") or event.get("choices"):
            last = time.monotonic()
            first = first or last
        counts(a, event, result)
    connection.close()
    if first is None:
        raise RuntimeError("expected tokens, found an empty stream")
    result["ttft_s"] = first - due
    if (n := result["answer_tokens"]) and n > 1:
        result["tpot_s"] = (last - first) / (n - 1)
    return result


def replay(a, requests):
    """All conversations at once; results in the order of conversations and turns, and the seconds it took."""
    results, faults, conversations = [], [], {}
    for request in requests:
        conversations.setdefault(request["conversation"], []).append(request)
    start = time.monotonic()

    def talk(turns):
        due = start
        try:
            for request in turns:
                due += request["wait_s"]
                time.sleep(max(0, due - time.monotonic()))
                results.append(ask(a, request, due))
                print(f"{len(results)} of {len(requests)}", file=sys.stderr)
                due = time.monotonic()
        except (OSError, RuntimeError, ValueError, http.client.HTTPException) as fault:
            faults.append(f"conversation {turns[0]['conversation']}: {fault}")

    threads = [threading.Thread(target=talk, args=(turns,), daemon=True) for turns in conversations.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results, key=lambda r: (r["conversation"], r["turn"])), time.monotonic() - start, faults


def spread(values):
    """As `bench --workload` has it: the value that so many per cent do not exceed."""
    values = sorted(v for v in values if v is not None)
    if not values:
        return None
    return {"p50": values[math.ceil(0.5 * len(values)) - 1], "p95": values[math.ceil(0.95 * len(values)) - 1], "max": values[-1]}


def total(turns, key):
    values = [t[key] for t in turns]
    return None if None in values else sum(values)


def report(turns, wall_s):
    answers = total(turns, "answer_tokens")
    return {"finished": len(turns), "wall_s": wall_s, "prompt_tokens": total(turns, "prompt_tokens"), "prompt_rows": total(turns, "prompt_rows"),
            "answer_tokens": answers, "answer_tok_s": answers and answers / wall_s, "ttft_s": spread(t["ttft_s"] for t in turns),
            "tpot_s": spread(t["tpot_s"] for t in turns), "turns": turns}


def text(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else f"{value:,}"


def row(name, *values):
    print("| " + " | ".join([name, *values]) + " |")


def table(sides):
    """`sides`: name to report."""
    row("", *sides)
    row("---", *("---:" for _ in sides))
    for name, key in (("requests", "finished"), ("prompt tokens", "prompt_tokens"), ("of these processed", "prompt_rows"),
                      ("answer tokens", "answer_tokens"), ("seconds", "wall_s"), ("answer tok/s", "answer_tok_s")):
        row(name, *(text(s[key], 2) for s in sides.values()))
    for name, key in (("first token, s", "ttft_s"), ("per token, s", "tpot_s")):
        for part in ("p50", "p95", "max"):
            row(f"{name}, {part}", *(text(s[key] and s[key][part]) for s in sides.values()))
    if any(t["conversation"] for s in sides.values() for t in s["turns"]):
        return
    print()
    row("turn", "prompt", *(f"{name} {what}" for name in sides for what in ("processed", "first token, s")))
    row(*("---:" for _ in range(2 + 2 * len(sides))))
    for turns in zip(*(s["turns"] for s in sides.values())):
        row(str(turns[0]["turn"]), text(turns[0]["prompt_tokens"]), *(text(t[key]) for t in turns for key in ("prompt_rows", "ttft_s")))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workload", help="what --print gave; - for standard input")
    p.add_argument("--url", default="http://127.0.0.1:8080")
    p.add_argument("--api", choices=("openai", "llama"), default="openai")
    p.add_argument("--model", help="its name in the request")
    p.add_argument("--key", help="an API key")
    p.add_argument("--name", default="server", help="of the server in the table")
    p.add_argument("--ours", help="what `bench --workload NAME --json` gave for the same workload")
    p.add_argument("--timeout", type=float, default=3600, help="seconds to wait for the next bytes")
    p.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    a = p.parse_args()
    with sys.stdin if a.workload == "-" else open(a.workload) as lines:
        requests = [json.loads(line) for line in lines]
    ours = json.load(open(a.ours)) if a.ours else None
    if ours:
        same = [len(r["prompt"]) for r in requests] == [t["prompt_tokens"] for t in ours["turns"]]
        if not same or ours["workload"]["own_answers"]:
            p.error("--ours: expected the measurement of this workload, found one with other prompts")
    turns, wall_s, faults = replay(a, requests)
    theirs = report(turns, wall_s)
    if a.json:
        print(json.dumps(theirs))
    else:
        table(({"Invar": ours} if ours else {}) | {a.name: theirs})
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
