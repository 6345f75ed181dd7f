"""The baseline: what it accepts, what it reports as fixed, how it is renewed, what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.accuracy import is_worse
from ctk.toolkit.ci.baseline import Baseline, read_baseline, renew_baseline, write_baseline
from ctk.toolkit.ci.collect import Collection
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.ci.report import CiReport, make_report
from tests.helpers.ci_outcomes import failing, passing

LINK = "https://example.org/issues/1"


def baseline(*outcomes: Outcome, issue: str = LINK) -> Baseline:
    made = renew_baseline(Baseline(), outcomes)
    return replace(made, failures=tuple(replace(each, issue=issue) for each in made.failures))


def report(known: Baseline, *outcomes: Outcome, problems: tuple[str, ...] = ()) -> CiReport:
    return make_report(Collection(outcomes, problems), known)


def counts(found: CiReport) -> tuple[int, ...]:
    parts = (found.new, found.known, found.fixed, found.losses, found.undecided)
    return tuple(map(len, parts))


def test_a_known_failure_with_a_link_does_not_fail() -> None:
    found = report(baseline(failing()), failing(), passing())
    assert (counts(found), found.fails, found.is_undecided) == ((0, 1, 0, 0, 0), False, False)


def test_a_known_failure_without_a_link_fails() -> None:
    found = report(baseline(failing(), issue=""), failing())
    assert (counts(found), found.fails) == ((1, 0, 0, 0, 0), True)


def test_one_rule_in_two_tests_is_one_failure_and_another_rule_is_new() -> None:
    found = report(baseline(failing()), failing("t.py::other"), failing("t.py::a", rule="split"))
    assert counts(found) == (1, 1, 0, 0, 0)
    assert found.new[0].rule == "joint/cse/split"


@pytest.mark.parametrize("slow_side", ["baseline", "run"])
def test_a_bisection_out_of_time_does_not_make_a_known_failure_new(slow_side: str) -> None:
    unknown = failing(culprit=None, rule="", confirmed=False)
    pair = (unknown, failing()) if slow_side == "baseline" else (failing(), unknown)
    assert counts(report(baseline(pair[0]), pair[1])) == (0, 1, 0, 0, 0)
    other_test = replace(pair[1], test="t.py::new")
    assert counts(report(baseline(pair[0]), other_test))[0] == 1
    other_kind = failing(culprit=None, rule="", signature=Signature("nan"))
    assert counts(report(baseline(failing()), other_kind))[0] == 1


def test_a_failure_is_fixed_when_each_of_its_tests_passes() -> None:
    known = baseline(failing("a"), failing("b"))
    assert counts(report(known, passing("a"), passing("b")))[2] == 1
    assert counts(report(known, passing("a"))) == (0, 0, 0, 0, 0)  # b did not run
    assert counts(report(known, passing("a"), failing("b"))) == (0, 1, 0, 0, 0)
    flaky = passing("b", verdict=Verdict.FLAKY)
    assert counts(report(known, passing("a"), flaky)) == (0, 0, 0, 0, 1)
    assert counts(report(known, passing("a"), passing("b"), failing("b", rule="x"))) == (
        1,
        0,
        0,
        0,
        0,
    )
    other_target = passing("b", target="inductor")
    assert counts(report(known, passing("a"), other_target))[2] == 0
    other_target = failing("b", target="inductor")
    assert counts(report(known, passing("a"), passing("b"), other_target))[:3] == (1, 0, 1)


def test_a_mark_of_the_test_accepts_its_failure() -> None:
    assert not report(Baseline(), failing(known="#12")).fails
    assert report(Baseline(), failing(known="#12"), failing("t.py::other")).fails
    assert renew_baseline(Baseline(), [failing(known="#12")]) == Baseline()
    without_link = baseline(failing(), issue="")
    assert not report(without_link, failing(known="#12")).fails


def test_undecided_tests_fail_only_alone() -> None:
    flaky = passing("a", verdict=Verdict.FLAKY)
    alone, beside = report(Baseline(), flaky), report(Baseline(), flaky, passing())
    assert (alone.is_undecided, beside.is_undecided, beside.fails) == (True, False, False)
    assert report(Baseline()).is_undecided
    assert report(Baseline(), passing(), problems=("damaged",)).is_undecided
    assert not report(Baseline(), failing(), problems=("damaged",)).is_undecided


@pytest.mark.parametrize(
    ("before", "now", "worse"),
    [
        (2.0, 128.0, False),
        (2.0, 129.0, True),
        (0.0, 64.0, False),
        (0.1, 65.0, True),
        (5.0, 1.0, False),
    ],
)
def test_accuracy_gets_worse_beyond_six_bits(before: float, now: float, worse: bool) -> None:
    assert is_worse(now, before) == worse
    known = baseline(passing(worst_ulp=before))
    found = report(known, passing(worst_ulp=now))
    assert (bool(found.losses), found.fails) == (worse, worse)


def test_accuracy_counts_per_target_and_only_where_it_was_measured() -> None:
    known = baseline(passing(worst_ulp=1.0))
    others = [
        passing(worst_ulp=99.0, target="inductor"),
        passing("new", worst_ulp=99.0),
        passing(worst_ulp=None),
        passing(worst_ulp=99.0, verdict=Verdict.ILL_CONDITIONED),
    ]
    assert not any(report(known, each).losses for each in others)


def test_a_renewed_baseline_keeps_links_and_tests_that_did_not_run() -> None:
    old = baseline(failing("a"), failing("c", rule="gone"), passing("p", worst_ulp=1.0))
    new = renew_baseline(old, [failing("b"), passing("c"), passing("q", worst_ulp=3.0)])
    (entry,) = new.failures
    assert (entry.issue, entry.tests) == (LINK, ("a", "b"))
    assert [(each.test, each.worst_ulp) for each in new.accuracy] == [
        ("c", 2.0),
        ("p", 1.0),
        ("q", 3.0),
    ]
    assert renew_baseline(new, [failing("b"), passing("q", worst_ulp=3.0)]) == new


def test_a_culprit_that_was_found_since_replaces_the_entry_and_keeps_the_link() -> None:
    old = baseline(failing(culprit=None, rule="", confirmed=False))
    (entry,) = renew_baseline(old, [failing()]).failures
    assert (entry.culprit, entry.issue) == ("joint/cse", LINK)
    unknown = failing(culprit=None, rule="", confirmed=False)
    assert renew_baseline(baseline(failing()), [unknown]) == baseline(failing())


def test_it_round_trips(tmp_path: Path) -> None:
    known = baseline(failing(), passing())
    write_baseline(tmp_path / "b.json", known)
    assert read_baseline(tmp_path / "b.json") == known


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"issue": "TODO"}, "'TODO' is not the link of an issue"),
        ({"issue": "javascript:alert(1)"}, "is not the link of an issue"),
        ({"issue": 'https://a"onclick=x'}, "is not the link of an issue"),
        ({"issues": ""}, "unknown key 'issues'; did you mean 'issue'"),
        ({"tests": "a"}, r"\$\.failures\[0\]\.tests"),
    ],
)
def test_a_mistake_is_named_with_its_place(
    damage: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    write_baseline(path, baseline(failing()))
    data = json.loads(path.read_text())
    data["failures"][0] |= damage
    path.write_text(json.dumps(data))
    with pytest.raises(CaseError, match=said):
        read_baseline(path)
