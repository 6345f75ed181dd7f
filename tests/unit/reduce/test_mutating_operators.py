"""Custom operators that write to their arguments: found, reduced to one call, with a repro."""

import json
from pathlib import Path

import pytest

from ctk.toolkit.operations.diagnose import diagnose

OPERATORS = """
import torch


@torch.library.custom_op("{space}::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


@torch.library.custom_op("{space}::fill_both", mutates_args=("a", "b"))
def fill_both(a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a.copy_(y)
    b.copy_(y + 1)
    return y * 2


@fill_both.register_fake
def _(a, b, y):
    return torch.empty_like(y)


@torch.library.custom_op("{space}::add_all", mutates_args=("xs",))
def add_all(xs: list[torch.Tensor], by: float) -> None:
    for x in xs:
        x.add_(by)


def one(x, y):
    z = (x.sin() + y).clone()
    scale_(z, 2.0)
    return (z.cos() * y).relu()


def two(x, y):
    a, b = torch.zeros_like(x), torch.ones_like(x)
    r = fill_both(a, b, x.exp())
    return a - 2 * b + r.tanh(), y.cos()


def many(x, y):
    p, q = x.clone(), y.sin()
    add_all([p, q], 0.5)
    return p * q, x + y


def model():
    return {function}


def inputs():
    return torch.randn(4, 8), torch.randn(4, 8)


def wrong(graph, inputs):
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.{space}.{call}.default):
        node.args = {arguments}
    graph.recompile()
    return graph.forward
"""
CALLS = {
    "one": ("scale_", "(node.args[0], node.args[1] + 1)"),
    "two": ("fill_both", "(node.args[1], node.args[0], node.args[2])"),
    "many": ("add_all", "(node.args[0], node.args[1] + 1)"),
}


@pytest.mark.parametrize("function", CALLS)
def test_the_call_is_found_reduced_and_reproduced(function: str, tmp_path: Path) -> None:
    call, arguments = CALLS[function]
    program, out = tmp_path / "program.py", tmp_path / "out"
    space = f"ctk_test_mutating_{function}"
    names = {"space": space, "function": function, "call": call, "arguments": arguments}
    program.write_text(OPERATORS.format(**names))

    found = diagnose(program, target=f"{program}:wrong", out=out)
    assert found.search.confirmed
    graph = json.loads((out / "minimal" / "graph.json").read_text())
    calls = [node["target"] for node in graph["nodes"] if node["op"].startswith("call")]
    assert calls == [f"torch.ops.{space}.{call}.default"]
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"
    assert "needs torch only" in (out / "minimal" / "repro.py").read_text()
