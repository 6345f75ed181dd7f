"""What a diagnosis leaves behind when it is killed, when ctk itself fails, and what it asks."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.operations.report.as_json import Record, read_json
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.progress import Progress
from ctk.toolkit.repro.run import ReproRun
from tests.helpers.cli import BROKEN_PASS, write
from tests.helpers.cli import ctk as command

LONG = """
import torch

def model():
    return torch.nn.Sequential(
        *(torch.nn.Tanh() for _ in range(40)), torch.nn.ReLU(), *(torch.nn.Tanh() for _ in range(9))
    )

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""

SLOW = '''
import time

def wait(gm):
    """Changes nothing, slowly."""
    time.sleep(0.3)

def config():
    return {"custom_passes": {"joint": [f"{__file__}:negate_relu", f"{__file__}:wait"]}}
'''

RUN = "from ctk.toolkit.cli.main import main; main()"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path, "broken.py", LONG + BROKEN_PASS)


def is_smaller(record: Record) -> bool:
    """Return whether a reduction goes on, and has come to fewer nodes already."""
    nodes = record.call_nodes
    has_fewer = nodes is not None and nodes.after is not None and nodes.after < nodes.before
    return record.state == "reducing" and has_fewer


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_diagnosis_keeps_the_culprit_and_the_best_case_so_far(tmp_path: Path) -> None:
    program = write(tmp_path, "slow.py", LONG + BROKEN_PASS + SLOW)
    out = tmp_path / "found"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "diagnose", program, "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((out / "case" / "manifest.json").exists, process)
    wait_for(lambda: is_smaller(read_json(out)), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    record = read_json(out)
    assert record.culprit is not None
    assert (record.culprit.where, record.confirmed) == ("joint/negate_relu", True)
    shown = command("show", out)
    assert shown.code == 0
    assert "joint/negate_relu (confirmed)" in shown.first
    assert f"to go on: ctk diagnose {program} --out {out} --resume" in shown.out
    best = ctk.load_case(out / "minimal", trust=True)
    captured = ctk.load_case(out / "case", trust=True)
    assert len(best.graph.graph.nodes) < len(captured.graph.graph.nodes)
    assert best.signature is not None


@pytest.mark.parametrize(("name", "folder"), [("diagnose", "minimal"), ("minify", "case")])
def test_a_bug_of_ours_keeps_and_names_the_best_so_far(
    name: str, folder: str, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consider = Problem.consider
    improved: list[Case] = []

    def stumble(problem: Problem, candidate: Case | None, edit: Edit) -> bool | None:
        if improved:
            raise ZeroDivisionError("a bug of ours")
        found = consider(problem, candidate, edit)
        improved.extend([problem.best] if found else [])
        return found

    monkeypatch.setattr(Problem, "consider", stumble)
    out = tmp_path / "found"
    said = command(name, broken, "--out", out)
    assert said.code == 1
    assert "Traceback" not in said.out + said.err
    assert "ZeroDivisionError" not in said.first
    assert "ZeroDivisionError: a bug of ours, and was left out" in said.out
    assert f"log: {out / 'ctk-bug.txt'}" in said.out
    assert f"{out / folder}" in said.out
    assert f"to go on: ctk {name} {broken} --out {out} --resume" in said.out
    kept = ctk.load_case(out / folder, trust=True)
    assert len(kept.graph.graph.nodes) == len(improved[0].graph.graph.nodes)


def test_minify_and_diagnose_ask_the_same_questions(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ctk.toolkit.operations.session.smallest_repro.write_verified_repro",
        lambda case, folder, *_: (folder / "repro.py", ReproRun(1, "", "reproduced")),
    )
    asked: list[tuple[int, object]] = []
    ask = InProcess.ask

    def listen(self: InProcess, question: Question) -> Judgement:
        rest = (question.expected, question.veto)
        asked.append((len(question.case.graph.graph.nodes), rest))
        return ask(self, question)

    monkeypatch.setattr(InProcess, "ask", listen)
    ctk.diagnose(broken, out=tmp_path / "diagnosed", thorough=True)
    first, asked = asked, []
    torch.compiler.reset()
    ctk.minify(broken, out=tmp_path / "minified")
    assert asked
    assert asked == first[: len(asked)]  # diagnose asks for options afterwards
    options = [rest[-1] for _, rest in first[len(asked) :]]
    assert options and not any(veto != Veto() for veto in options)


def test_a_reduction_that_is_made_again_has_what_is_left_of_the_budget(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest case has another culprit than the whole: here that is only said."""
    whole = ctk.minify(broken, out=tmp_path / "whole").reduction
    assert whole is not None and whole.finished
    monkeypatch.setattr("ctk.toolkit.operations.minify._has_slipped", lambda before, after: True)
    for most in (whole.questions - 1, whole.questions + 2):
        asked: list[Progress] = []
        found = ctk.minify(
            broken, out=tmp_path / str(most), max_questions=most, on_progress=asked.append
        )
        assert found.reduction is not None
        assert (found.reduction.questions, found.reduction.reason) == (most, "questions")
        assert [state.questions for state in asked] == list(range(1, most + 1))
        assert sum(each.questions for each in found.reduction.statistics.values()) == most
    found = ctk.minify(broken, out=tmp_path / str(whole.questions - 1), resume=True)
    assert found.reduction is not None and found.reduction.finished


def test_the_record_on_disk_is_finished_in_the_end(broken: Path, tmp_path: Path) -> None:
    found = ctk.bisect(broken, out=tmp_path / "found")
    data = json.loads((tmp_path / "found" / "diagnosis.json").read_text())
    assert (found.state, data["state"]) == ("finished", "finished")
