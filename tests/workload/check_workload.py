"""bench/workload.py against a server that answers by the two protocols and writes down what it was sent."""
import http.server
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench/workload.py"
REQUESTS = [{"conversation": c, "turn": t, "wait_s": 0.01, "prompt": list(range(10 * (t + 1))), "answer_tokens": 3} for c in (0, 1) for t in (0, 1)]


class Server(http.server.BaseHTTPRequestHandler):
    bodies = []  # (path, body)

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append((self.path, body))
        n = len(body["prompt"])
        if body.get("model") == "wrong":
            return self.send_error(404)
        if self.path == "/completion":
            events = [{"content": "x", "stop": False}] * 3 + [{"content": "", "stop": True, "timings": {"prompt_n": n - 4, "predicted_n": 3}}]
        else:
            usage = {"prompt_tokens": n, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
            events = [{"choices": [{"text": "x"}]}] * 3 + [{"choices": [], "usage": usage}]
        self.send_response(200)
        self.end_headers()
        for event in events:
            self.wfile.write(b": a comment\n\ndata: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


def run(folder, server, *flags):
    path = Path(folder) / "requests.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in REQUESTS))
    url = f"http://127.0.0.1:{server.server_port}"
    Server.bodies.clear()
    return subprocess.run([sys.executable, SCRIPT, path, "--url", url, *flags], capture_output=True, text=True, timeout=60)


def ours(folder, lengths):
    path = Path(folder) / "ours.json"
    spread = {"p50": 0.5, "p95": 0.5, "max": 0.5}
    turns = [{"conversation": r["conversation"], "turn": r["turn"], "prompt_tokens": n, "prompt_rows": 1, "ttft_s": 0.5} for r, n in zip(REQUESTS, lengths)]
    path.write_text(json.dumps({"workload": {"own_answers": False}, "finished": 4, "prompt_tokens": sum(lengths), "prompt_rows": 4321, "answer_tokens": 12,
                                "wall_s": 2.0, "answer_tok_s": 6.0, "ttft_s": spread, "tpot_s": spread, "turns": turns}))
    return path


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = 0

    def check(name, ok, why):
        nonlocal failed
        failed += not ok
        print(f"{'ok' if ok else 'FAIL'} workload.{name}  {'' if ok else why}")

    with tempfile.TemporaryDirectory() as folder:
        for api, path, processed in (("openai", "/v1/completions", 40), ("llama", "/completion", 44)):
            done = run(folder, server, "--api", api, "--json")
            j = json.loads(done.stdout)
            check(f"{api}.counts", (j["finished"], j["prompt_tokens"], j["prompt_rows"], j["answer_tokens"]) == (4, 60, processed, 12), done.stdout)
            check(f"{api}.times", all(t["ttft_s"] > 0 and t["tpot_s"] >= 0 for t in j["turns"]) and j["wall_s"] >= 0.02, done.stdout)
            sent = [(p, b["prompt"]) for p, b in Server.bodies]
            check(f"{api}.sent", sorted(sent) == sorted((path, r["prompt"]) for r in REQUESTS), sent)
        done = run(folder, server, "--ours", ours(folder, [10, 20, 10, 20]), "--name", "other")
        check("table", done.returncode == 0 and "| of these processed | 4,321 | 40 |" in done.stdout, done.stdout + done.stderr)
        done = run(folder, server, "--ours", ours(folder, [10, 20, 10, 21]))
        check("other-prompts", done.returncode == 2 and not Server.bodies, done.stderr)
        done = run(folder, server, "--model", "wrong")
        check("refused", done.returncode == 1 and "404" in done.stderr, done.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
