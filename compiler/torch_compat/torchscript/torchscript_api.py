"""TorchScript: the private names of `torch.jit` (torch 2.11, 2.13)."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
from collections.abc import Generator
from typing import Any

import torch


def operators(graph: Any) -> list[str]:
    """Return the operator of each node of a TorchScript graph, in order: `aten::add.Scalar`.

    Nodes without a schema give their kind (`prim::TupleConstruct`). Nested blocks are left out.
    """
    schemas = ((node.kind(), str(node.schema())) for node in graph.nodes())
    return [kind if text == "(no schema)" else text.split("(", 1)[0] for kind, text in schemas]


def remove_mutation(graph: Any) -> None:
    """Make in-place ops functional if TorchScript can prove that this is unobservable."""
    torch._C._jit_pass_remove_mutation(graph)


def written_attributes(graph: Any) -> list[str]:
    """Return the module attributes that a TorchScript graph may write to."""
    aliases = graph.alias_db()
    reads = [node for node in graph.nodes() if node.kind() == "prim::GetAttr"]
    return [str(node.s("name")) for node in reads if aliases.has_writers(node.output())]


def outputs_of_constants(graph: Any) -> tuple[int, ...]:
    """Return which elements of a graph's returned tuple may share memory with a constant of it."""
    (returned,) = graph.return_node().inputs()
    if returned.node().kind() != "prim::TupleConstruct":  # the whole tuple was folded
        return tuple(range(len(returned.type().elements())))
    aliases = graph.alias_db()
    constants = [node.output() for node in graph.nodes() if node.kind() == "prim::Constant"]
    tensors = [value for value in constants if value.type().kind() == "TensorType"]
    values = list(returned.node().inputs())
    shares = (any(aliases.may_contain_alias(value, each) for each in tensors) for value in values)
    return tuple(index for index, shared in enumerate(shares) if shared)


@contextlib.contextmanager
def autocast_off() -> Generator[None]:
    """Keep TorchScript from inserting casts: autocast was traced already. A flag of the process."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_autocast_mode(before)
