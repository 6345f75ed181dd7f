"""The printed program of a graph: its text, and that it runs alone and computes the same."""

import copy
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_json import constants_of
from ctk.toolkit.case.graphs.python_source import graph_to_python, signature_names
from tests.helpers.case_zoo import Sample, capture, samples

SAMPLES = samples()
GOLDEN = ("nested_cond", "regions", "symbolic", "indexing", "checkpointed")
Golden = Callable[[str, str], None]


def build(text: str, case: Case) -> Any:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace["Graph"](constants_of(case.graph))


def clones(case: Case) -> dict[str, object]:
    """Fresh inputs by placeholder: leaves, so that a second run starts alike."""
    nodes = case.graph.graph.find_nodes(op="placeholder")
    return {
        node.name: value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for node, value in zip(nodes, case.inputs, strict=True)
    }


def outputs(module: Any, inputs: list[object]) -> list[Any]:
    torch.manual_seed(3)
    return pytree.tree_leaves(module(*inputs))


def assert_same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.name in GOLDEN], ids=lambda sample: sample.name
)
def test_text(sample: Sample, golden: Golden) -> None:
    (case,) = capture(sample.run, *sample.inputs, dynamic=sample.dynamic)
    text = graph_to_python(case.graph, symbols_from=case.dynamic, header=f"{sample.name}: golden")
    golden(f"graph_text/{sample.name}.py.txt", text)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_the_program_computes_what_the_graph_computes(sample: Sample) -> None:
    for case in capture(sample.run, *sample.inputs, dynamic=sample.dynamic):
        expected = outputs(copy.deepcopy(case.graph), list(clones(case).values()))
        whole = build(graph_to_python(case.graph), case)
        assert_same(outputs(whole, list(clones(case).values())), expected)
        without = build(graph_to_python(case.graph, symbols_from=case.dynamic), case)
        names = signature_names(case.graph, case.dynamic)
        assert_same(outputs(without, [clones(case)[name] for name in names]), expected)


def test_sizes_leave_the_signature_only_if_a_tensor_has_them() -> None:
    (case,) = capture(lambda x: x.view(-1, x.shape[0] * 2), torch.ones(4, 8), dynamic=True)
    assert signature_names(case.graph) == ["s77", "l_x_"]
    assert signature_names(case.graph, case.dynamic) == ["l_x_"]
    assert signature_names(case.graph, {"l_x_": ("other", None)}) == ["s77", "l_x_"]
    assert signature_names(case.graph, {"absent": ("s77",)}) == ["s77", "l_x_"]


def test_the_program_runs_with_torch_alone(tmp_path: Path) -> None:
    sample = next(sample for sample in SAMPLES if sample.name == "regions")
    (case,) = capture(sample.run, *sample.inputs)
    script = tmp_path / "graph.py"
    check = "print(Graph({})(torch.ones(4, 8))[0].dtype, 'ctk' in sys.modules)\n"
    script.write_text(graph_to_python(case.graph) + "\nimport sys\n" + check)
    run = subprocess.run(
        [sys.executable, "-I", str(script)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert run.stdout.strip() == "torch.bfloat16 False"


def test_operands_keep_their_binding() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    power = graph.call_function(operator.pow, (-2.0, x))
    less = graph.call_function(operator.sub, (power, -1))
    graph.output((graph.call_function(operator.neg, (less,)), (float("-inf"), complex(0, -1))))
    gm = torch.fx.GraphModule({}, graph)
    text = graph_to_python(gm)
    assert "(-2.0) ** x" in text
    # The interpreter, not gm(): the code that FX 2.13 makes says -2.0 ** x, that is -(2.0 ** x)
    expected = pytree.tree_leaves(torch.fx.Interpreter(gm).run(torch.tensor([2.0, 3.0])))
    assert_same(outputs(build(text, Case(gm, ())), [torch.tensor([2.0, 3.0])]), expected)


@pytest.mark.parametrize("name", ["torch", "operator", "math", "self", "constants", "graph"])
def test_a_node_with_the_name_of_a_module_does_not_hide_it(name: str) -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder(name)
    other = graph.call_function(torch.relu, (node,), name=f"{name}_")
    graph.output((graph.call_function(torch.add, (other, node)),))
    gm = torch.fx.GraphModule({}, graph)
    (result,) = build(graph_to_python(gm), Case(gm, ()))(torch.ones(2))
    assert result.tolist() == [2.0, 2.0]
