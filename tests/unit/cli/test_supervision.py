"""What kills the process that works does not kill the command: it goes on, or says why not."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.cli import GOOD, Said, write
from tests.helpers.warm_python import warm_python

DEADLY = """
import os, signal, sys

def abort(gm, example_inputs):
    os.abort()

def leave(gm, example_inputs):
    os._exit(3)
"""

DYING_SCRIPT = """
import os, sys
import torch
import ctk

def die(gm):
    os.abort()

def f(x):
    return torch.relu(x) + 1

if sys.argv[1] == "compiling":
    with ctk.patch(custom_passes={"joint": [f"{__file__}:die"]}):
        torch.compile(f, backend="ctk")(torch.ones(3))
torch.compile(f, backend="ctk")(torch.ones(3))
os.abort()
"""

DEADLY_CANDIDATE = """
import os
import torch

def compile(gm, example_inputs):
    '''Wrong wherever there is a relu; kills the process when two or three calls are left.'''
    calls = [node for node in gm.graph.nodes if node.op.startswith("call")]
    if len(calls) in (2, 3):
        os.abort()
    def call(*args):
        wrong = any("relu" in str(node.target) for node in calls)
        return tuple(value + wrong for value in gm.forward(*args))
    return call
"""

LATE = """
import atexit

def compile(gm, example_inputs):
    atexit.register(print, "too late")
    return gm.forward
"""

SIX_CALLS = """
import torch

def model():
    return lambda x: torch.relu(x.sin().cos()).exp().tanh().neg()

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""

STUCK = """
import signal, threading
import torch

def model():
    return torch.nn.ReLU()

def inputs():
    while True:  # as a pool that waits for its processes
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""


ORACLES = """
import os

def leaves(case):
    os._exit(3)

def closes(case):
    os.close(1)
    os.close(2)
    return True

def raises(case):
    os.close(1)
    os.close(2)
    raise ValueError("too bad")
