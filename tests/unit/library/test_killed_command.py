"""kill -9 of a reduction that asks a command of the user, two questions at once, and --resume."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ctk.toolkit.oracle.repeated_runs import ASKED_FIRST
from tests.helpers.cli import write
from tests.helpers.warm_python import warm_python

PROGRAM = """
import torch

def f(x):
    for _ in range(10):
        x = torch.tanh(x) + 1
    y = torch.softmax(x, -1)
    for _ in range(10):
        y = torch.cos(y) * 2
    return torch.sigmoid(y)

def model():
    return f

def inputs():
    return (torch.linspace(-1, 1, 64).reshape(8, 8),)
"""

JOBS = 2

CHECK = """
import hashlib, json, os, sys, time
case, log = sys.argv[1], os.path.join(os.path.dirname(os.path.abspath(__file__)), "log")
manifest = json.load(open(os.path.join(case, "manifest.json")))
about = [manifest[name] for name in ("files", "config", "modes", "roles")]
key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
def say(what):
    file = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, f"{key} {what}\\n".encode())
    os.close(file)
say("begins")
time.sleep(0.06)
text = open(os.path.join(case, "graph.py")).read()
fails = text.count("tanh") > 4 and "softmax" in text and text.count("cos") > 3
say("fails" if fails else "passes")
sys.exit(3 if fails else 0)
"""


def started(words: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [warm_python().with_name("ctk"), *words],
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [4, 20])
def test_no_answered_question_is_asked_again(kill_at: int, tmp_path: Path) -> None:
    """Killed while the given case is asked again, and in the middle of the search."""
    program = write(tmp_path, "program.py", PROGRAM)
    check, log = write(tmp_path, "check.py", CHECK), tmp_path / "log"
    command = shlex.join([sys.executable, "-S", str(check)]) + " {case}"
    words = ["minify", str(program), "--command", command, "--jobs", str(JOBS)]
    words += ["--out", str(tmp_path / "out")]
    process, deadline = started(words), time.monotonic() + 120
    while len(asked(log)) <= kill_at:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(0.3)  # what the command does in a group of its own, it does to its end
    under_way = Counter(asked(log)[-2 * JOBS :])  # of each job one, and one that was not noted yet
    resumed = started([*words, "--resume"])
    said, _ = resumed.communicate(timeout=240)
    assert resumed.returncode == 1 and "(minimal)" in said, said
    keys = asked(log)
    for key, times in Counter(keys).items():
        is_repeated = key in (keys[0], keys[-1])  # the given case, the smallest as it is written
        assert times <= (ASKED_FIRST + 1 if is_repeated else 1) + under_way[key]


def asked(log: Path) -> list[str]:
    """Return which cases were asked about, in their order."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[0] for line in lines if line.endswith("begins")]
