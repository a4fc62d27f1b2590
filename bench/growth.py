#!/usr/bin/env python3
"""How the time of a token grows with the context, with the rows of a pass, with threads and with the model.

    bench/growth.py measure OUT.json MODEL.gguf... [--depths 0,4096,16384,32768,65536] [--rows 1,2,4,8,16,32] [--threads 1,2]
    bench/growth.py draw OUT.json bench/growth.svg

`measure` runs `invar bench` on each model (all depths with the first one) and keeps its JSON; `draw` makes four small plots.
"""
import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, TOP = 340, 220, 64, 34


def bench(a, model, *flags):
    command = [a.invar, "bench", model, "-r", str(a.repeats), "--json", *flags]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def ms_per_token(result):
    return 1e3 / result["tok_s"]["median"]


def measure(a):
    first, points = a.models[0], {"context": [], "rows": [], "threads": [], "model": []}
    most = str(max(map(int, a.threads.split(","))))
    j = bench(a, first, "-p", "0", "-n", "8", "-d", a.depths, "--blank", "--threads", most)
    machine = j["machine"]
    points["context"] = [(r["depth"], ms_per_token(r)) for r in j["results"]]
    j = bench(a, first, "-p", "0", "-n", "0", "--verify", a.rows, "--threads", most)
    points["rows"] = [(int(r["test"][2:]), ms_per_token(r) * int(r["test"][2:])) for r in j["results"]]
    for threads in a.threads.split(","):
        j = bench(a, first, "-p", "0", "-n", "16", "--threads", threads)
        points["threads"].append((int(threads), ms_per_token(j["results"][0])))
    for model in a.models:
        j = bench(a, model, "-p", "0", "-n", "16", "--threads", most)
        points["model"].append((j["results"][0]["bytes_per_token"] / 1e9, ms_per_token(j["results"][0])))
    points["model"].sort()
    Path(a.out).write_text(json.dumps({"cpu": machine["cpu"], "read_gb_s": machine["read_gb_s"], "points": points}, indent=1) + "\n")


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def plot(x0, y0, title, x_label, points):
    high_x, high_y = max(x for x, _ in points) * 1.05 or 1, max(y for _, y in points) * 1.15
    at = lambda x, y: (x0 + LEFT + x / high_x * (WIDTH - LEFT - 20), y0 + TOP + (1 - y / high_y) * (HEIGHT - TOP - 44))
    left, bottom = at(0, 0)
    parts = [f'<text x="{left}" y="{y0 + 20}" font-weight="bold">{title}</text>', f'<text x="{x0 + WIDTH / 2}" y="{y0 + HEIGHT - 8}">{x_label}</text>']
    parts.append(f'<path d="M{left} {at(0, high_y)[1]} V{bottom} H{at(high_x, 0)[0]}" fill="none" stroke="#888"/>')
    for i in range(1, 4):
        value = high_y * i / 4
        parts.append(f'<text x="{left - 6}" y="{at(0, value)[1] + 4:.0f}" text-anchor="end">{number(value)}</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#0b62a4" stroke-width="2"/>')
    for x, y in points:
        cx, cy = at(x, y)
        parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3" fill="#0b62a4"/><text x="{cx:.1f}" y="{bottom + 14:.0f}" text-anchor="middle">{number(x)}</text>')
    return parts


def draw(a):
    j = json.loads(Path(a.json).read_text())
    plots = [("context", "ms per token by context", "positions"), ("rows", "ms per pass by rows", "rows, logits of all"),
             ("threads", "ms per token by threads", "threads"), ("model", "ms per token by model", "GB read for a token")]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{2 * HEIGHT + 24}" font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    for i, (key, title, label) in enumerate(plots):
        parts += plot(i % 2 * WIDTH, i // 2 * HEIGHT, title, label, j["points"][key])
    parts.append(f'<text x="{LEFT}" y="{2 * HEIGHT + 14}">{j["cpu"]}, reads {j["read_gb_s"]:.1f} GB/s</text></svg>')
    Path(a.svg).write_text("\n".join(parts) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    m = commands.add_parser("measure")
    m.add_argument("out")
    m.add_argument("models", nargs="+")
    m.add_argument("--depths", default="0,4096,16384,32768,65536")
    m.add_argument("--rows", default="1,2,4,8,16,32")
    m.add_argument("--threads", default="1,2")
    m.add_argument("--repeats", type=int, default=5)
    m.add_argument("--invar", default=str(ROOT / "build/invar"))
    m.set_defaults(run=measure)
    d = commands.add_parser("draw")
    d.add_argument("json")
    d.add_argument("svg")
    d.set_defaults(run=draw)
    a = p.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
