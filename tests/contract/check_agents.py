"""The coding agents people use, against the server on a script: each is given a task, calls its shell tool once, reads the
result and ends with a text.  The sum is in no prompt; it comes from the shell alone."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import MODULES, Server, call, expect, finish, isolate, npm_ready, skip, thinking_or_not

TASK = "Use your shell tool to print the sum of 4700 and 11, then tell me the sum."
COMMAND = "echo sum=$((4700+11))"
DONE = "The sum is 4711, and that is all."


def script(tool, **arguments):
    return [
        *thinking_or_not({"match": ["<tool_response>", "sum=4711"], "text": DONE}),
        *thinking_or_not({"match": [f"\"{tool}\"", "4700 and 11"], "times": 1, "text": "I ask the shell.\n" + call(tool, **arguments)}),
        *thinking_or_not({"text": "A sum"}),
    ]


def run(command, home, **environment):
    clean = {"PATH": f"{MODULES.parent / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "TERM": "xterm", **environment}
    work = home / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run([str(c) for c in command], cwd=work, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def judge(name, server, path, done):
    """The agent has said the sum, and the server has seen the call and what followed it."""
    lines = [x for x in server.requests(path) if x.get("status") == 200]
    ends = [x.get("finish") for x in lines]
    good = done.returncode == 0 and DONE in done.stdout and "calls" in ends and "stop" in ends
    why = f"status {done.returncode}, requests ended {ends}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    cached = max((x.get("cached_tokens", 0) for x in lines), default=0)
    expect(good, name, f"{len(lines)} requests, up to {cached} tokens cached" if good else why)


def claude_code(home):
    program = MODULES / "@anthropic-ai/claude-code-linux-x64/claude"
    for name, flags in (("claude-code", []), ("claude-code-bare", ["--bare"])):
        with Server(script("Bash", command=COMMAND, description="Adds.")) as server:
            done = run([program, *flags, "-p", TASK, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash", "--model", "m"],
                       home, IS_SANDBOX="1", ANTHROPIC_BASE_URL=server.url, ANTHROPIC_AUTH_TOKEN="k", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
                       DISABLE_AUTOUPDATER="1", DISABLE_TELEMETRY="1", DISABLE_ERROR_REPORTING="1", CLAUDE_CODE_ATTRIBUTION_HEADER="0",
                       CLAUDE_CODE_MAX_CONTEXT_TOKENS="100000", CLAUDE_CODE_AUTO_COMPACT_WINDOW="100000",
                       CLAUDE_CODE_MAX_OUTPUT_TOKENS="4096", CLAUDE_CODE_MAX_RETRIES="2", API_TIMEOUT_MS="60000")
            judge(name, server, "/v1/messages", done)


def codex(home):
    program = next((MODULES / "@openai").glob("codex-linux-x64/vendor/*/bin/codex"))
    with Server(script("exec_command", cmd=COMMAND)) as server:
        folder = home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(f"""model = "m"
model_provider = "local"
web_search = "disabled"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.local]
name = "local"
base_url = "{server.url}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
stream_idle_timeout_ms = 30000
request_max_retries = 1
stream_max_retries = 1
""")
        done = run([program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK],
                   home, CODEX_HOME=str(folder), LOCAL_KEY="k")
        judge("codex", server, "/v1/responses", done)


def opencode(home):
    program = MODULES / "opencode-linux-x64/bin/opencode"
    for api, package, path in (("chat", "@ai-sdk/openai-compatible", "/v1/chat/completions"), ("messages", "@ai-sdk/anthropic", "/v1/messages"),
                               ("responses", "@ai-sdk/openai", "/v1/responses")):
        own = home / api
        folder = own / ".config/opencode"
        folder.mkdir(parents=True)
        with Server(script("bash", command=COMMAND, description="Adds.")) as server:
            model = {"tool_call": True, "reasoning": True, "limit": {"context": 100000, "output": 4096}}
            (folder / "opencode.json").write_text(json.dumps({
                "autoupdate": False, "share": "disabled", "enabled_providers": ["local"], "model": "local/m", "small_model": "local/m",
                "provider": {"local": {"npm": package, "options": {"baseURL": server.url + "/v1", "apiKey": "k"}, "models": {"m": model}}}}))
            done = run([program, "run", "--format", "json", "-m", "local/m", TASK], own, OPENCODE_DISABLE_AUTOUPDATE="1",
                       OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1", OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
                       OPENCODE_DISABLE_SHARE="1")
            judge("opencode-" + api, server, path, done)


def qwen_code(home):
    program = MODULES / ".bin/qwen"
    with Server(script("run_shell_command", command=COMMAND, is_background="false", description="Adds.")) as server:
        (home / ".qwen").mkdir()
        (home / ".qwen/settings.json").write_text(json.dumps({
            "security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True}}))
        done = run([program, "--yolo", "-p", TASK, "--output-format", "json"], home, OPENAI_API_KEY="k", OPENAI_BASE_URL=server.url + "/v1", OPENAI_MODEL="m")
        judge("qwen-code", server, "/v1/chat/completions", done)


AGENTS = {"claude-code": claude_code, "codex": codex, "opencode": opencode, "qwen-code": qwen_code}


def main():
    wanted = sys.argv[1:] or list(AGENTS)
    ready = shutil.which("node") and npm_ready()
    isolate()
    for name in wanted:
        if not ready:
            skip(name, "cannot be installed")
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            try:
                AGENTS[name](Path(home))
            except (subprocess.TimeoutExpired, RuntimeError, StopIteration, OSError) as e:
                out = getattr(e, "stdout", b"") or b""
                expect(False, name, f"{type(e).__name__}: {str(e)[:300]} {out[-1500:]}")
    finish()


main()
