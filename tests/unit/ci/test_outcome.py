"""outcome.json round-trips, refuses damage, and identifies a failure in the same way everywhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.ci.outcome import FILE, identity_of, read_outcome, write_outcome
from tests.helpers.ci_outcomes import WRONG, failing


def test_an_outcome_round_trips(tmp_path: Path) -> None:
    assert write_outcome(failing(), tmp_path / "a") == tmp_path / "a" / FILE
    assert read_outcome(tmp_path / "a") == failing()


@pytest.mark.parametrize(
    "damage",
    [{"schema": 2}, {"verdict": "good"}, {"new": 1}, {"seconds": "1"}, {"signature": {"kind": 3}}],
)
def test_a_damaged_outcome_is_refused_in_one_sentence(
    damage: dict[str, object], tmp_path: Path
) -> None:
    path = write_outcome(failing(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(CaseError, match=r"outcome\.json"):
        read_outcome(tmp_path)


def test_a_missing_outcome_names_the_folder_and_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="run the tests again"):
        read_outcome(tmp_path)


def test_hostile_texts_are_read_as_one_printable_line(tmp_path: Path) -> None:
    path = write_outcome(failing(), tmp_path)
    data = json.loads(path.read_text()) | {"headline": "no\x1b[2K\r\n::error::x\u202e"}
    path.write_text(json.dumps(data))
    assert read_outcome(tmp_path).headline == r"no\x1b[2K\r\n::error::x\u202e"


def identity(signature: Signature = WRONG, **changes: str) -> str:
    given = {"target": "ctk", "test": "a", "culprit": "joint/p", "rule": "r"} | changes
    return identity_of(signature, **given)


def test_numbers_results_and_runs_of_a_pass_do_not_count() -> None:
    others = [
        identity(replace(WRONG, output="out1", message="max error 7")),
        identity(test="b"),
        identity(culprit="joint/p#2"),
        identity(replace(WRONG, where="joint/p")),
    ]
    assert {identity(), *others} == {"ctk: accuracy: joint/p: r"}


def test_different_failures_differ() -> None:
    raised = Signature("compile-error", exception="KeyError", where="joint/p")
    found = [
        identity(),
        identity(target="inductor"),
        identity(replace(WRONG, kind="nan")),
        identity(culprit="joint/q"),
        identity(rule="s"),
        identity(rule=""),
        identity(rule="", test="b"),
        identity(culprit=""),
        identity(culprit="", test="b"),
        identity(culprit="lowered/c:forward.add", rule=""),
        identity(culprit="lowered/c:forward.add", rule="", test="b"),
        identity(culprit="dynamo (guards)", rule=""),
        identity(culprit="dynamo (guards)", rule="", test="b"),
        identity(raised),
        identity(replace(raised, exception="TypeError")),
        identity(Signature("signal", signal=6)),
        identity(Signature("signal", signal=11)),
        identity(culprit="", test="x" * 999),
        identity(culprit="", test="x" * 998 + "y"),
        identity(culprit="", test="a\n"),
        identity(culprit="", test="a\r"),
    ]
    assert len(set(found)) == len(found)
    assert all(each.isprintable() and len(each) < 400 for each in found)
