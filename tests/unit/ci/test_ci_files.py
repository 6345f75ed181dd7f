"""`examples/ci`: the job uses inputs that the action has, and no input becomes code."""

import re
from pathlib import Path

import pytest
import yaml

from tests.helpers.ci_jobs import ACTION, TEMPLATE, Runner


def test_the_job_names_inputs_and_outputs_of_the_action() -> None:
    workflow = yaml.safe_load((ACTION.parent / "workflow.yml").read_text())
    (step,) = (s for s in workflow["jobs"]["ctk"]["steps"] if s.get("id") == "ctk")
    action = yaml.safe_load(ACTION.read_text())
    assert step["with"].keys() <= action["inputs"].keys()
    used = re.findall(
        r"steps\.ctk\.outputs\.([\w-]+)", (ACTION.parent / "workflow.yml").read_text()
    )
    assert used and {*used} <= action["outputs"].keys()


HOSTILE = "$(touch pwned) `touch pwned` '; touch pwned; \" & | é ${PATH}"
INPUTS = ("requirements", "target", "seconds", "out", "baseline")
FAKE = """#!/bin/bash
printf '%s\\n' "$0" "$@" >> arguments.txt
"""


@pytest.mark.parametrize("kind", ["action", "template"])
def test_inputs_are_data(kind: str, tmp_path: Path) -> None:
    """No input becomes code or several words: stand-ins of Python and ctk note their arguments."""
    runner = Runner(tmp_path)
    given = {name: f"{name} {HOSTILE}" for name in INPUTS}
    job = runner.job({**given, "arguments": f"-k\n{HOSTILE}\n\n*"})
    programs = runner.repository / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "ctk"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    if kind == "action":
        job.inputs["python"] = str(programs / "python")
        job.stand_ins = {**job.stand_ins, "actions/cache": lambda given: {}}
        job.run_action(ACTION)
    else:
        job.run_template(TEMPLATE, "ctk")
    noted = (runner.repository / "arguments.txt").read_text().splitlines()
    for name, option in (
        ("target", "--ctk-target="),
        ("seconds", "--ctk-seconds="),
        ("baseline", ""),
        ("requirements", ""),
        ("out", "--ctk-out="),
    ):
        assert f"{option}{given[name]}" in noted, (name, job.log)
    assert noted[noted.index("-k") + 1 :][:2] == [HOSTILE, "*"]
    assert not list(runner.repository.rglob("pwned"))
