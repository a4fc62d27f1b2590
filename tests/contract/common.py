"""What the contract tests share: the clients at the versions pinned here, a server on a script of answers, and the lines
that tests/run counts.  Clients and servers live in a network of their own where the system allows it."""
import ctypes
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))
from reporting import expect, fail, failures, finish, ok, skip  # noqa: E402, F401

INVAR = ROOT / "build/invar"
MODEL = ROOT / "tests/data/vehicle-trial-q8_0.gguf"
PLACE = ROOT / "build/contract"
MODULES = PLACE / "node_modules"
PYTHON = PLACE / "venv/bin/python"


def prepared(mark, wanted, install):
    """Installs once for each content of `wanted`; False if that is not possible."""
    if mark.exists() and mark.read_text() == wanted:
        return True
    PLACE.mkdir(parents=True, exist_ok=True)
    if not install():
        return False
    mark.write_text(wanted)
    return True


def quiet(*command):
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0


def npm_ready():
    # Not `npm ci`: it wants the lock to name optional packages of systems that the registry may lack.
    def install():
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, PLACE)
        return shutil.which("npm") and quiet("npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", PLACE)
    return prepared(PLACE / "npm.json", (HERE / "package-lock.json").read_text(), install)


def python_ready():
    def install():
        return quiet(sys.executable, "-m", "venv", PLACE / "venv") and quiet(
            PLACE / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", HERE / "requirements.txt")
    return prepared(PLACE / "python.txt", (HERE / "requirements.txt").read_text(), install)


def isolate():
    """A network with nothing but loopback in it, if the system lets us make one: nothing that a client wants leaves this machine."""
    clone_newuser, clone_newnet, set_flags, up = 0x10000000, 0x40000000, 0x8914, 0x1 | 0x40
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newnet) and libc.unshare(clone_newuser | clone_newnet):
        return False
    if Path("/proc/self/uid_map").read_text() == "":
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, set_flags, struct.pack("16sH14s", b"lo", up, b""))
    return True


class Server:
    """`invar serve` over a script (a list of lines, see src/engine/scripted.h), or over the model itself without one."""

    def __init__(self, script, *flags, context=100000):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.flags = [*map(str, flags)]
        if script is not None:
            (self.path / "script").write_text("".join(json.dumps(line) + "\n" for line in script))
            self.flags += ["--engine", f"script:{self.path / 'script'}", "--context", str(context)]

    def __enter__(self):
        self.log = open(self.path / "log", "wb")
        self.process = subprocess.Popen([INVAR, "serve", MODEL, "--port", "0", "--served-model-name", "m", *self.flags],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(r"listening on (http://\S+)", (self.path / "log").read_text())
            if found:
                self.url = found[1]
                try:
                    if urllib.request.urlopen(self.url + "/health", timeout=5).status == 200:
                        return self
                except OSError:
                    pass
            time.sleep(0.02)
        raise RuntimeError("the server does not come up: " + (self.path / "log").read_text()[-1000:])

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def requests(self, path=""):
        """The lines of the log for a path."""
        lines = [json.loads(x) for x in (self.path / "log").read_text().splitlines() if x.startswith("{")]
        return [x for x in lines if path in x["path"]]

    def metric(self, name):
        text = urllib.request.urlopen(self.url + "/metrics", timeout=5).read().decode()
        return float(re.search(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.M)[1])

    def wait_for(self, name, value, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.metric(name) == value:
                return True
            time.sleep(0.02)
        return False


def limits_of(process):
    status = open(f"/proc/{process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]), len(os.listdir(f"/proc/{process.pid}/fd")), int(re.search(r"Threads:\s+(\d+)", status)[1])


def call(name, **arguments):
    """A tool call as the model of the tests writes it."""
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def thinking_or_not(line, thought="Let me see."):
    """The line as two: for a prompt that opens a thought, and for one that does not."""
    return [line | {"ends": "<think>\n", "text": f"{thought}\n</think>\n\n{line['text']}"}, line]
