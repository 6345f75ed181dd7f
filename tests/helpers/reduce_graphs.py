"""Graphs and pure oracles for the tests and benchmarks of the reducer."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.scalars import size_hint
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.roles import roles_of
from ctk.toolkit.reduce.subgraphs import subgraphs

FAILURE = Signature("accuracy", output="out0")


def captured(function: Callable[..., object], *inputs: object, dynamic: bool = False) -> Case:
    """Return a case with the graph that Dynamo captures for a call of a function."""
    cases: list[Case] = []

    def backend(gm: GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        hints = (size_hint(v) if isinstance(v, torch.SymInt) else v for v in example_inputs)
        values = tuple(hints)
        modes, dynamic = Modes(grad=torch.is_grad_enabled()), describe_dynamic(gm)
        roles = roles_of(gm, values)
        cases.append(Case(gm, values, target="fake", modes=modes, dynamic=dynamic, roles=roles))
        return gm.forward

    torch.compiler.reset()
    torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    return cases[0]


def chain(length: int, special: dict[int, Callable[[torch.Tensor], torch.Tensor]]) -> Case:
    """Return a chain of unary ops on a 4x4 tensor; at the keys of `special` stand others."""
    ops = (torch.sin, torch.cos, torch.tanh, torch.sigmoid)

    def run(x: torch.Tensor) -> torch.Tensor:
        for index in range(length):
            x = special.get(index, ops[index % len(ops)])(x)
        return x

    return captured(run, torch.linspace(-1, 1, 16).reshape(4, 4))


def transformer(layers: int, guilty: int) -> Case:
    """Return an encoder, 24 nodes a layer; in layer `guilty`, `hardtanh` follows `gelu`."""
    torch.manual_seed(0)
    width, heads = 8, 2
    weights = [
        {name: torch.randn(width, width) * 0.3 for name in ("q", "k", "v", "o", "up", "down")}
        for _ in range(layers)
    ]

    def layer(x: torch.Tensor, w: dict[str, torch.Tensor], is_guilty: bool) -> torch.Tensor:
        y = F.layer_norm(x, (width,))
        q, k, v = (
            F.linear(y, w[name]).view(2, 3, heads, width // heads).transpose(1, 2)
            for name in ("q", "k", "v")
        )
        scores = (q @ k.transpose(-2, -1) / 2.0).softmax(-1)
        x = x + F.linear((scores @ v).transpose(1, 2).reshape(2, 3, width), w["o"])
        y = F.gelu(F.linear(F.layer_norm(x, (width,)), w["up"]))
        y = F.hardtanh(y) if is_guilty else y
        return x + F.linear(y, w["down"])

    def run(x: torch.Tensor, *flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for index in range(layers):
            names = ("q", "k", "v", "o", "up", "down")
            group = dict(zip(names, flat[index * 6 : index * 6 + 6], strict=True))
            x = layer(x, group, index == guilty)
        return x, x.mean()

    flat = [w[name] for w in weights for name in ("q", "k", "v", "o", "up", "down")]
    return captured(run, torch.randn(2, 3, width), *flat)


def op_names(case: Case) -> list[str]:
    """Return the names of what the call nodes of a case call, in order."""
    return [op_name(node) for node in case.graph.graph.nodes if node.op in CALLS]


def op_name(node: torch.fx.Node) -> str:
    """Return the name of what a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")


def has_ops(*names: str) -> Callable[[Case], bool]:
    """Return the predicate that a graph calls each of these, anywhere."""
    return lambda case: set(names) <= set(op_names(case))


def feeds(producer: str, consumer: str) -> Callable[[Case], bool]:
    """Return the predicate that the value of one op is an argument of another."""

    def name(node: torch.fx.Node) -> str | None:
        return op_name(node) if node.op in CALLS else None

    return lambda case: any(
        name(node) == consumer and producer in [name(source) for source in node.all_input_nodes]
        for node in case.graph.graph.nodes
    )


class FakeOracle:
    """An oracle over a pure predicate that also runs each case in eager, so that none is invalid.

    Attributes:
        asked: Every case that it was asked about, in order.
    """

    def __init__(self, predicate: Callable[[Case], bool]) -> None:
        self.predicate = predicate
        self.asked: list[Case] = []

    def __call__(self, case: Case) -> Judgement:
        self.asked.append(case)
        inputs = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in case.inputs]
        case.graph(*inputs)
        if self.predicate(case):
            return Judgement(Verdict.REPRODUCES, FAILURE)
        return Judgement(Verdict.PASSES)


def tree(depth: int) -> Case:
    """Return a binary tree of additions over unary ops; one of its leaves is `gelu(relu(x))`."""
    ops = (torch.sin, torch.cos, torch.tanh)

    def build(x: torch.Tensor, level: int, path: int) -> torch.Tensor:
        if level == 0:
            x = F.gelu(torch.relu(x)) if path == 2**depth // 3 else x
            return ops[path % len(ops)](x)
        left, right = (build(x, level - 1, 2 * path + side) for side in (0, 1))
        return left + right

    return captured(lambda x: build(x, depth, 0), torch.linspace(-1, 1, 16).reshape(4, 4))


def unread_operand() -> Case:
    """Return a case of a `cond` with an operand that neither branch reads."""
    case = captured(
        lambda x, y: torch.cond(
            x.sum() > 0, lambda a, b: a.sin() + b, lambda a, b: a.cos() + b, (x, y * 2)
        ),
        torch.linspace(-1, 1, 16).reshape(4, 4),
        torch.ones(4, 4),
    )
    for body in subgraphs(case.graph):
        add = next(n for n in body.graph.graph.nodes if n.op != "placeholder" and "add" in n.name)
        add.replace_all_uses_with(add.args[0])
        body.graph.graph.erase_node(add)
        body.graph.recompile()
    return case
