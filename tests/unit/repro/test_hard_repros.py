"""Repros of programs with unusual nodes: what Dynamo cannot capture again is handed over whole."""

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.repro.run import write_repro
from tests.helpers.hard_programs import Cubed, Hard, hard_programs

pytestmark = [
    # torch says these of its own code
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]
PROGRAMS = {each.name: each for each in hard_programs()}
NOT_RUN = ("infinite complex",)
"""torch's own generated code writes `infj` for it (2.13), whatever compiles it."""
HANDED = ("autograd.Function", "straight-through estimator", "scan", "flex_attention", "hook")


def only_case(program: Hard, **more: Any) -> Case:
    request = CaseOptions(target="aot_eager", backward=program.backward, **more)
    (case,) = load_cases(program.function, program.inputs, request)
    return case


def said(case: Case, folder: Path) -> str:
    """Return the verdict of a case's repro, run in this process."""
    path = write_repro(case, folder)
    head, ending = path.read_text().split('if __name__ == "__main__":')
    ending = "if True:" + ending.replace("sys.exit(", "(")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(
            compile(head + ending, str(path), "exec"), {"__name__": "repro", "__file__": str(path)}
        )
    return printed.getvalue()


@pytest.mark.parametrize("name", HANDED)
def test_the_repro_runs_what_dynamo_does_not_capture_again(name: str, tmp_path: Path) -> None:
    assert said(only_case(PROGRAMS[name]), tmp_path).startswith("NO FAILURE")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in HANDED + NOT_RUN])
def test_the_repro_of_every_hard_program_runs(name: str, tmp_path: Path) -> None:
    assert said(only_case(PROGRAMS[name]), tmp_path).startswith("NO FAILURE")


def test_symbolic_sizes_are_handed_over(tmp_path: Path) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return Cubed.apply(x, 3).view(-1, y.shape[0]) * y.shape[0]

    inputs = (torch.randn(4, 6, requires_grad=True), torch.randn(6))
    case = only_case(Hard("dynamic", program, inputs, backward=True), dynamic=True)
    assert case.dynamic
    assert said(case, tmp_path).startswith("NO FAILURE")


def wrong_everywhere(gm: torch.fx.GraphModule, _inputs: object) -> Any:
    """A backend whose results are off by one."""
    return lambda *args: tuple(each + 1 for each in gm(*args))


def test_a_wrong_compiler_is_seen_by_a_repro_that_hands_the_graph_over(tmp_path: Path) -> None:
    case = only_case(PROGRAMS["autograd.Function"])
    spec = f"{__name__}:wrong_everywhere"
    case = Case(case.graph, case.inputs, target=spec, modes=case.modes)
    assert "FAILURE: accuracy" in said(case, tmp_path)
