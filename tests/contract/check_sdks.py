"""The official SDKs of OpenAI and Anthropic, Python and JavaScript, against the server on a script."""
import os
import shutil
import subprocess

from common import HERE, MODULES, PYTHON, Server, fail, failures, finish, isolate, npm_ready, python_ready, skip
from sdk_script import SCRIPT


def run(name, command, server, **environment):
    """Passes on what the program says; it counts itself."""
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                          env={"PATH": os.environ["PATH"], "HOME": str(server.path), "URL": server.url, **environment})
    print(done.stdout, end="", flush=True)
    failures.extend(line for line in done.stdout.splitlines() if line.startswith("FAIL"))
    if done.returncode or "ok " not in done.stdout:
        fail(name, f"status {done.returncode}: {done.stderr[-1500:]}")
    if not server.wait_for("vllm:num_requests_running", 0, 2):
        fail(name, "requests go on after their clients have left")


def main():
    python, node = python_ready(), shutil.which("node") and npm_ready()
    isolate()
    with Server(SCRIPT) as server:
        if python:
            run("sdk-python", [PYTHON, HERE / "sdk.py"], server, PYTHONDONTWRITEBYTECODE="1")
        else:
            skip("sdk-python-openai", "cannot be installed")
            skip("sdk-python-anthropic", "cannot be installed")
        if node:
            run("sdk-js", ["node", HERE / "sdk.mjs"], server, MODULES=str(MODULES))
        else:
            skip("sdk-js-openai", "cannot be installed")
            skip("sdk-js-anthropic", "cannot be installed")
    finish()


main()
