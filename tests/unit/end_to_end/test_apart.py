"""Deadly programs: a compiled call that ends its process ends that only, and is told."""

import json
import textwrap
from pathlib import Path

import pytest

import ctk
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.end_to_end.isolation import ask_in_isolation
from ctk.toolkit.end_to_end.question import ProgramQuestion
from tests.helpers.cli import GOOD, write
from tests.helpers.cli import ctk as command
from tests.helpers.project import ROOT

SECOND_CALL = """
import os
import signal

def deadly(gm, how):
    calls = []
    def call(*args):
        calls.append(1)
        if len(calls) == 2:
            how()
        return gm(*args)
    return call

def eat():
    held = []
    while True:
        held.append(bytearray(b"x" * (64 << 20)))

def crash(gm, example_inputs):
    return deadly(gm, lambda: os.kill(os.getpid(), signal.SIGSEGV))

def end(gm, example_inputs):
    return deadly(gm, lambda: os._exit(3))

def hang(gm, example_inputs):
    return deadly(gm, signal.pause)

def gorge(gm, example_inputs):
    return deadly(gm, eat)
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path, "good.py", GOOD)


@pytest.mark.clean_process
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("crash", "signal"),
        pytest.param("end", "exit", marks=pytest.mark.slow),
        pytest.param("gorge", "memory", marks=pytest.mark.slow),
        pytest.param("hang", "timeout", marks=pytest.mark.slow),
    ],
)
def test_a_second_call_that_is_deadly_is_told_and_ends_nothing_else(
    how: str, kind: str, good: Path, tmp_path: Path
) -> None:
    """No graph shows it: each is called once."""
    target = write(tmp_path, "second.py", SECOND_CALL)
    question = ProgramQuestion(load_program(str(good)), f"{target}:{how}")
    found = ask_in_isolation(question, 20 if how == "hang" else 60, 2 << 30)
    assert found.judgement.verdict is Verdict.REPRODUCES
    assert found.judgement.signature is not None and found.judgement.signature.kind == kind
    assert found.layer == "runtime"


@pytest.mark.clean_process
def test_eager_that_is_deadly_is_no_question(tmp_path: Path) -> None:
    text = """
        import os
        def model():
            return lambda x: os._exit(3)
        def inputs():
            return (1,)
    """
    path = write(tmp_path, "deadly.py", textwrap.dedent(text))
    found = ask_in_isolation(ProgramQuestion(load_program(str(path))), 60, None)
    assert found.judgement.verdict is Verdict.INVALID
    assert "eager itself ends" in found.judgement.detail


@pytest.mark.slow
@pytest.mark.clean_process
def test_commands_ask_about_programs_in_children(good: Path, tmp_path: Path) -> None:
    target = write(tmp_path, "second.py", SECOND_CALL)
    said = command("check", good, "--target", f"{target}:crash", "--isolate", "--json")
    assert said.code == 1, said.out
    assert json.loads(said.out)["end_to_end"]["judgement"]["signature"]["signal"] == 11


@pytest.mark.slow
@pytest.mark.clean_process
def test_a_graph_that_hangs_is_not_asked_about_again(good: Path, tmp_path: Path) -> None:
    target = write(tmp_path, "t.py", SECOND_CALL.replace("len(calls) == 2", "True"))
    report = ctk.check(good, target=f"{target}:hang", timeout_seconds=4)
    assert report.judgement.verdict is Verdict.TIMEOUT and report.end_to_end is None


@pytest.mark.slow
@pytest.mark.clean_process
def test_a_backend_of_torch_is_a_layer_of_its_own() -> None:
    program = load_program(str(ROOT / "tests" / "dynamo_bugs" / "np_fix.py"))
    found = ask_in_isolation(ProgramQuestion(program, "eager"), 60, None)
    assert (found.layer, found.backend) == ("dynamo", "eager")
