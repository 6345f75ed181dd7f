"""Errors of ours on the way: the result so far is written and named, whatever raises."""

import errno
from pathlib import Path
from typing import Any

import pytest

import ctk
from ctk.compiler.errors import CtkError, StorageError
from ctk.toolkit.bisect import culprit_search as find
from ctk.toolkit.case.formats import growing_file
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.as_json import read_json
from ctk.toolkit.operations.session import case_reduction
from ctk.toolkit.operations.session import running_operation as at_work
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.repro.run import ReproRun, write_repro
from ctk.toolkit.repro.script import ScriptLimits
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write
from tests.helpers.killed_runs import BACKEND, PROGRAM


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What to reduce: 28 calls, 2 of them needed. Its repro is written, not run."""

    def write_only(
        case: Any, folder: Path, culprit: str | None, limits: ScriptLimits | None
    ) -> tuple[Path, ReproRun]:
        return write_repro(case, folder, culprit, limits), ReproRun(1, "", "reproduced")

    monkeypatch.setattr(
        "ctk.toolkit.operations.session.smallest_repro.write_verified_repro", write_only
    )
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "program.py", PROGRAM)
    write(tmp_path, "backend.py", BACKEND)
    return {"subject": "program.py", "target": "backend.py:compile", "out": "out"}


def break_down(monkeypatch: pytest.MonkeyPatch, after: int, error: Exception) -> None:
    """Let the executor raise from the question of a number on."""
    ask, asked = InProcess.ask, []

    def stumble(self: InProcess, *question: Any, **more: Any) -> Any:
        asked.append(question)
        if len(asked) >= after:
            raise error
        return ask(self, *question, **more)

    monkeypatch.setattr(InProcess, "ask", stumble)


def test_a_worker_that_is_lost_ends_with_the_best_so_far(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down(monkeypatch, 12, CtkError("the worker is lost"))
    found = ctk.diagnose(**subject)
    assert found.reduction is not None and found.minimal is not None
    assert found.reduction.reason == "error"
    assert 2 < found.reduction.nodes_after < 28
    assert "the oracle raised CtkError: the worker is lost" in found.problems
    kept = ctk.load_case(found.minimal, trust=True)
    assert str(kept.graph.graph) == str(found.reduction.graph.graph)
    record = read_json(Path("out"))
    assert (record.state, record.problems) == ("finished", found.problems)
    assert found.repro is not None and found.repro.is_file()


def test_the_command_says_so_with_125_and_how_to_go_on(
    subject: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down(monkeypatch, 9, ZeroDivisionError("a bug of ours"))
    words = ("program.py", "--target", "backend.py:compile", "--out", "out")
    said = command("minify", *words)
    assert said.code == 125, said.out
    assert "ZeroDivisionError: a bug of ours" in said.first
    assert "case: out/case" in said.out
    assert "to go on: ctk minify program.py --target backend.py:compile --out out --resume" in (
        said.out
    )
    assert "ZeroDivisionError: a bug of ours" in Path("out/ctk-bug.txt").read_text()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = command("minify", *words, "--resume")
    assert again.code == 1 and "28 -> 2 call nodes (minimal)" in again.first


def test_a_bisection_that_raises_leaves_no_culprit_and_the_case_is_reduced(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*arguments: object) -> object:
        raise ZeroDivisionError("in the bisection")

    monkeypatch.setattr(find, "_suspects", stumble)
    found = ctk.diagnose(**subject, thorough=True)
    assert found.judgement.verdict is Verdict.REPRODUCES
    assert found.search.culprit is None
    assert found.search.reason == "the bisection raised ZeroDivisionError: in the bisection"
    assert found.reduction is not None
    assert found.reduction.finished and found.reduction.nodes_after == 2
    assert found.search.reason in found.problems


@pytest.mark.parametrize("error", [StorageError("disk full"), OSError(28, "disk full")])
def test_a_save_that_fails_is_said_once_and_made_up_for_by_a_later_one(
    error: Exception,
    subject: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    save, tried = case_reduction.save_case, []

    def sometimes(*arguments: Any, **more: Any) -> Any:
        tried.append(arguments)
        if len(tried) in (2, 3):
            raise error
        return save(*arguments, **more)

    monkeypatch.setattr(case_reduction, "save_case", sometimes)
    found = ctk.minify(**subject)
    assert found.reduction is not None and found.minimal is not None
    assert found.reduction.finished and found.is_saved and not found.problems
    assert str(ctk.load_case(found.minimal, trust=True).graph.graph) == str(
        found.reduction.graph.graph
    )
    assert caplog.text.count("is not on disk") == 1


def test_a_repro_that_is_not_on_disk_is_said_with_125(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise StorageError("repro.py cannot be written: File too large")

    monkeypatch.setattr(
        "ctk.toolkit.operations.session.smallest_repro.write_verified_repro", refuse
    )
    said = command("minify", "program.py", "--target", "backend.py:compile", "--out", "out")
    assert said.code == 125, said.out
    assert "repro.py is not on disk: repro.py cannot be written: File too large" in said.out


def test_what_is_not_on_disk_in_the_end_is_said_with_125(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **more: object) -> object:
        raise StorageError("disk full")

    monkeypatch.setattr(case_reduction, "save_case", full)
    monkeypatch.setattr(at_work, "write_json", full)
    said = command("minify", "program.py", "--target", "backend.py:compile", "--out", "out")
    assert said.code == 125, said.out
    assert said.first.startswith("failure: 28 -> 2 call nodes")
    assert "problem: the smallest case is not on disk: disk full" in said.out
    assert "problem: diagnosis.json is not on disk: disk full" in said.out


def test_a_journal_that_cannot_be_written_is_a_problem_of_the_result(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(growing_file.os, "pwrite", full)
    found = ctk.bisect("program.py", target="backend.py:compile", out="out")
    assert found.search.judgement.fails and not found.is_saved
    assert found.problems == ("out/journal.jsonl cannot be written: disk full",)


def test_a_callback_of_the_user_that_raises_ends_with_the_best_so_far(
    subject: dict[str, Any],
) -> None:
    def stop(state: Any) -> None:
        if state.call_nodes < 20:
            raise StopIteration("small enough")

    found = ctk.minify(**subject, on_progress=stop)
    assert found.reduction is not None and found.minimal is not None
    assert found.reduction.reason == "error"
    assert 2 < found.reduction.nodes_after < 20
    assert "on_progress raised StopIteration: small enough" in found.problems
    assert str(ctk.load_case(found.minimal, trust=True).graph.graph) == str(
        found.reduction.graph.graph
    )


def test_the_failure_is_on_disk_before_its_culprit_is_looked_for(
    subject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(find, "_suspects", interrupt)
    said = command("diagnose", "program.py", "--target", "backend.py:compile", "--out", "out")
    assert said.code == 125
    record = read_json(Path("out"))
    assert (record.state, record.culprit) == ("failing", None)
    assert record.signature is not None and record.signature.kind == "accuracy"
    assert ctk.load_case("out/case", trust=True).signature == record.signature
    assert "The results so far are kept: out" in said.out
    assert "to go on: ctk diagnose program.py --target backend.py:compile --out out --resume" in (
        said.out
    )
    shown = command("show", "out")
    assert "fails (accuracy); not bisected yet" in shown.first
