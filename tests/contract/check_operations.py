"""`invar serve` as an operator sees it: addresses, keys, cancelled work, signs of life, the end, memory and descriptors."""
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from common import INVAR, MODEL, Server, expect, finish, isolate, limits_of

SCRIPT = [
    {"match": "reads long", "text": "Read.", "prompt_ms": 30000},
    {"match": "reads a while", "text": "Read.", "prompt_ms": 900},
    {"match": "answers long", "text": "tick ", "repeat": 1000, "delay_ms": 20},
    {"match": "answers a while", "text": "tick ", "repeat": 10, "delay_ms": 60},
    {"text": "Hello."},
]
PATHS = {"/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
         "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 100000},
         "/v1/responses": lambda text: {"input": text},
         "/v1/completions": lambda text: {"prompt": text, "max_tokens": 100000}}


def connect(server, timeout=20):
    host, port = server.url.removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=timeout)


def ask(server, path, text, **more):
    c = connect(server)
    c.request("POST", path, json.dumps({"model": "m", **PATHS[path](text), **more}), {"Content-Type": "application/json"})
    return c


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=5) as r:
        return r.read().decode()


def events(c):
    """[(event or None, data)], comments as (':', text)."""
    found = []
    for block in c.getresponse().read().decode().split("\n\n"):
        name = next((x[7:] for x in block.split("\n") if x.startswith("event: ")), None)
        data = next((x[6:] for x in block.split("\n") if x.startswith("data: ")), None)
        if block.startswith(":"):
            found.append((":", block))
        elif data is not None:
            found.append((name, data))
    return found


def cancels():
    with Server(SCRIPT, "--sequences", 1) as s:
        for path in PATHS:
            for stream in (False, True):
                for state, text in (("reading", "reads long"), ("answering", "answers long")):
                    c = ask(s, path, text, stream=stream)
                    began = s.wait_for("vllm:num_requests_running", 1, 5)
                    queued = ask(s, path, text, stream=stream)
                    waited = s.wait_for("vllm:num_requests_waiting", 1, 5)
                    queued.close()
                    gone = s.wait_for("vllm:num_requests_waiting", 0, 1)
                    c.close()
                    expect(began and waited and gone and s.wait_for("vllm:num_requests_running", 0, 1), f"cancel{path}-{state}-{'streamed' if stream else 'whole'}",
                           "queued and running ones end within a second")
        expect(s.metric('vllm:request_success_total{model_name="m",engine="0",finished_reason="abort"}') == 32, "cancel-count", "32 cancelled")


def signs_of_life():
    with Server(SCRIPT, "--heartbeat", 0.2, "--commit-after", 0.3) as s:
        for path in PATHS:
            start = time.monotonic()
            c = ask(s, path, "reads a while", stream=True)
            c.response = c.getresponse()
            head_s = time.monotonic() - start
            c.getresponse = lambda c=c: c.response
            seen = events(c)
            if path == "/v1/messages":
                beats = sum(name == "ping" for name, _ in seen)
            elif path == "/v1/responses":
                beats = sum(name == "response.in_progress" for name, _ in seen) - 1
                numbers = [json.loads(data)["sequence_number"] for _, data in seen]
                expect(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "heartbeat-numbers", "sequence numbers rise by one")
            else:
                beats = sum(name == ":" for name, _ in seen)
            expect(beats >= 2 and head_s < 0.7 and "Read" in json.dumps(seen), "heartbeat" + path, f"{beats} signs, head after {head_s:.2f} s")


def end(server, seconds=10):
    server.process.send_signal(signal.SIGTERM)
    try:
        return server.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return "still there"


