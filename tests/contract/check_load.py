"""200 streams at once on a tiny model for some seconds: no event lost or mixed, memory flat; how long the first token and the
gaps take.  `check_load.py 60` is the long form."""
import asyncio
import json
import sys
import time

from common import Server, expect, finish, isolate, limits_of

STREAMS = 200
SCRIPT = [{"match": f"<stream {i}>", "text": f"I am stream {i}. ", "repeat": 12, "delay_ms": 10, "prompt_ms": 20} for i in range(STREAMS)]


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


class Seen:
    def __init__(self):
        self.first, self.gaps, self.whole, self.wrong = [], [], 0, []


async def one(host, port, text, most, check, seen):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], "stream": True, "max_tokens": most,
                       "temperature": 0, "stream_options": {"include_usage": True}}).encode()
    reader, writer = await asyncio.open_connection(host, port)
    start = last = time.monotonic()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got, ended, usage = "", False, None
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            ended = True
            continue
        data, now = json.loads(line[6:]), time.monotonic()
        usage = data.get("usage") or usage
        for choice in data.get("choices", []):
            piece = choice["delta"].get("content")
            if piece:
                (seen.gaps if got else seen.first).append(now - last)
                last = now
                got += piece
    writer.close()
    if ended and usage and check(got, usage):
        seen.whole += 1
    else:
        seen.wrong.append((time.monotonic() - start, text, got[-100:], ended))


async def load(server, seconds, most, text_of, check_of):
    host, port = server.url.removeprefix("http://").split(":")
    seen, until = Seen(), time.monotonic() + seconds

    async def client(i):
        while time.monotonic() < until:
            await one(host, int(port), text_of(i), most, check_of(i), seen)

    await asyncio.gather(*(client(i) for i in range(STREAMS)))
    return seen


def report(name, server, seconds, most, text_of, check_of):
    asyncio.run(load(server, 1, most, text_of, check_of))
    before = limits_of(server.process)
    seen = asyncio.run(load(server, seconds, most, text_of, check_of))
    after = limits_of(server.process)
    expect(seen.whole >= STREAMS and not seen.wrong and after[0] < before[0] * 1.1 + 16384, name,
           f"{seen.whole} whole, {len(seen.wrong)} wrong {seen.wrong[:1]}; first token p50 {quantile(seen.first, 0.5):.3f} p99 {quantile(seen.first, 0.99):.3f} s; "
           f"gap p50 {quantile(seen.gaps, 0.5) * 1e3:.1f} p99 {quantile(seen.gaps, 0.99) * 1e3:.1f} ms; {before[0]} KiB before, {after[0]} after")


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4
    isolate()
    with Server(SCRIPT, "--sequences", STREAMS, "--no-log") as s:
        report("load-script", s, seconds, 1000, lambda i: f"<stream {i}>", lambda i: lambda got, usage: got == f"I am stream {i}. " * 12)
    with Server(None, "--sequences", 64, "--no-log", "--max-queue", 1000) as s:
        texts = {}

        def check_of(i):
            return lambda got, usage: texts.setdefault(i, got) == got and usage["completion_tokens"] > 0
        report("load-model", s, seconds, 50, lambda i: f"The code for place {i} is", check_of)
    finish()


main()