"""


def start(*arguments: object, folder: Path) -> "subprocess.Popen[str]":
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [warm_python().with_name("ctk"), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "WARM_CHILDREN": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ctk(*arguments: object, folder: Path) -> Said:
    process = start(*arguments, folder=folder)
    out, err = process.communicate(timeout=120)
    return Said(process.returncode, out, err)


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in (folder / "tmp").iterdir() if path.name.startswith("ctk-")]


@pytest.mark.parametrize("command", ["repro", pytest.param("check", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("target", "seen"), [("abort", "signal"), ("leave", "exit")])
def test_a_deadly_compile_is_asked_again_in_a_child(
    command: str, target: str, seen: str, good: Path, tmp_path: Path
) -> None:
    deadly = write(tmp_path, "deadly.py", DEADLY)
    said = ctk(command, good, "--target", f"{deadly}:{target}", "--json", folder=tmp_path)
    assert said.code == 1, said.out + said.err
    assert said.err.count("the command continues with --isolate") == 1
    (graph,) = said.data["graphs"]
    assert graph.get("judgement", graph)["signature"]["kind"] == seen
    assert not left_behind(tmp_path)


def test_a_candidate_that_kills_the_process_loses_nothing(tmp_path: Path) -> None:
    backend = write(tmp_path, "backend.py", DEADLY_CANDIDATE)
    program = write(tmp_path, "six.py", SIX_CALLS)
    options = ("--target", f"{backend}:compile", "--out", tmp_path / "small", "--json")
    said = ctk("minify", program, *options, folder=tmp_path)
    assert said.code == 1, said.out + said.err
    assert said.err.count("the command continues with --isolate --resume --out") == 1
    assert json.loads((tmp_path / "small" / "diagnosis.json").read_text())["state"] == "finished"
    assert not left_behind(tmp_path)


def test_without_children_the_answer_says_what_happened(good: Path, tmp_path: Path) -> None:
    deadly = write(tmp_path, "deadly.py", DEADLY)
    options = ("--target", f"{deadly}:abort", "--no-isolate", "--json")
    said = ctk("repro", good, *options, folder=tmp_path)
    assert said.code == said.data["exit_code"] == 125
    assert said.data["answer"].startswith("cannot tell: the process was killed by signal 6")


def test_an_oracle_that_ends_the_process_is_named(good: Path, tmp_path: Path) -> None:
    oracle = write(tmp_path, "check.py", ORACLES)
    said = ctk("minify", good, "--oracle", f"{oracle}:leaves", "--out", "out", folder=tmp_path)
    assert said.code == 125
    assert said.first == f"cannot tell: the oracle {oracle}:leaves has ended the process (status 3)"
    assert "--command 'python check.py {case}'" in said.out
    assert "ctk repro" not in said.out
    assert "--isolate" not in said.out + said.err, "the oracle runs in this process all the same"


def test_an_oracle_that_closes_the_streams_keeps_no_answer_back(good: Path, tmp_path: Path) -> None:
    oracle = write(tmp_path, "check.py", ORACLES)
    asked = ("minify", good, "--oracle", f"{oracle}:closes", "--out", "out")
    said = ctk(*asked, folder=tmp_path)
    assert said.code == 1, said.err
    assert said.first.startswith("failure: ") and f"{oracle}:closes decides" in said.first
    wrong = ctk(*asked[:-1], "other", "--oracle", f"{oracle}:raises", folder=tmp_path)
    assert wrong.code == 2
    assert "raised ValueError: too bad" in wrong.err


def test_a_side_that_kills_the_process_has_an_answer(good: Path, tmp_path: Path) -> None:
    deadly = write(tmp_path, "deadly.py", DEADLY)
    said = ctk("diff", good, "-t", "eager", "-t", f"{deadly}:abort", "--json", folder=tmp_path)
    assert said.code == said.data["exit_code"] == 125
    assert said.data["answer"].startswith("cannot tell: the process was killed by signal 6")


def test_the_answer_of_a_killed_command_tells_how_to_go_on(good: Path, tmp_path: Path) -> None:
    deadly = write(tmp_path, "deadly.py", DEADLY)
    options = ("--target", f"{deadly}:abort", "--no-isolate", "--out", "kept")
    said = ctk("minify", good, *options, folder=tmp_path)
    assert said.code == 125
    assert f"Results so far: {tmp_path / 'kept'}\n" in said.out
    assert "--no-isolate --out kept --resume\n" in said.out


def test_what_prints_after_the_answer_spoils_no_document(good: Path, tmp_path: Path) -> None:
    late = write(tmp_path, "late.py", LATE)
    said = ctk("repro", good, "--target", f"{late}:compile", "--json", folder=tmp_path)
    assert said.data["exit_code"] == said.code == 0
    assert "too late" in said.err


def test_a_script_that_dies_while_it_compiles_leaves_its_case(tmp_path: Path) -> None:
    script = write(tmp_path, "script.py", DYING_SCRIPT)
    said = ctk("run", "--json", script, "compiling", folder=tmp_path)
    assert said.code == 1, said.out + said.err
    (failure,) = said.data["failures"]
    assert "killed by signal 6 (Aborted) while compiling it" in failure["summary"]
    assert json.loads(Path(failure["case"], "manifest.json").read_text())


def test_a_script_that_dies_later_is_no_failure_of_a_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, "script.py", DYING_SCRIPT)
    monkeypatch.setenv("CTK_RING", "2")
    said = ctk("run", script, "later", folder=tmp_path)
    assert said.code == 134, said.out + said.err
    assert said.first.startswith("ctk: the script ended after 1 graph had been compiled and comp")
    assert re.search(r"the newest call: ctk repro \S+/ring/graph0_call\d+", said.out)


def test_a_usage_error_and_help_have_their_own_exit_codes(tmp_path: Path) -> None:
    assert ctk("repro", "--nonsense", folder=tmp_path).code == 2
    assert ctk("repro", "--help", folder=tmp_path).code == 0
    assert ctk("repro", tmp_path / "nothing", folder=tmp_path).code == 2


@pytest.mark.slow
def test_a_program_that_does_not_end_is_ended_by_sigterm(tmp_path: Path) -> None:
    process = start("check", write(tmp_path, "stuck.py", GOOD + STUCK), folder=tmp_path)
    wait_for_the_child(tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 125
    assert out.startswith("cannot tell: interrupted; it did not end within")
    assert not left_behind(tmp_path)


def wait_for_the_child(folder: Path) -> None:
    """Wait until the working half has made its temporary folder, and a moment more."""
    deadline = time.monotonic() + 60
    while not left_behind(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(3)
