"""`examples/ci`: the steps run in bash on repositories with bugs, and with known bugs."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import xmlschema

from tests.helpers.ci_jobs import ACTION, Job, Runner
from tests.helpers.ci_outcomes import validator
from tests.helpers.cli import ctk
from tests.helpers.project import ROOT

SAMPLE = ROOT / "examples/ci/sample"
LINK = "https://example.org/issues/1"

TESTS = """
import os, torch

def backend(gm, inputs):
    bad = any(name in gm.code for name in os.environ["BAD"].split())
    return lambda *args: tuple(each + bad for each in gm(*args))

def run(function):
    torch.compile(function, backend=backend)(torch.ones(3))

def test_sin():
    run(lambda x: x.sin() * torch.sin(x))

def test_cos():
    run(lambda x: torch.cos(x))

def test_tan():
    run(lambda x: torch.tan(x))

def test_own():
    assert "own" not in os.environ["BAD"]
"""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    repository = tmp_path / "a repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "requirements.txt").touch()
    (repository / "test_models.py").write_text(TESTS)
    return Runner(repository)


@pytest.mark.slow
def test_three_runs_of_the_action(runner: Runner) -> None:
    out = runner.repository / "ctk-out"
    first = runner.action("sin", diagnose="false")
    assert first.failed and first.outputs["exit-code"] == "1", first.log
    assert "1 new failure in 3 judged tests" in first.summary
    assert first.log.count("::error file=test_models.py") == 1
    (upload,) = runner.uploads
    assert upload == {"name": "ctk", "path": "ctk-out"}
    check_reports(runner.repository, first, failures=1)
    known = runner.repository / "known.json"
    assert ctk("ci-summary", out, "--write-baseline", known).code == 1
    known.write_text(known.read_text().replace('"issue": ""', f'"issue": "{LINK}"'))

    second = runner.action("sin", diagnose="false", baseline="known.json")
    assert not second.failed and second.outputs["exit-code"] == "0", second.log
    assert "::error" not in second.log

    third = runner.action("sin cos", diagnose="false", baseline="known.json")
    assert third.failed and "1 new failure, 1 known failure in 3 judged tests" in third.summary
    (annotation,) = (line for line in third.log.splitlines() if line.startswith("::error"))
    assert "test_cos" in annotation and "test_sin" not in annotation
    check_reports(runner.repository, third, failures=1, suppressed=1)

    own = runner.action("sin own", diagnose="false", baseline="known.json")
    assert own.failed and "<code>test&#95;models::test&#95;own</code>" in own.summary


NEW_TEST = """
import torch

def backend(gm, inputs):
    return lambda *args: tuple(each + 1 for each in gm(*args))

def test_new():
    torch.compile(lambda x: x.tan(), backend=backend)(torch.ones(3))
"""


@pytest.mark.slow
def test_three_runs_on_the_sample_repository(tmp_path: Path) -> None:
    """Known at first: the tests that the sample marks; then also all that the baseline holds."""
    repository = tmp_path / "sample"
    shutil.copytree(SAMPLE, repository)
    (repository / ".git").mkdir()
    (repository / "requirements.txt").touch()
    runner, known = Runner(repository), repository / "known.json"
    first = runner.action(diagnose="false")
    results = json.loads((repository / first.outputs["sarif"]).read_text())["runs"][0]["results"]
    marked = sum("suppressions" in result for result in results)
    count = len(results) - marked
    failed = ET.parse(repository / "ctk-out" / "pytest.xml").getroot().iter("failure")
    assert count == len(list(failed)) >= 6, first.log
    assert f"failure: {count} new failures, " in first.summary
    assert first.log.count("\n::error file=") == count
    check_reports(repository, first, failures=count, suppressed=marked)
    assert ctk("ci-summary", repository / "ctk-out", "--write-baseline", known).code == 1
    known.write_text(known.read_text().replace('"issue": ""', f'"issue": "{LINK}"'))
    second = runner.action(diagnose="false", baseline="known.json")
    assert not second.failed and f"{count + marked} known failures" in second.summary, second.log
    (repository / "tests" / "test_new.py").write_text(NEW_TEST)
    third = runner.action(diagnose="false", baseline="known.json")
    assert third.failed and "failure: 1 new failure, " in third.summary
    (annotation,) = (line for line in third.log.splitlines() if line.startswith("::error"))
    assert "file=tests/test_new.py" in annotation
    check_reports(repository, third, failures=1, suppressed=count + marked)


def check_reports(repository: Path, job: Job, *, failures: int, suppressed: int = 0) -> None:
    """Validate the files that the outputs name."""
    sarif = json.loads((repository / job.outputs["sarif"]).read_text())
    validator("sarif-2.1.0")(sarif)
    results = sarif["runs"][0]["results"]
    assert sum("suppressions" in result for result in results) == suppressed
    assert len(results) == failures + suppressed
    junit = (repository / job.outputs["junit"]).read_text()
    xmlschema.XMLSchema(str(ROOT / "tests/schemas/junit-10.xsd")).validate(junit)
    assert ET.fromstring(junit).get("failures") == str(failures)
    assert (repository / job.outputs["summary"]).read_text() in job.summary


def test_the_template(runner: Runner) -> None:
    failed = runner.template("sin", diagnose="false")
    assert failed.failed and "failure: 1 new failure in 3 judged tests" in failed.log
    report = json.loads((runner.repository / "ctk-out" / "code-quality.json").read_text())
    assert [each["location"]["path"] for each in report] == ["test_models.py"]


@pytest.mark.slow
def test_the_template_passes(runner: Runner) -> None:
    assert not runner.template(arguments="-q\n-k\nnot own", diagnose="false").failed


def test_one_run_of_the_action(runner: Runner) -> None:
    job = runner.action("sin", diagnose="false", arguments="-k\nsin")
    assert job.failed and job.log.count("::error file=test_models.py") == 1, job.log
    check_reports(runner.repository, job, failures=1)


def test_no_tests_a_crash_and_an_old_folder_fail(runner: Runner) -> None:
    (runner.repository / "test_models.py").write_text("import os\ndef test_a(): os._exit(0)\n")
    crashed = runner.action(diagnose="false")
    assert crashed.failed and crashed.outputs["exit-code"] == "125", crashed.log
    job = runner.job({})
    (runner.repository / "ctk-out").mkdir()
    job.run_action(ACTION)
    assert job.failed and "name a new one" in job.log and "Report" not in job.ran
