"""A stranger in a copy of the project, held to one new file and one entry in a table."""

import difflib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.project import copy_project
from tests.helpers.warm_python import warm_python

PROGRAM = """
import torch

def model():
    return lambda x: ((x + 1).relu() * 2).tanh().sum(-1)

def inputs():
    return (torch.linspace(-3, 3, 12).reshape(3, 4),)
"""


class Stranger:
    """Somebody who works in a copy of the project.

    Attributes:
        project: The root of the copy.
        place: An empty folder beside it, where the commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.project = copy_project(folder / "project")
        self.place = folder / "place"
        self.place.mkdir()
        self.write("program.py", PROGRAM)

    def write(self, name: str, text: str) -> None:
        (self.place / name).write_text(text)

    def add(self, file: str, text: str, *, table: str, name: str, entry: str) -> None:
        """Add a file of the project and its entry to the table `name` in the file `table`."""
        path = self.project / file
        assert not path.exists()
        path.write_text(text)
        module = "ctk." + file.removesuffix(".py").replace("/", ".")
        package, _, own = module.rpartition(".")
        before = (self.project / table).read_text()
        after = with_entry(before, name, f"{own}.{entry}", f"from {package} import {own}")
        (self.project / table).write_text(after)
        assert len(added_lines(before, after)) == 2, "one import and one entry"

    def ctk(self, *arguments: object, code: int) -> dict[str, Any]:
        """Run a command with `--json`; return what it says after checking its exit code."""
        done = self.run(warm_python().with_name("ctk"), *arguments, "--json")
        assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def run(self, *command: object) -> "subprocess.CompletedProcess[str]":
        environ = os.environ | {"PYTHONPATH": str(self.project), "WARM_CHILDREN": "1"}
        return subprocess.run(
            [str(each) for each in command],
            cwd=self.place,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def diagnose(self, *arguments: object) -> dict[str, Any]:
        """Diagnose a program that fails; check that its repro was seen to fail, and fails again."""
        said = self.ctk("diagnose", *arguments, "--out", "found", code=1)
        assert said["repro"]["clean_run"] == "reproduced", said
        shown = self.run(warm_python(), "found/minimal/repro.py")
        assert shown.returncode == 1, shown.stdout + shown.stderr
        return said


def with_entry(text: str, name: str, entry: str, statement: str) -> str:
    """Return a module with one more import, and one more entry at the head of the table `name`."""
    head = re.compile(rf"^{name}\b[^\n]*= \w*\(", re.MULTILINE)
    assert len(head.findall(text)) == 1, f"no table {name}"
    text = head.sub(lambda match: f"{match[0]}{entry}, ", text)
    first = re.search(r"^(from|import) ", text, re.MULTILINE)
    assert first
    return f"{text[: first.start()]}{statement}\n{text[first.start() :]}"


def added_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line.startswith("+ ")]
