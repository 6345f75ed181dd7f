"""Backends for torch.compile: each edits the captured graph, and runs it in eager."""

from collections.abc import Callable, Sequence

import torch
from torch.fx import GraphModule, Node

F = torch.nn.functional


def plain(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Run the graph as it is."""
    return gm.forward


def fast_silu(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Compute SiLU without `exp`; BUG: hardswish is another function."""
    return _replace(gm, F.silu, lambda x, inplace=False: F.hardswish(x))


def low_memory_relu(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Save nothing for the backward of ReLU; BUG: its gradient is not masked."""

    class ReLU(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad

    return _replace(gm, F.relu, lambda x, inplace=False: ReLU.apply(x))


def frozen_statistics(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Compute batch norms on copies of their statistics; BUG: in training these change."""

    def batch_norm(x, mean, var, *rest):
        return F.batch_norm(x, mean.clone(), var.clone(), *rest)

    return _replace(gm, F.batch_norm, batch_norm)


def half_products(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Multiply matrices in bfloat16; BUG: the result keeps that dtype."""

    def linear(x, weight, bias=None):
        low = [None if each is None else each.bfloat16() for each in (x, weight, bias)]
        return F.linear(*low)

    return _replace(gm, F.linear, linear)


def remember_results(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Compute equal calls once; BUG: calls with arguments of equal shapes are not equal."""
    known: dict[tuple[torch.Size, ...], object] = {}

    def run(*args: torch.Tensor) -> object:
        key = tuple(each.shape for each in args if isinstance(each, torch.Tensor))
        if key not in known:
            known[key] = gm(*args)
        return known[key]

    return run


def no_scans(gm: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
    """Run graphs without scans; BUG: it raises for the others, where it could leave them alone."""
    for node in gm.graph.nodes:
        if node.target in ("cumsum", torch.cumsum):
            raise NotImplementedError(f"no kernel for {node.name}")
    return gm.forward


def _replace(
    gm: GraphModule, function: object, other: Callable[..., object]
) -> Callable[..., object]:
    nodes: list[Node] = [node for node in gm.graph.nodes if node.target is function]
    for node in nodes:
        node.target = other
    gm.recompile()
    return gm.forward
