"""A test of several phases: its outcome is the first failure that it does not expect."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.ci.outcome import FILE, Outcome, read_outcome
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.operations.report.as_json import read_json, write_json
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.processes.link import Work
from ctk.toolkit.testing import judged_test
from ctk.toolkit.testing.diagnosis import Diagnosed
from ctk.toolkit.testing.judged_test import Blame, JudgedTest
from ctk.toolkit.testing.options import Marker, SuiteOptions
from ctk.toolkit.testing.suite_watch import Seen
from ctk.toolkit.watch.watch_session import Failure
from tests.helpers.case_folders import linear_case

WRONG = Signature("accuracy", output="out0")


@pytest.fixture
def test(tmp_path: Path) -> JudgedTest:
    options = SuiteOptions("check", "", tmp_path / "out", False, 60.0, 4)
    return JudgedTest("t.py::a", "t.py:1", Marker(), options)


def judge(test: JudgedTest, *names: str, unchecked: Sequence[str] = ()) -> Blame | None:
    """Judge a phase in which graphs of these names fail, and one call is compared."""
    folder = test.options.out / "case"
    folder.mkdir(parents=True, exist_ok=True)
    failures = tuple(Failure(n, folder, f"{n} is wrong", signature=WRONG) for n in names)
    return test.judge(Seen(1, 1, failures, tuple(unchecked)), None, 0.5)


def outcome(test: JudgedTest) -> Outcome:
    return read_outcome(test.folder)


def test_a_later_phase_keeps_the_diagnosis(test: JudgedTest, monkeypatch: pytest.MonkeyPatch):
    search = Search(
        Judgement(Verdict.REPRODUCES, WRONG), Culprit("joint", "cse", Veto()), confirmed=True
    )
    asked: list[Path] = []

    def diagnose(case: Path, out: Path, seconds: float) -> Diagnosed:
        asked.append(case)
        out.mkdir(parents=True)
        write_json(Diagnosis(linear_case(), search, 0.5), out)
        return Diagnosed(out, read_json(out))

    monkeypatch.setattr(judged_test, "diagnose_case", diagnose)
    test.options = replace(test.options, diagnose=True)
    assert judge(test, "graph0") is not None
    diagnosed = outcome(test)
    assert diagnosed.confirmed and diagnosed.culprit == "joint/cse"
    for work in (Work("compiling it", ""), Work("", "")):
        test.note_work("case", work, None, "ctk")
    assert judge(test) is None
    after = outcome(test)
    assert (after.culprit, after.key) == (diagnosed.culprit, diagnosed.key)
    assert (after.graphs, after.seconds) == (2, 1.0)
    assert judge(test, "graph1") is not None
    assert outcome(test).headline == diagnosed.headline and len(asked) == 1


def test_an_expected_failure_hides_no_later_one(test: JudgedTest):
    expected = judge(test, "graph0")
    assert expected is not None
    test.accept(expected.outcome, "https://example.org/1")
    judge(test)
    assert outcome(test).known == "https://example.org/1"
    judge(test, "graph1")
    assert "graph1" in outcome(test).headline and not outcome(test).known


def test_a_partly_compared_test_names_the_rest(test: JudgedTest):
    judge(test, unchecked=["graph1: its inputs cannot be copied"])
    assert outcome(test).verdict is Verdict.PASSES
    assert outcome(test).headline == (
        "1 call compared with eager: no failure; not compared: graph1: its inputs cannot be copied"
    )


def test_a_call_that_could_not_be_compared_is_no_verdict(test: JudgedTest):
    test.judge(Seen(unchecked=("graph0: its inputs cannot be copied",)), None, 0.5)
    assert outcome(test).verdict is Verdict.INVALID
    assert outcome(test).headline == "not compared: graph0: its inputs cannot be copied"


def test_an_interrupt_keeps_the_failure_of_an_earlier_phase(test: JudgedTest):
    test.note_work("case", Work("compiling it", ""), None, "ctk")
    test.forget_pending()
    assert not (test.folder / FILE).exists()
    judge(test, "graph0")
    test.note_work("case", Work("compiling it", ""), None, "ctk")
    test.forget_pending()
    assert outcome(test).headline.startswith("graph0 fails")


def test_hostile_texts_are_one_printable_line(test: JudgedTest):
    blame = judge(test, "graph0\x1b[2J\nno failure", "graph1\x1b[2J")
    assert blame is not None and all(line.isprintable() for line in blame.lines)