def the_end():
    with Server(SCRIPT, "--drain-timeout", 10) as s:
        c = ask(s, "/v1/messages", "answers a while", stream=True)
        s.wait_for("vllm:num_requests_running", 1, 5)
        idle = connect(s)
        idle.connect()
        start, status = time.monotonic(), end(s)
        took, seen = time.monotonic() - start, events(c)
        expect(status == 0 and took < 5 and seen[-1][0] == "message_stop", "drain-finishes", f"status {status} after {took:.1f} s, last event {seen[-1][0]}")
    with Server(SCRIPT, "--drain-timeout", 10) as s:
        asks, probes, whole = connect(s), connect(s), connect(s)
        for c in (asks, probes):
            c.request("GET", "/readyz")
            c.getresponse().read()
        whole.request("POST", "/v1/chat/completions", json.dumps(PATHS["/v1/chat/completions"]("answers a while")))
        s.wait_for("vllm:num_requests_running", 1, 5)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        asks.request("POST", "/tokenize", json.dumps({"prompt": "x"}))
        answer = asks.getresponse()
        expect(answer.status == 503 and answer.getheader("Connection") == "close" and b"shutting_down" in answer.read(), "drain-refuses", str(answer.status))
        probes.request("GET", "/readyz")
        answer = probes.getresponse()
        expect(answer.status == 503 and answer.getheader("Connection") == "close", "drain-not-ready", str(answer.status))
        answer = whole.getresponse()
        expect(answer.status == 200 and answer.getheader("Connection") == "close", "drain-closes", "asked before, answered in the drain")
        answer.read()
        expect(s.process.wait(5) == 0, "drain-ends", "once the last is answered")
    with Server(SCRIPT, "--drain-timeout", 1) as s:
        streams = {path: ask(s, path, "answers long", stream=True) for path in PATHS}
        whole = ask(s, "/v1/chat/completions", "answers long")
        s.wait_for("vllm:num_requests_running", 5, 5)
        start, status = time.monotonic(), end(s)
        took = time.monotonic() - start
        expect(status == 0 and 0.9 < took < 5, "drain-cuts", f"status {status} after {took:.1f} s")
        for path, c in streams.items():
            expect("shutting" in json.dumps(events(c)[-1]), "drain-tells" + path, "the stream ends with an error")
        answer = whole.getresponse()
        expect(answer.status == 503 and b"shutting_down" in answer.read(), "drain-tells-whole", str(answer.status))
    with Server(SCRIPT, "--drain-timeout", 60) as s:
        c = ask(s, "/v1/completions", "answers long", stream=True)
        s.wait_for("vllm:num_requests_running", 1, 5)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        start, status = time.monotonic(), end(s)
        expect(status == 130 and time.monotonic() - start < 1, "second-signal", f"status {status} at once")


def admin(server, path, body=None):
    c = connect(server)
    c.request("POST", "/admin/" + path, json.dumps(body or {}), {"Content-Type": "application/json"})
    return c.getresponse().status


