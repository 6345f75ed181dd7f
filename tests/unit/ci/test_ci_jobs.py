"""`examples/ci`: valid by their schemas; their steps run in bash on a repository with a miscompile."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest
import xmlschema
import yaml

from tests.helpers.ci_jobs import Job
from tests.helpers.ci_outcomes import validator
from tests.helpers.project import ROOT

ACTION = ROOT / "examples/ci/github/action.yml"
TEMPLATE = ROOT / "examples/ci/gitlab/ctk.yml"
SAMPLE = ROOT / "examples/ci/sample"
LINK = "https://example.org/issues/1"

MODELS = """
import torch

def double(x):
    return x * 2

def triple(x):
    return x * 3

def wrong(name):
    def backend(gm, inputs):
        def run(*args):
            return tuple(each + (1 if NAME == name else 0) for each in gm(*args))
        return run
    return backend
"""

TESTS = """
import os, torch
from torch.fx import GraphModule

def backend(gm, inputs):
    def run(*args):
        offset = 1 if gm.graph.owning_module is gm and BAD(gm) else 0
        return tuple(each + offset for each in gm(*args))
    return run

def BAD(gm):
    return any(node.target.__name__ in os.environ["BAD"].split() for node in gm.graph.nodes
               if node.op == "call_function")

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


def restore_nothing(given: Mapping[str, str]) -> Mapping[str, str]:
    return {}


class Runner:
    """Runs the action and the template in copies of a repository; `.venv` is restored or made."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.uploads: list[Mapping[str, str]] = []

    def restore(self, given: Mapping[str, str]) -> Mapping[str, str]:
        if given["path"] != ".venv":
            return {}
        (self.repository / ".venv").symlink_to(sys.prefix)
        return {"cache-hit": "true"}

    def upload(self, given: Mapping[str, str]) -> Mapping[str, str]:
        self.uploads.append(given)
        return {}

    def job(self, inputs: Mapping[str, str], bad: str = "") -> Job:
        for name in (".venv", "ctk-out", inputs.get("out", "ctk-out")):
            path = self.repository / name
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        stand_ins = {"actions/cache": self.restore, "actions/upload-artifact": self.upload}
        return Job(self.repository, dict(inputs), stand_ins, {"BAD": bad, "PYTEST_ADDOPTS": ""})

    def action(self, bad: str = "", **inputs: str) -> Job:
        return self.job(inputs, bad).run_action(ACTION)

    def template(self, bad: str = "", **inputs: str) -> Job:
        job = self.job(inputs, bad)
        (self.repository / ".venv").symlink_to(sys.prefix)
        return job.run_template(TEMPLATE, "ctk")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    repository = tmp_path / "a repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "requirements.txt").touch()
    (repository / "test_models.py").write_text(TESTS)
    return Runner(repository)


def accept_all(path: Path) -> None:
    path.write_text(path.read_text().replace('"issue": ""', f'"issue": "{LINK}"'))


def ctk(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ctk.toolkit.cli.main", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_files_are_valid() -> None:
    validator("github-action")(yaml.safe_load(ACTION.read_text()))
    _, job = yaml.safe_load_all(TEMPLATE.read_text())
    validator("gitlab-ci")(job)
    workflow = yaml.safe_load((ACTION.parent / "workflow.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["ctk"]["steps"] if s.get("id") == "ctk")
    assert step["with"].keys() <= yaml.safe_load(ACTION.read_text())["inputs"].keys()


def test_three_runs_of_the_action(runner: Runner) -> None:
    out = runner.repository / "ctk-out"
    first = runner.action("sin", diagnose="false")
    assert first.failed and first.outputs["exit-code"] == "1", first.log
    assert "1 new failure in 3 judged tests" in first.summary
    assert first.log.count("::error file=test_models.py") == 1
    (upload,) = runner.uploads
    assert upload == {"name": "ctk-JOB", "path": "ctk-out"}
    check_reports(runner.repository, first, failures=1)
    ctk(runner.repository, "ci-summary", str(out), "--write-baseline", "known.json")
    accept_all(runner.repository / "known.json")

    second = runner.action("sin", diagnose="false", baseline="known.json")
    assert not second.failed and second.outputs["exit-code"] == "0", second.log
    assert "::error" not in second.log

    third = runner.action("sin cos", diagnose="false", baseline="known.json")
    assert third.failed and "1 new failure, 1 known failure in 3 judged tests" in third.summary
    (annotation,) = (line for line in third.log.splitlines() if line.startswith("::error"))
    assert "test_cos" in annotation and "test_sin" not in annotation
    check_reports(runner.repository, third, failures=1, suppressed=1)

    own = runner.action("sin own", diagnose="false", baseline="known.json")
    assert own.failed and "test_own" in own.summary


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
    assert not runner.template(arguments="-q\n-k\nnot own", diagnose="false").failed


HOSTILE = "$(touch pwned) `touch pwned` '; touch pwned; \" & | é"


@pytest.mark.parametrize("kind", ["action", "template"])
def test_inputs_are_data(kind: str, runner: Runner) -> None:
    run = runner.action if kind == "action" else runner.template
    job = run(out=HOSTILE, arguments=f"-k\nsin or {HOSTILE[:0]}cos\n--rootdir=.", diagnose="false")
    assert not job.failed, job.log
    assert (runner.repository / HOSTILE / "summary.md").is_file()
    for name in ("baseline", "target", "seconds", "arguments"):
        assert run(**{name: HOSTILE}).failed
    assert not (runner.repository / "pwned").exists()


def test_no_tests_a_crash_and_an_old_folder_fail(runner: Runner) -> None:
    assert runner.action(arguments="-k\nnothing", diagnose="false").failed
    (runner.repository / "test_models.py").write_text("import os\ndef test_a(): os._exit(0)\n")
    crashed = runner.action(diagnose="false")
    assert crashed.failed and crashed.outputs["exit-code"] == "125", crashed.log
    job = runner.job({})
    (runner.repository / "ctk-out").mkdir()
    job.run_action(ACTION)
    assert job.failed and "name a new one" in job.log and "Report" not in job.ran
