"""The passes of torch.jit over frozen graphs, one by one, as `torch.jit.freeze` runs them.

Seen in torch 2.11 and 2.13: torch/csrc/jit/passes/frozen_*.cpp, `OptimizeFrozenGraph`.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

JitGraph = Any
"""A `torch._C.Graph`: operators of torch in static single assignment."""


@dataclass(frozen=True, slots=True)
class JitPass:
    """A pass over a frozen graph.

    Attributes:
        name: As in torch's source: `fold_frozen_conv_bn`.
        for_inference: Whether only `optimize_for_inference` runs it.
    """

    name: str
    run: Callable[[JitGraph], object]
    for_inference: bool = False


_ROUNDS = 3
"""How often the folding passes follow each other: `conv -> mul -> add -> bn` takes that many."""


def jit_passes() -> Iterator[JitPass]:
    """Yield the passes in the order in which torch runs them."""
    yield _pass("concat_frozen_linear")
    for _ in range(_ROUNDS):
        for folded in ("conv_bn", "conv_add_or_sub", "conv_mul_or_div", "linear_bn"):
            yield _pass(f"fold_frozen_{folded}")
    for name in ("fuse_frozen_conv_add_relu", "convert_frozen_ops_to_mkldnn"):
        yield _pass(name, for_inference=True)
    yield _pass("transpose_frozen_linear", for_inference=True)


def _pass(name: str, *, for_inference: bool = False) -> JitPass:
    return JitPass(name, getattr(torch._C, f"_jit_pass_{name}"), for_inference)


def freeze_graph(module: torch.nn.Module, inputs: Sequence[object]) -> JitGraph:
    """Trace a module in evaluation mode to a graph of the inputs alone, with its tensors constant.

    Raises:
        ValueError: The module writes to its own tensors.
        RuntimeError: The error of torch.jit.
    """
    with warnings.catch_warnings():  # Dynamo has resolved value-dependent branches
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(module, tuple(inputs), check_trace=False)
    graph = torch.jit._recursive.wrap_cpp_module(torch._C._freeze_module(traced._c, [])).graph
    owner = next(iter(graph.inputs()))
    if owner.uses():
        raise ValueError("the graph writes to a tensor of its module")
    graph = graph.copy()
    graph.eraseInput(0)
    return graph


def copy_graph(graph: JitGraph) -> JitGraph:
    """Return a copy that later passes do not touch."""
    return graph.copy()


def function_of(graph: JitGraph) -> Callable[..., Any]:
    """Return a callable of a graph; torch.jit optimises a copy of it."""
    return torch._C._create_function_from_graph("forward", graph.copy())


def text_of(graph: JitGraph) -> str:
    """Return a graph as text that is equal for equal graphs, independent of names of values."""
    return str(torch._C._jit_pass_canonicalize(graph.copy(), False))


def changed_kinds(before: JitGraph, after: JitGraph) -> tuple[str, ...]:
    """Return the operators that a pass took away or added: `-aten::conv2d`, `+aten::add_`."""
    counts: dict[str, int] = {}
    for graph, step in ((before, -1), (after, 1)):
        for node in graph.nodes():
            if node.kind() != "prim::Constant":
                counts[node.kind()] = counts.get(node.kind(), 0) + step
    return tuple(f"{'+' if n > 0 else '-'}{kind}" for kind, n in counts.items() if n)
