"""Collecting outcomes: those of a run, diagnoses and failing cases without one, damaged files."""

import copy
import os
from pathlib import Path

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.ci.collect import collect_outcomes
from ctk.toolkit.ci.outcome import FILE, write_outcome
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.operations.report.as_json import write_json
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from tests.helpers.case_folders import linear_case
from tests.helpers.ci_outcomes import WRONG, failing, passing, write_outcomes


def write_diagnosis(folder: Path, verdict: Verdict = Verdict.REPRODUCES) -> None:
    seen = WRONG if verdict is Verdict.REPRODUCES else None
    culprit = Culprit("joint", "cse#2", Veto(), rewrite=1, index=1, rule="merge") if seen else None
    search = Search(Judgement(verdict, seen), culprit, confirmed=True, found_by="fuel")
    folder.mkdir(parents=True)
    write_json(Diagnosis(linear_case(), search, 0.5), folder)


def test_outcomes_in_the_order_of_their_folders(tmp_path: Path) -> None:
    write_outcomes(tmp_path / "run", failing("b"), passing("a", folder=None))
    found = collect_outcomes(tmp_path)
    assert [(each.test, each.folder) for each in found.outcomes] == [
        ("b", str(tmp_path / "run" / "test0")),
        ("a", None),
    ]
    assert not found.problems


def test_a_diagnosis_and_a_failing_case_count_by_their_folder(tmp_path: Path) -> None:
    write_diagnosis(tmp_path / "found")
    write_diagnosis(tmp_path / "healthy", Verdict.PASSES)
    failing_case = linear_case(signature=WRONG, graph=copy.deepcopy(linear_case().graph))
    last = [node for node in failing_case.graph.graph.nodes if node.op != "output"][-1]
    last.meta["stack_trace"] = '  File "net.py", line 7, in forward\n'
    save_case(failing_case, tmp_path / "my dumps" / "graph0")
    save_case(linear_case(), tmp_path / "my dumps" / "graph1")
    found = {each.test: each for each in collect_outcomes(tmp_path).outcomes}
    assert found.keys() == {"found", "healthy", "my dumps/graph0"}
    diagnosed, case = found["found"], found["my dumps/graph0"]
    assert (diagnosed.culprit, diagnosed.rule) == ("joint/cse#2", "merge")
    assert diagnosed.confirmed
    assert diagnosed.key == "ctk: accuracy: joint/cse: merge"
    assert found["healthy"].verdict is Verdict.PASSES
    assert case.key == "ctk: accuracy: in my dumps/graph0"
    assert case.place == "net.py:7"
    assert case.command == f"ctk diagnose '{tmp_path}/my dumps/graph0'"


def test_a_case_that_a_run_has_judged_does_not_count_again(tmp_path: Path) -> None:
    run = write_outcomes(tmp_path / "run", failing(folder="../cases/graph0"))
    save_case(linear_case(signature=WRONG), run / "cases" / "graph0")
    save_case(linear_case(signature=WRONG), run / "cases" / "expected_by_its_test")
    write_diagnosis(run / "test0" / "diagnosis")
    save_case(linear_case(signature=WRONG), tmp_path / "other" / "graph0")
    assert [each.test for each in collect_outcomes(tmp_path).outcomes] == [
        "other/graph0",
        "tests/t.py::a",
    ]


def test_no_outcome_claims_a_case_elsewhere(tmp_path: Path) -> None:
    save_case(linear_case(signature=WRONG), tmp_path / "run" / "graph0")
    for number, folder in enumerate(("../..", "../../..", "../../run/graph0", "/")):
        write_outcome(passing(folder=folder), tmp_path / "other" / str(number))
    found = collect_outcomes(tmp_path).outcomes
    assert [each.test for each in found if each.fails] == ["run/graph0"]


def test_damage_is_a_problem_and_hides_no_other_outcome(tmp_path: Path) -> None:
    write_outcomes(tmp_path, failing())
    for name in ("bad", "pipe", "link", "diagnosis", "case"):
        (tmp_path / name).mkdir()
    (tmp_path / "bad" / FILE).write_text('{"schema": 1, "te\x1b[31m')
    os.mkfifo(tmp_path / "pipe" / FILE)
    (tmp_path / "link" / FILE).symlink_to(tmp_path / "test0" / FILE)
    (tmp_path / "diagnosis" / "diagnosis.json").write_text("[]")
    (tmp_path / "case" / "manifest.json").write_text("{}")
    found = collect_outcomes(tmp_path)
    assert [each.test for each in found.outcomes] == ["tests/t.py::a"]
    assert len(found.problems) == 5
    assert all(each.isprintable() for each in found.problems)


def test_a_cut_walk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_outcomes(tmp_path, *(failing(str(number)) for number in range(9)))
    monkeypatch.setattr(Walk.__init__, "__defaults__", (5, False))
    found = collect_outcomes(tmp_path)
    assert len(found.outcomes) == 4
    assert "more than 5 folders" in found.problems[0]


def test_a_root_may_be_one_outcome_and_must_exist(tmp_path: Path) -> None:
    write_outcome(failing(), tmp_path)
    assert len(collect_outcomes(tmp_path).outcomes) == 1
    with pytest.raises(CaseError, match="no such folder"):
        collect_outcomes(tmp_path / "none")


def test_a_failure_of_a_diagnosis_without_a_culprit_is_of_its_folder(tmp_path: Path) -> None:
    seen = Signature("runtime-error", exception="KeyError", where="m:f")
    diagnosis = Diagnosis(linear_case(), Search(Judgement(Verdict.REPRODUCES, seen)), 0.5)
    (tmp_path / "d").mkdir()
    write_json(diagnosis, tmp_path / "d")
    (found,) = collect_outcomes(tmp_path).outcomes
    assert found.key == "ctk: runtime-error: KeyError: m:f: in d"
