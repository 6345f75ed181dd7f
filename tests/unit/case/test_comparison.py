"""What differs between two cases on disk, without loading either."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.comparison import CaseDiff, CaseDifference, compare_cases
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.manifest import file_record
from ctk.toolkit.case.store import save_case
from tests.helpers.cli import ctk


def case_of(text: str, *inputs: object, **more: object) -> Case:
    scope: dict[str, object] = {"torch": torch}
    exec(f"def f(x, y):\n    return {text}", scope)  # a literal of the tests
    return Case(symbolic_trace(scope["f"]), inputs, **more)  # type: ignore[arg-type]  # a function


X, Y = torch.arange(4.0), torch.ones(2, 2)
CASE = case_of("torch.relu(x) + y.sum()", X, Y, target="ctk")


def with_x(x: torch.Tensor) -> Case:
    return replace(CASE, inputs=(x, Y))


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
        CaseDifference("target", "ctk", "inductor"),
        CaseDifference("modes.grad", "True", "False"),
    )


def rewritten(path: Path, text: str) -> None:
    """Change a file of a case, with its hash in the manifest."""
    path.write_text(text)
    manifest = path.parent / "manifest.json"
    data = json.loads(manifest.read_text())
    record = file_record(path)
    data["files"][path.name] = {"nbytes": record.nbytes, "sha256": record.sha256}
    manifest.write_text(json.dumps(data))


def test_what_ctk_loads_is_compared_and_not_the_text_for_people(tmp_path: Path) -> None:
    left, right = (save_case(CASE, tmp_path / name) for name in ("left", "right"))
    rewritten(right / "graph.py", "# another text\n")
    assert compare_cases(left, right).is_same
    graph = (right / "graph.json").read_text()
    rewritten(right / "graph.json", graph.replace("torch.relu", "torch.sigmoid"))
    found = compare_cases(left, right)
    assert "-relu = torch.relu(x)" in found.graph and "+relu = torch.sigmoid(x)" in found.graph


def test_what_no_line_shows_is_said(tmp_path: Path) -> None:
    left, right = (save_case(CASE, tmp_path / name) for name in ("left", "right"))
    data = json.loads((right / "graph.json").read_text())
    value = {"shape": [4], "dtype": "float32", "device": "cpu", "requires_grad": False}
    for folder, stride in ((left, 1), (right, 2)):
        data["nodes"][0]["value"] = {**value, "stride": [stride]}
        rewritten(folder / "graph.json", json.dumps(data))
    found = compare_cases(left, right)
    assert not found.is_same and str(found) == "value of node x"
    assert '"stride": [2]' in found.facts[0].right


@pytest.mark.parametrize("name", ["graph.json", "graph.py", "inputs.json"])
def test_a_file_that_is_gone_or_was_changed_is_refused(tmp_path: Path, name: str) -> None:
    left, right = (save_case(CASE, tmp_path / name) for name in ("left", "right"))
    text = (right / name).read_text()
    for damaged in ("", text[:-9], text.replace("x", "z")):
        (right / name).write_text(damaged)
        with pytest.raises(CaseError, match=rf"right: file {name} .*; "):
            compare_cases(left, right)
    (right / name).unlink()
    with pytest.raises(CaseError, match=f"file {name} is missing; "):
        compare_cases(left, right)


def test_what_a_stranger_wrote_is_shown_as_text_or_refused(tmp_path: Path) -> None:
    left, right = (save_case(CASE, tmp_path / name) for name in ("left", "right"))
    graph = (right / "graph.json").read_text()
    rewritten(right / "graph.json", graph.replace("torch.relu", "x\\u001b[2K"))
    assert "+relu = x\\x1b[2K(x)" in compare_cases(left, right).graph
    for bad in ("{}", graph.replace('"name": "relu"', '"name": 3'), graph.replace("nodes", "n")):
        rewritten(right / "graph.json", bad)
        with pytest.raises(CaseError, match="graph"):
            compare_cases(left, right)
    rewritten(right / "graph.json", graph)
    inputs = json.loads((right / "inputs.json").read_text())
    inputs["tensors"]["entries"].pop("x")
    rewritten(right / "inputs.json", json.dumps(inputs))
    with pytest.raises(CaseError, match="lacks x"):
        compare_cases(left, right)
    (right / "graph.py").unlink()
    (right / "graph.py").symlink_to(tmp_path / "left/graph.py")
    with pytest.raises(CaseError, match="link"):
        compare_cases(left, right)


def test_how_inputs_lie_in_memory(tmp_path: Path) -> None:
    base = torch.arange(64.0)
    moved, same = base.clone()[40:44], base[40:44].clone()
    found = compared(tmp_path / "offset", replace(CASE, inputs=(moved, Y)), with_x(same), "full")
    assert [(each.what, each.left, each.right) for each in found.inputs] == [
        ("x", "float32[4], strides [1], offset 40, cpu", "float32[4], strides [1], cpu"),
    ]
    found = compared(tmp_path / "values", with_x(moved + 0), with_x(base[8:12]), "full")
    assert found.inputs[0].right == "float32[4], strides [1], offset 8, cpu; 4 of 4 values differ"
    shared = replace(CASE, inputs=(base[:4], base[2:6]))
    apart = replace(CASE, inputs=(base[:4].clone(), base[2:6].clone()))
    found = compared(tmp_path / "shared", shared, apart, "full")
    assert "shares memory with y, of memory float32[0:6]" in found.inputs[0].left
    assert found.inputs[0].right == "float32[4], strides [1], cpu"
    needs = with_x(X.clone().requires_grad_())
    assert "requires grad" in compared(tmp_path / "grad", CASE, needs).inputs[0].right
    twice = compared(
        tmp_path / "twice", replace(CASE, inputs=(X, X)), replace(CASE, inputs=(X, X + 0))
    )
    assert "the same tensor as x" in twice.inputs[0].left


def test_memory_that_no_tensor_shows(tmp_path: Path) -> None:
    def pair(gap: float) -> Case:
        base = torch.zeros(8)
        base[3] = gap
        base[7] = 5
        return replace(CASE, inputs=(base[:3], base[4:8]))

    found = compared(tmp_path, pair(1.5), pair(-2.25), "full")
    assert [each.right for each in found.inputs] == ["other values that no tensor shows"]


def test_constants_and_recorded_failure(tmp_path: Path) -> None:
    def with_constant(values: torch.Tensor) -> Case:
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        total = graph.call_function(torch.add, (x, graph.get_attr("c")))
        graph.output((total,))
        return Case(torch.fx.GraphModule({"c": values}, graph), (X,))

    left = with_constant(torch.tensor([1.5, 2.5, 3.5, 4.25]))
    right = with_constant(torch.tensor([1.5, 2.5, 3.5, 4.75]))
    found = compared(tmp_path / "a", left, right, "full")
    assert str(found) == "constant c"
    assert found.constants[0].right == "1 of 4 values differ"
    failing = replace(left, signature=Signature("accuracy"))
    assert str(compared(tmp_path / "b", left, failing)) == "recorded failure"


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
    assert refused.code == 2 and "--target is about a compile" in refused.out + refused.err
