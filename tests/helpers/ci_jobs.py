"""Run the steps of a composite action, or of a GitLab job, in bash, as their runners do.

Expressions `${{ }}` are evaluated where the runner does: in `env`, `if`, `with` and outputs. Steps
that use an action of GitHub (cache, upload) have stand-ins, given by the test: functions of the
evaluated `with`, which return the outputs of the step.

Of the language of expressions it knows the part that `examples/ci` uses; the rest raises.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.project import ROOT
from tests.helpers.warm_python import warm_python

ACTION = ROOT / "examples/ci/github/action.yml"
TEMPLATE = ROOT / "examples/ci/gitlab/ctk.yml"

StandIn = Callable[[Mapping[str, str]], Mapping[str, str]]

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")


@dataclass
class Job:
    """A job that runs steps.

    Attributes:
        log: Everything that the steps print.
        summary: The job summary.
        outputs: Of the action.
        failed: Whether a step has failed; later ones run only if they ask for it.
    """

    folder: Path
    inputs: dict[str, str]
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict[str, StandIn])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    log: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    failed: bool = False
    ran: list[str] = field(default_factory=list[str])
    _steps: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    def run_action(self, path: Path) -> "Job":
        """Run a composite action."""
        action = yaml.safe_load(path.read_text(encoding="utf-8"))
        unknown = self.inputs.keys() - action["inputs"].keys()
        assert not unknown, f"the action has no inputs {unknown}"
        self.inputs = {
            name: each["default"] for name, each in action["inputs"].items()
        } | self.inputs
        for step in action["runs"]["steps"]:
            if self._wants(step.get("if", "success()")):
                self._run_step(step)
        values = action["outputs"].items()
        self.outputs = {name: self._fill(each["value"]) for name, each in values}
        return self

    def run_template(self, path: Path, name: str) -> "Job":
        """Run the script of a job of a GitLab template."""
        head, text = path.read_text(encoding="utf-8").split("\n---\n")
        declared = yaml.safe_load(head)["spec"]["inputs"]
        self.inputs = {key: str(each["default"]) for key, each in declared.items()} | self.inputs
        assert self.inputs.keys() == declared.keys()
        job = yaml.safe_load(text)[name]
        variables = {key: self._variable(value) for key, value in job["variables"].items()}
        script = "set -eo pipefail\n" + "\n".join(job["script"])
        assert "$[[" not in script, "an input would be code"
        self.failed = self._bash(script, variables, "sh") != 0
        return self

    def _variable(self, value: Any) -> str:
        if isinstance(value, str):
            return value.replace("$CI_PROJECT_DIR", str(self.folder))
        assert value["expand"] is False
        name = re.fullmatch(r"\$\[\[ inputs\.(\w+) \]\]", value["value"])
        assert name is not None
        return self.inputs[name[1]]

    def _run_step(self, step: Mapping[str, Any]) -> None:
        name, outputs = step["name"], dict[str, str]()
        self.ran.append(name)
        if "uses" in step:
            given = {key: self._fill(value) for key, value in step["with"].items()}
            outputs |= self.stand_ins[step["uses"].partition("@")[0]](given)
        else:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], f"an input would be code in {name}"
            with tempfile.TemporaryDirectory() as scratch:
                files = {n: Path(scratch, n) for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
                for file in files.values():
                    file.touch()
                values = {key: self._fill(value) for key, value in step.get("env", {}).items()}
                values |= {key: str(file) for key, file in files.items()}
                self.failed |= self._bash(step["run"], values) != 0
                for line in files["GITHUB_OUTPUT"].read_text().splitlines():
                    key, equals, value = line.partition("=")
                    assert equals, f"{name} writes {line!r}"
                    outputs[key] = value
                self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        self._steps[step.get("id", name)] = outputs

    def _bash(self, script: str, variables: Mapping[str, str], shell: str = "bash") -> int:
        flags = ["--noprofile", "--norc", "-eo", "pipefail"] if shell == "bash" else []
        done = subprocess.run(
            ["bash", *flags, "-c", script],
            cwd=self.folder,
            env={**os.environ, **self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.log += done.stdout
        return done.returncode

    def _wants(self, condition: str) -> bool:
        inner = _EXPRESSION.fullmatch(condition)
        parts = (inner[1] if inner else condition).split("&&")
        runs_after_failure = any("cancelled()" in part for part in parts)
        return (runs_after_failure or not self.failed) and all(map(self._holds, parts))

    def _holds(self, part: str) -> bool:
        text = part.strip()
        if text in ("!cancelled()", "success()"):
            return True
        comparison = re.fullmatch(r"(\S+) (==|!=) (\S+)", text)
        if comparison is None:
            raise ValueError(f"an expression that only GitHub evaluates: {text}")
        left, operator, right = comparison.groups()
        return (self._value(left) == self._value(right)) == (operator == "==")

    def _fill(self, text: object) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1].strip()), str(text))

    def _value(self, text: str) -> str:
        if text.startswith("'"):
            return text.strip("'")
        if text.startswith("hashFiles("):
            return "0" * 64
        match text.split("."):
            case ["inputs", name]:
                return self.inputs[name]
            case ["steps", step, "outputs", name]:
                return self._steps.get(step, {}).get(name, "")
            case ["runner" | "github", name]:
                return name.upper()
            case _:
                raise ValueError(f"an expression that only GitHub evaluates: {text}")


class Runner:
    """Runs the action and the template in a repository, with the environment of the tests."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.uploads: list[Mapping[str, str]] = []

    def restore(self, given: Mapping[str, str]) -> Mapping[str, str]:
        if given["path"] != ".venv":
            return {}
        self.link_environment()
        return {"cache-hit": "true"}

    def link_environment(self) -> None:
        """Link `.venv` to a Python with ctk that starts at once."""
        (self.repository / ".venv").symlink_to(warm_python().parents[1])

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
        self.link_environment()
        return job.run_template(TEMPLATE, "ctk")
