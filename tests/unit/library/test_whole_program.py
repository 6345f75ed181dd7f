"""Programs that fail while no graph of theirs does: who is to blame, the smallest program, a repro.

Each is wrong in Dynamo itself on torch 2.13; a bug that torch mends fails here.
"""

import json
import re
from pathlib import Path

import pytest
import torch

import ctk
from tests.helpers.cli import ctk as command
from tests.helpers.cli import write
from tests.helpers.project import ROOT

FIX = """import numpy as np
import torch

def wanted():
    def program(x):
        y = x * 2
        return torch.from_numpy(np.fix(y.numpy()))
    return program

def example():
    return (torch.tensor([0.3, 0.4]),)
"""

SHADOWED = """import torch
import torch.nn as nn

class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = nn.Linear(1, 1)
    def forward(self, x):
        return self.sub(x)

def model():
    return M()

def between(m):
    object.__setattr__(m, "sub", nn.Linear(1, 1))

def inputs():
    return torch.ones(1)
"""


@pytest.mark.slow
@pytest.mark.clean_process
def test_diagnose_names_the_line_and_writes_a_repro(tmp_path: Path) -> None:
    path = write(tmp_path, "numbers_.py", FIX)
    found = ctk.diagnose(f"{path}:wanted,example", out=tmp_path / "out", max_questions=4)
    assert found.search.culprit is not None and found.end_to_end is not None
    assert (found.search.culprit.where, found.search.confirmed) == ("dynamo/capture", True)
    assert found.search.culprit.line == found.end_to_end.line == "numbers_.py:7"
    assert found.minimal == tmp_path / "out" / "minimal" and found.program is not None
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"
    assert found.judgement.fails and (found.minimal / "program.py").is_file()
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert (record["culprit"]["stage"], record["culprit"]["pass"]) == ("dynamo", "capture")
    assert record["confirmed"] and record["repro"]["clean_run"] == "reproduced"


@pytest.mark.clean_process
@pytest.mark.slow
def test_bisect_pass_names_a_missing_guard_and_makes_nothing_smaller(tmp_path: Path) -> None:
    path = write(tmp_path, "shadowed.py", SHADOWED)
    done = command("bisect-pass", path, "--out", tmp_path / "out", "--json")
    told = done.data
    assert (done.code, told["confirmed"]) == (1, True), done.out
    assert (told["culprit"]["stage"], told["culprit"]["pass"]) == ("dynamo", "guards")
    assert told["repro"]["path"] is None and told["program"] is None


def test_a_callable_has_no_file_to_be_played_again(tmp_path: Path) -> None:
    import numpy as np

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.fix(x.numpy()))

    found = ctk.minify(program, (torch.tensor([0.7]),), out=tmp_path / "out")
    assert found.end_to_end is not None and found.judgement.fails
    assert found.end_to_end.layer == "dynamo" and not found.search.confirmed
    assert "not narrowed down" in found.end_to_end.evidence[-1]


BUGS = sorted((ROOT / "tests" / "dynamo_bugs").glob("*.py"))
QUICK = ("np_sign",)
SHADOWS = pytest.mark.xfail(strict=True, reason="what judges the repro finds the program's `len`")


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    slow = [] if name in QUICK else [pytest.mark.slow]
    return [*slow, SHADOWS] if name == "builtin_shadow" else slow


@pytest.mark.slow
@pytest.mark.clean_process
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=marks_of(path.stem)) for path in BUGS],
)
def test_bugs_of_dynamo_from_the_subject_to_the_repro(path: Path, tmp_path: Path) -> None:
    """A bug that torch mends fails here, by name: take its file out."""
    text = path.read_text()
    cause = re.search(r"^cause: (\w+)", text, re.MULTILINE)
    marked = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# the line")]
    found = ctk.diagnose(path, out=tmp_path / "out", max_questions=2)
    assert cause is not None and found.search.culprit is not None
    assert found.search.culprit.where == f"dynamo/{cause[1]}"
    assert found.search.culprit.line in [f"{path.name}:{number}" for number in marked]
    assert found.search.confirmed
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "culprit"), [("b102_alone", "dynamo/guards"), ("b105_alone", "dynamo/capture")]
)
@pytest.mark.parametrize("target", ["ctk", "inductor"])
def test_real_bugs_of_dynamo_are_shown_whatever_the_target(
    name: str, culprit: str, target: str, tmp_path: Path
) -> None:
    path = ROOT / "tests" / "real_bugs" / f"{name}.py"
    found = ctk.diagnose(path, target=target, out=tmp_path / "out")
    assert found.search.culprit is not None and found.search.culprit.where == culprit
    assert found.search.confirmed and found.search.culprit.line.startswith(path.name)
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"
