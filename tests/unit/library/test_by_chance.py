"""Questions that chance answers: asked again, by a run that goes on too; nothing is lost."""

import json
import os
from itertools import cycle
from pathlib import Path

import pytest

import ctk
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.history import read_history
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.answers.journal import JOURNAL
from ctk.toolkit.oracle.repeated_runs import ASKED_PASSING, FailureRate
from tests.helpers.cli import write
from tests.helpers.own_oracles import PROGRAM, calls, has_softmax


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return write(tmp_path, "program.py", PROGRAM)


def is_given(case: Case) -> bool:
    return len(calls(case)) == 7


def by_turns(case: Case) -> bool:
    """Answer as the letters of a file say, the last of them for ever: yes, no, or Ctrl-C (c).

    What a function holds itself may not change between two runs of ctk.
    """
    file = Path(os.environ["ANSWERS"])
    answers = file.read_text()
    file.write_text(answers[1:] or answers)
    with file.with_suffix(".asked").open("a") as asked_file:
        asked_file.write("given " if is_given(case) else "smaller ")
    if answers[0] == "c":
        raise KeyboardInterrupt
    return answers[0] == "y" and has_softmax(case)


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file whose letters are the answers of `by_turns`; beside it what was asked."""
    monkeypatch.setenv("ANSWERS", str(tmp_path / "letters.txt"))
    return tmp_path / "letters.txt"


def test_a_run_that_ends_between_the_first_questions_loses_none(
    program: Path, answers: Path, tmp_path: Path
) -> None:
    answers.write_text("nyycy")
    with pytest.raises(KeyboardInterrupt):
        ctk.minify(program, oracle=by_turns, out=tmp_path / "out")
    found = ctk.minify(program, oracle=by_turns, out=tmp_path / "out", resume=True)
    assert found.reduction is not None and found.reduction.flakiness is not None
    assert found.reduction.flakiness.given == FailureRate(20, 19)
    asked = answers.with_suffix(".asked").read_text().split()
    assert asked[:21] == ["given"] * 21  # the 20 answers, and the one that never came
    assert asked[21] == "smaller"


def test_going_on_keeps_what_is_known_even_if_nothing_fails_any_more(
    program: Path, answers: Path, tmp_path: Path
) -> None:
    answers.write_text("ny")
    out = tmp_path / "out"
    ended = ctk.minify(program, oracle=by_turns, out=out, max_questions=2)
    assert ended.reduction is not None
    lines = (out / JOURNAL).read_text()
    answers.write_text("n")
    again = ctk.minify(program, oracle=by_turns, out=out, resume=True)
    assert again.reduction is not None
    assert (out / JOURNAL).read_text().startswith(lines)
    assert json.loads((out / "diagnosis.json").read_text())["verdict"] == "reproduces"


def test_the_folder_of_an_earlier_run_stays_where_nothing_fails(
    program: Path, answers: Path, tmp_path: Path
) -> None:
    answers.write_text("nncn")
    out, said = tmp_path / "out", list[str]()

    def say(message: str, done: int | None = None, total: int | None = None) -> None:
        said.append(message)

    with pytest.raises(KeyboardInterrupt):
        ctk.minify(program, oracle=by_turns, out=out)
    found = ctk.minify(program, oracle=by_turns, out=out, resume=True, say=say)
    assert found.judgement.verdict is Verdict.PASSES
    asked = answers.with_suffix(".asked").read_text().split()
    assert asked == ["given"] * (ASKED_PASSING + 1)
    assert (out / JOURNAL).is_file()
    assert f"{out} is kept: an earlier run has its answers there" in said


def test_what_fails_by_chance_only_when_it_is_small_is_asked_about_again(
    program: Path, tmp_path: Path
) -> None:
    small = cycle((True, False))

    def oracle(case: Case) -> bool:
        return has_softmax(case) and (len(calls(case)) > 1 or next(small))

    found = ctk.minify(program, oracle=oracle, out=tmp_path / "out")
    assert found.reduction is not None and found.reduction.finished
    assert calls(found.reduction.best) == ["softmax"]
    assert found.reduction.flakiness is not None
    assert found.reduction.flakiness.error_probability <= 0.01
    asked = [line.question for line in read_history(tmp_path / "out")]
    assert asked == list(range(found.reduction.questions + 1))  # both searches count on


def raised_again(error: BaseException, program: Path, out: Path) -> Diagnosis:
    """Reduce with an oracle that raises as soon as the smallest case is asked about again."""
    seen: set[str] = set()

    def oracle(case: Case) -> bool:
        key = fingerprint(case)
        if key in seen and not is_given(case):
            raise error
        seen.add(key)
        return has_softmax(case)

    return ctk.minify(program, oracle=oracle, out=out)


def test_an_oracle_that_raises_when_it_is_asked_again_leaves_the_result(
    program: Path, tmp_path: Path
) -> None:
    ended = raised_again(ValueError("gone"), program, tmp_path / "raised").reduction
    assert ended is not None and (ended.finished, ended.reason) == (False, "error")
    assert calls(ended.best) == ["softmax"] and "gone" in ended.problems[-1]
    found = raised_again(KeyboardInterrupt(), program, tmp_path / "interrupted")
    assert found.is_interrupted and found.reduction is not None
    assert found.reduction.reason == "interrupted"
