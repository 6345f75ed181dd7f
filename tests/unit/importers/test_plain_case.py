"""Graphs that take tensors of classes of their own become cases of the graph of their parts."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import ctk
from ctk.compiler.fx.walk import input_names
from tests.helpers.repros import run_here

Write = Callable[[str], str]

CLASSES = '''
import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing


class Pair(torch.Tensor):
    """Two halves of a sum, as torchao's weights: no `clone` of its own."""

    @staticmethod
    def __new__(cls, low, high):
        return torch.Tensor._make_wrapper_subclass(cls, low.shape, dtype=torch.float32)

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __tensor_flatten__(self):
        return ["low", "high"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Pair(parts["low"], parts["high"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default:
            detached = cls(args[0].low.detach(), args[0].high.detach())
            return return_and_correct_aliasing(func, args, kwargs, detached)
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.low + t.high, (args, kwargs))
        return func(*args, **kwargs)


class Marked(torch.Tensor):
    """Plain memory under a name of its own."""
'''

PROGRAMS = {
    "input": (
        "def f(x, w):\n    return (x @ w).relu() - 1\n",
        "torch.randn(3, 4), Pair(torch.randn(4, 4), torch.randn(4, 4))",
        ["l_x_", "l_w_low", "l_w_high"],
    ),
    "in a list": (
        "def f(pairs):\n    return (pairs[0] * pairs[1]).relu()\n",
        "[Pair(torch.randn(4), torch.randn(4)), torch.randn(4)],",
        None,
    ),
    "jagged": (
        "def f(x):\n    return (x * 2).relu()\n",
        "torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged),",
        None,
    ),
    "marked": (
        "def f(x):\n    return x.relu() * 2\n",
        "torch.randn(4).as_subclass(Marked),",
        None,
    ),
    "autocast": (
        "def f(x, w):\n    with torch.autocast('cpu', torch.bfloat16):\n"
        "        return (x @ w).relu() - 1\n",
        "torch.randn(3, 4), Pair(torch.randn(4, 4), torch.randn(4, 4))",
        None,
    ),
}

NO_RELU = """
import torch

def no_relu(gm):
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.relu.default:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faults.py").write_text(NO_RELU)

    def program(name: str) -> str:
        body, inputs, _ = PROGRAMS[name]
        ends = "def model():\n    return f\ndef inputs():\n    torch.manual_seed(0)\n"
        ends += f"    return {inputs}\n"
        (tmp_path / "program.py").write_text(f"{CLASSES}\n{body}\n{ends}")
        return "program.py"

    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_healthy_program_has_a_case_of_plain_tensors(write: Write, name: str):
    report = ctk.check(write(name))
    assert report.ok and report.graphs, str(report)
    (graph,) = report.graphs
    assert all(type(value) is torch.Tensor for value in graph.case.inputs)
    wanted = PROGRAMS[name][2]
    assert wanted is None or input_names(graph.case.graph) == wanted


@pytest.mark.parametrize("name", ["input", "jagged", "autocast"])
def test_a_wrong_pass_is_named_and_the_case_runs_elsewhere(write: Write, name: str, tmp_path: Path):
    config = {"custom_passes": {"forward": [f"{tmp_path / 'faults.py'}:no_relu"]}}
    found = ctk.diagnose(write(name), config=config, out=tmp_path / "out")
    culprit = found.search.culprit
    assert culprit is not None and culprit.where == "forward/no_relu", found
    case = ctk.load_case(tmp_path / "out" / "minimal", trust=True)
    assert not ctk.check(case).ok
    code, said = run_here(tmp_path / "out" / "minimal" / "repro.py")
    assert code == 1 and said.startswith("FAILURE"), said


UNTRACEABLE = """
class Lost(Pair):
    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        if torch.fx.experimental.proxy_tensor.get_proxy_mode() is not None:
            raise LookupError("the parts are lost in a trace")
        return Lost(parts["low"], parts["high"])
"""


def test_a_graph_that_cannot_be_traced_has_its_calls_compared(write: Write, tmp_path: Path):
    body = "\ndef f(x):\n    return x.relu()\ndef model():\n    return f\n"
    inputs = "def inputs():\n    return (Lost(torch.ones(2), torch.ones(2)),)\n"
    (tmp_path / "program.py").write_text(f"{CLASSES}{UNTRACEABLE}{body}{inputs}")
    report = ctk.check("program.py", target="eager")
    assert not report.graphs
    assert "the parts are lost" in str(report)
