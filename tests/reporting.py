"""The lines that tests/run counts."""
import sys

failures = []


def ok(name, remark=""):
    print(f"ok {name}  {remark}", flush=True)


def fail(name, why):
    failures.append(name)
    print(f"FAIL {name}  {why}", flush=True)


def skip(name, why):
    print(f"skip {name}  {why}", flush=True)


def expect(condition, name, remark):
    (ok if condition else fail)(name, remark)


def finish():
    sys.exit(bool(failures))
