"""`ctk ci-summary` and `ctk check --baseline`: exit codes, files, and the way of a baseline."""

import json
import re
from pathlib import Path

import pytest

from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.outcome import read_outcome
from tests.helpers.ci_outcomes import failing, passing, write_outcomes
from tests.helpers.cli import BROKEN_PASS, GOOD, ctk, write

LINK = "https://example.org/issues/1"


def link_all(path: Path) -> None:
    """Put a link beside each failure, as a person does."""
    path.write_text(path.read_text().replace('"issue": ""', f'"issue": "{LINK}"'))


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert ctk("ci-summary", tmp_path / "empty").code == 125
    assert ctk("ci-summary", write_outcomes(tmp_path / "good", passing())).code == 0
    said = ctk("ci-summary", write_outcomes(tmp_path / "bad", passing(), failing()))
    assert (said.code, said.first) == (1, "failure: 1 new failure in 2 judged tests")
    flaky = write_outcomes(tmp_path / "flaky", passing(verdict=Verdict.FLAKY))
    assert ctk("ci-summary", flaky).code == 125
    (tmp_path / "good" / "test0" / "outcome.json").write_text("{")
    assert ctk("ci-summary", tmp_path / "good").code == 125
    assert ctk("ci-summary", tmp_path / "none").code == 2
    assert ctk("ci-summary", tmp_path / "bad", "--baseline", tmp_path / "none.json").code == 2


def test_a_baseline_accepts_reports_and_shows_only_the_new_failure(tmp_path: Path) -> None:
    known, base = tmp_path / "base.json", "--baseline"
    first = write_outcomes(tmp_path / "1", failing("a"), failing("b", rule="two"), passing("c"))
    assert ctk("ci-summary", first, "--write-baseline", known).code == 1
    assert ctk("ci-summary", first, base, known).code == 1  # no issue yet
    link_all(known)
    said = ctk("ci-summary", first, base, known, "--json")
    assert (said.code, len(said.data["known"]), said.data["new"]) == (0, 2, [])
    second = write_outcomes(tmp_path / "2", failing("a"), passing("b"), failing("c", rule="new"))
    annotations, out = tmp_path / "annotations", tmp_path / "summary.md"
    said = ctk("ci-summary", second, base, known, "--annotations", annotations, "-o", out, "--json")
    assert (said.code, said.data["answer"]) == (
        1,
        "failure: 1 new failure, 1 known failure, 1 fixed failure in 3 judged tests",
    )
    assert [each["rule"] for each in said.data["new"]] == ["new"]
    assert [each["issue"] for each in said.data["fixed"]] == [LINK]
    assert len(annotations.read_text().splitlines()) == 1
    (new, rest) = out.read_text().split("### Known failures")
    assert "joint/cse/new" in new and "joint/cse/merge" in rest and "joint/cse/two" not in new
    assert ctk("ci-summary", second, base, known, "--write-baseline", known).code == 1
    entries = json.loads(known.read_text())["failures"]
    assert [(each["identity"], each["issue"]) for each in entries] == [
        ("ctk: accuracy: joint/cse: merge", LINK),
        ("ctk: accuracy: joint/cse: new", ""),
    ]


def test_accuracy_that_got_worse_fails(tmp_path: Path) -> None:
    known = tmp_path / "base.json"
    ctk("ci-summary", write_outcomes(tmp_path / "1", passing()), "--write-baseline", known)
    worse = write_outcomes(tmp_path / "2", passing(worst_ulp=200.0))
    said = ctk("ci-summary", worse, "--baseline", known)
    assert (said.code, said.first) == (1, "failure: 1 less accurate test in 1 judged test")
    assert "grew from 2 to 200 ULP" in said.out


def test_files_are_written_and_named(tmp_path: Path) -> None:
    run = write_outcomes(tmp_path / "run", failing(), passing())
    names = ("--out", "--junit", "--sarif", "--annotations", "--code-quality")
    files = {name: tmp_path / "my reports" / f"{name}.txt" for name in names}
    said = ctk("ci-summary", run, *(word for pair in files.items() for word in pair), "--json")
    assert set(said.data["written"]) == {str(path) for path in files.values()}
    assert all(path.read_text() for path in files.values())
    assert "|" not in ctk("ci-summary", run, "-o", files["--out"]).out
    assert "| culprit |" in ctk("ci-summary", run).out


def test_a_test_with_an_error_of_its_own_fails_the_job(tmp_path: Path) -> None:
    run = write_outcomes(tmp_path / "run", passing())
    junit = tmp_path / "pytest.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase classname="tests.t" name="own"><failure message="m">x'
        "</failure></testcase></testsuite></testsuites>"
    )
    said = ctk("ci-summary", run, "--tests", junit)
    assert said.code == 1 and "<code>tests.t::own</code>" in said.out
    assert ctk("ci-summary", run, "--tests", tmp_path / "none.xml").code == 2


class TestCheck:
    @pytest.fixture
    def broken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.chdir(tmp_path)
        layers = "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())"
        program = GOOD.replace(layers, "network") + BROKEN_PASS
        write(tmp_path, "broken.py", f"{program}\ndef network(x):\n    return (x + 1).relu()\n")
        return "broken.py"

    def test_a_baseline_accepts_and_names_a_fixed_failure(self, broken: str) -> None:
        said = ctk("check", broken, "--write-baseline", "b.json", "--out", "out")
        assert said.code == 1 and "new        ctk: accuracy: joint/negate_relu" in said.out
        assert ctk("check", broken, "--baseline", "b.json").code == 1
        link_all(Path("b.json"))
        said = ctk("check", broken, "--baseline", "b.json", "--json")
        assert said.code == 0 and said.data["baseline"]["known"][0]["issue"] == LINK
        assert said.data["baseline"]["new"] == [] and said.data["graphs"]
        without = ("--config", 'disable=["joint/negate_relu"]')
        said = ctk("check", broken, "--baseline", "b.json", *without)
        assert said.code == 0
        fixed = r"^fixed .*joint/negate_relu.*: remove it from the baseline$"
        assert re.search(fixed, said.out, re.M)
        outcome = read_outcome(Path("out/graph0"))
        assert (outcome.test, outcome.culprit) == ("broken.py: graph0", "joint/negate_relu")
        assert re.fullmatch(r"broken\.py:\d+", outcome.place)
        assert ctk("ci-summary", "out", "--baseline", "b.json").code == 0

    def test_accuracy_is_measured_and_compared(self, broken: str) -> None:
        write(Path(), "good.py", GOOD)
        ctk("check", "good.py", "--write-baseline", "b.json")
        data = json.loads(Path("b.json").read_text())
        assert data["accuracy"][0]["worst_ulp"] < 100
        assert ctk("check", "good.py", "--baseline", "b.json").code == 0