def changes():
    with Server(SCRIPT, "--drain-timeout", 10) as s:
        version = json.loads(get(s, "/version"))
        commit = version["commit"]
        expect(commit is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", commit), "version", str(version))
        done = [admin(s, "cache/clear")]
        for level in ("requests", "none", "requests"):
            done.append(admin(s, "log-level", {"level": level}))
            ask(s, "/v1/chat/completions", "x").getresponse().read()
            time.sleep(0.2)  # the line comes behind the answer
        answers = sum(line["path"] == "/v1/chat/completions" for line in s.requests())
        expect(set(done) == {200} and answers == 2, "admin", f"{done}, {answers} lines of 3 answers")
        c = ask(s, "/v1/messages", "answers a while", stream=True)
        s.wait_for("vllm:num_requests_running", 1, 5)
        drained = admin(s, "drain")
        status, seen = s.process.wait(10), events(c)
        expect(drained == 200 and status == 0 and seen[-1][0] == "message_stop", "admin-drain", f"{drained}, status {status}, last event {seen[-1][0]}")


def refused(*flags, environment=None):
    done = subprocess.run([INVAR, "serve", *map(str, flags)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                          env=os.environ | (environment or {}))
    return done.returncode, done.stderr


def settings():
    status, text = refused(MODEL, "--host", "0.0.0.0", "--port", 0)
    expect(status == 2 and "key" in text, "bind-needs-a-key", text.strip())
    with Server(SCRIPT, "--host", "0.0.0.0", "--allow-unauthenticated") as s:
        expect("ok" in get(s, "/health"), "bind-allowed", s.url)
    status, text = refused(MODEL, "--host", "nowhere", environment={"INVAR_API_KEY": "k"})
    expect(status == 2 and "--host" in text, "bind-nowhere", text.strip())
    with Server(SCRIPT) as s:
        status, text = refused(MODEL, "--port", s.url.rsplit(":", 1)[1])
        expect(status == 6, "port-in-use", text.strip())
        log = (s.path / "log").read_text()
        expect(all(word in log for word in ("Claude Code", "Codex", "OpenCode", "SDK", "context 100000")), "start-up", "says how to point clients at it")
        (s.path / "config").write_text('max-queue = 0\nsequences = 1\nserved-model-name = ["one,two"]\nno-log = true\n')
        with Server(SCRIPT, "--config", s.path / "config") as other:
            names = [m["id"] for m in json.loads(get(other, "/v1/models"))["data"]]
            first = ask(other, "/v1/chat/completions", "x").getresponse()
            expect(first.status == 200, "config-free", f"{first.status} {first.read()}: a sequence is free")
            busy = ask(other, "/v1/chat/completions", "answers long")
            other.wait_for("vllm:num_requests_running", 1, 5)
            answer = ask(other, "/v1/chat/completions", "x").getresponse()
            body = answer.read()
            expect(names == ["m"] and answer.status == 429 and b"try again in" in body and answer.getheader("Retry-After"), "config", f"{names} {answer.status} {body}")
            busy.close()
    status, text = refused(environment={"HOME": "/nonexistent", "XDG_CACHE_HOME": ""})
    expect(status == 2 and "make demo" in text, "no-model", text.strip())


def log_lines():
    with Server(SCRIPT) as s:
        secret = "a most private sentence"
        ask(s, "/v1/chat/completions", secret).getresponse().read()
        ask(s, "/v1/messages", secret, stream=True).getresponse().read()
        ask(s, "/v1/chat/completions", secret, temperature="warm").getresponse().read()
        time.sleep(0.2)
        lines, text = sorted(s.requests(), key=lambda x: x["status"]), (s.path / "log").read_text()
        fields = {"request_id", "path", "status", "prompt_tokens", "cached_tokens", "answer_tokens", "finish", "queue_s", "seconds"}
        expect(len(lines) == 3 and fields <= set(lines[0]) and lines[2]["status"] == 400 and secret not in text and "Hello." not in text,
               "log", f"{len(lines)} lines, no content" if "Hello." not in text else text)


def settled(server):
    """Whether all requests ended, and what the process holds then."""
    quiet = server.wait_for("vllm:num_requests_running", 0, 5) and server.wait_for("vllm:num_requests_waiting", 0, 5)
    quiet = server.wait_for("invar_http_connections", 1, 5) and quiet  # the one that asks
    time.sleep(0.3)
    return quiet, limits_of(server.process)


def visitors():
    """1,000 clients that come and go at random, in every state, in all APIs."""
    rng = random.Random(11)
    with Server(SCRIPT, "--sequences", 8, "--max-queue", 2000, "--io-threads", 4) as s:
        def visit(count):
            mine = []
            for _ in range(count):
                path = rng.choice(list(PATHS))
                try:
                    c = ask(s, path, rng.choice(["reads long", "answers long", "hello"]), stream=rng.random() < 0.7)
                    if rng.random() < 0.3:
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    mine.append(c)
                except OSError:
                    pass
                if len(mine) > 10:
                    mine.pop(rng.randrange(len(mine))).close()
            for c in mine:
                c.close()
        visit(100)
        quiet, before = settled(s)
        threads = [threading.Thread(target=visit, args=(250,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        quiet_again, after = settled(s)
        expect(quiet and quiet_again and after[1] <= before[1] and after[2] == before[2] and after[0] < before[0] + 32768, "visitors",
               f"KiB, descriptors, threads: {before} before, {after} after 1000 visits")


def main():
    isolate()
    for part in (settings, log_lines, signs_of_life, cancels, the_end, changes, visitors):
        part()
    finish()


main()
