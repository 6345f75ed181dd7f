"""A program that writes into what its graph holds (a compiled optimizer step), from end to end."""

import json
from pathlib import Path

import pytest
import torch

from ctk.toolkit.execution.private_copy import held_tensors
from ctk.toolkit.importers import load_cases
from tests.helpers.cli import ctk, write

STEP = """
import torch

def model():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
    weight.grad = torch.linspace(1, 2, 6)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.step()
        return x.sin()

    return step

def inputs():
    return (torch.linspace(-1, 1, 4),)
"""

BROKEN_UPDATE = '''
def uphill(gm):
    """Wrong on purpose: the step goes in the other direction."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.target = torch.ops.aten.sub.Tensor

def config():
    return {"custom_passes": {"joint": [f"{__file__}:uphill"]}}
'''


@pytest.fixture
def step(tmp_path: Path) -> Path:
    return write(tmp_path, "step.py", STEP)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path, "broken_step.py", STEP + BROKEN_UPDATE)


def test_the_case_holds_the_state_from_before_the_step(step: Path) -> None:
    case = load_cases(step)[0]
    ((_, held),) = held_tensors(case.graph)
    assert torch.equal(held, torch.linspace(-1, 1, 6))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctk", "aot_eager"])
def test_a_right_step_is_right_each_time(step: Path, target: str) -> None:
    for command in ("check", "repro", "check"):
        said = ctk(command, step, "--target", target)
        assert said.code == 0, said.out + said.err


def test_a_wrong_update_is_found_made_small_and_reproduced(broken: Path, tmp_path: Path) -> None:
    said = ctk("diagnose", broken, "--out", tmp_path / "out", "--json")
    assert said.code == 1, said.out + said.err
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert record["signature"]["output"].startswith("held")
    assert record["culprit"]["pass"] == "uphill"
    assert record["confirmed"]
    assert record["repro"]["clean_run"] == "reproduced"
    assert not record["problems"]
