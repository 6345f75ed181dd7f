"""What differs between two cases on disk, without loading either."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.comparison import CaseDiff, Difference, compare_cases
from ctk.toolkit.case.store import save_case
from tests.helpers.cli import ctk


def case_of(text: str, *inputs: object, **more: object) -> Case:
    scope: dict[str, object] = {"torch": torch}
    exec(f"def f(x, y):\n    return {text}", scope)  # a literal of the tests
    return Case(symbolic_trace(scope["f"]), inputs, **more)  # type: ignore[arg-type]  # a function


X, Y = torch.arange(4.0), torch.ones(2, 2)
CASE = case_of("torch.relu(x) + y.sum()", X, Y, target="ctk")


def compared(tmp_path: Path, left: Case, right: Case, inputs: str = "recipe") -> CaseDiff:
    folders = [tmp_path / "left", tmp_path / "right"]
    for case, folder in zip((left, right), folders, strict=True):
        save_case(case, folder, inputs=inputs)
    return compare_cases(*folders)


def test_a_case_is_the_same_as_itself(tmp_path: Path) -> None:
    nans = replace(CASE, inputs=(X / 0, Y))
    for number, case in enumerate((CASE, nans, case_of("x + y", 1, 2.5, target="ctk"))):
        found = compared(tmp_path / str(number), case, replace(case, name="other"))
        assert found.is_same and str(found) == ""


def test_the_graph(tmp_path: Path) -> None:
    found = compared(tmp_path, CASE, case_of("x + y.sum()", X, Y, target="ctk"))
    lines = [line.split("#")[0].rstrip() for line in found.graph.splitlines()]
    assert any(line.startswith("-") and "relu" in line for line in lines)
    assert not found.inputs and not found.settings
    assert str(found).endswith(" lines of the graph")


def test_inputs_of_another_type_or_with_other_values(tmp_path: Path) -> None:
    other = X.clone()
    other[2] = -1
    found = compared(tmp_path, CASE, replace(CASE, inputs=(other, Y.t()[:1])), inputs="full")
    assert not found.graph and [each.what for each in found.inputs] == ["x", "y"]
    assert found.inputs[0].right == "1 of 4 values differ"
    assert found.inputs[1].left == "float32[2, 2], strides [2, 1], cpu"
    assert found.inputs[1].right.startswith("float32[1, 2]")
    assert str(found) == "input x, input y"


def test_settings(tmp_path: Path) -> None:
    modes = replace(CASE.modes, grad=False)
    found = compared(tmp_path, CASE, replace(CASE, target="inductor", modes=modes))
    assert found.settings == (
        Difference("target", "ctk", "inductor"),
        Difference("modes.grad", "True", "False"),
    )


def test_what_a_stranger_wrote_is_shown_as_text_or_refused(tmp_path: Path) -> None:
    left, right = (save_case(CASE, tmp_path / name) for name in ("left", "right"))
    (right / "graph.py").write_text("# head\nx = 1\x1b[2K\n")
    assert "+x = 1\\x1b[2K" in compare_cases(left, right).graph
    inputs = json.loads((right / "inputs.json").read_text())
    inputs["tensors"]["entries"].pop("x")
    (right / "inputs.json").write_text(json.dumps(inputs))
    with pytest.raises(CaseError, match="nothing of input x"):
        compare_cases(left, right)
    (right / "graph.py").unlink()
    (right / "graph.py").symlink_to(tmp_path / "left/graph.py")
    with pytest.raises(CaseError, match="link"):
        compare_cases(left, right)


def test_the_command(tmp_path: Path) -> None:
    left = save_case(CASE, tmp_path / "left")
    right = save_case(case_of("x + y.sum()", X * 2, Y, target="ctk"), tmp_path / "right")
    said = ctk("diff", left, right)
    assert said.code == 0 and said.first.endswith("lines of the graph, input x")
    assert "relu" in said.out
    data = ctk("diff", left, right, "--json").data
    assert data["same"] is False and data["inputs"][0]["what"] == "x"
    assert ctk("diff", left, left).first.endswith("are the same")
    refused = ctk("diff", left, right, "-t", "ctk")
    assert refused.code == 2 and "--target says how to compile" in refused.out + refused.err
