"""Programs whose eager call may break CUDA are captured in a process of their own."""

from pathlib import Path

import pytest

from ctk.compiler.errors import EagerError, LostAccelerator
from ctk.toolkit.importers import load_cases, program
from ctk.toolkit.importers.child_capture import capture_in_child
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.processes.accelerator import LOST_CUDA
from tests.helpers.cli import write

TWO_GRAPHS = """
import os
import torch

@torch.compiler.disable
def between(x):
    {between}
    return x

def model():
    return lambda x: between(x.sin() * 2).relu() + 1

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""


def program_file(folder: Path, between: str = "pass") -> str:
    return str(write(folder, "two.py", TWO_GRAPHS.format(between=between)))


def test_cuda_that_is_lost_in_capture_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "has_lost_cuda", lambda: True)
    with pytest.raises(LostAccelerator, match=r"eager call of two\.py breaks CUDA") as raised:
        load_cases(program_file(tmp_path))
    assert "next: --isolate" in str(raised.value)


@pytest.mark.slow
def test_the_same_cases_as_here(tmp_path: Path) -> None:
    path, request = program_file(tmp_path), CaseOptions(target="aot_eager")
    apart = capture_in_child(path, request)
    assert apart is not None
    assert [each.name for each in apart] == ["graph0", "graph1"]
    assert [fingerprint(each) for each in apart] == [
        fingerprint(each) for each in load_cases(path, None, request)
    ]


@pytest.mark.slow
def test_a_process_that_loses_cuda_has_saved_what_it_had_begun(tmp_path: Path) -> None:
    path = program_file(tmp_path, f"os._exit({LOST_CUDA})")
    cases = capture_in_child(path, CaseOptions(target="aot_eager"))
    assert cases is not None
    assert [each.name for each in cases] == ["graph0"]
    assert len(cases[0].graph.graph.find_nodes(op="call_method", target="sin")) == 1


@pytest.mark.slow
def test_one_that_loses_cuda_before_any_graph_runs_in_eager(tmp_path: Path) -> None:
    text = TWO_GRAPHS.format(between="pass").replace("x.sin() * 2", f"os._exit({LOST_CUDA})")
    with pytest.raises(EagerError, match=r"two\.py: a kernel of its eager call breaks CUDA"):
        capture_in_child(str(write(tmp_path, "two.py", text)), CaseOptions())


@pytest.mark.slow
def test_another_end_is_left_to_the_process_that_asks(tmp_path: Path) -> None:
    assert capture_in_child(program_file(tmp_path, "os._exit(3)"), CaseOptions()) is None
