"""Costs of a node: bytes to save it, and an estimate of the time to compute it again.

Symbolic sizes count with their hints. Time is in floating-point operations; moving one byte counts
as `PER_BYTE` of them.

Source: torch/_functorch/partitioners.py, `_size_of` and `estimate_runtime`. Differs: nothing is run
to count its operations, and bytes count, so that of two cheap operators the smaller is cheaper.
"""

import math
from collections.abc import Iterable

import torch
from torch.fx import Node

from ctk.compiler.fx.types import value_of
from ctk.compiler.torch_compat.aot.partition import flops, hint
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map

UNKNOWN_SIZE = 4096
"""The size assumed for a symbol without a hint; the value of torch's partitioner."""

PER_BYTE = 10
"""Operations of a processor in the time that it moves one byte: about 10 on CPUs, more on GPUs.
Only the ranking of nodes to recompute depends on it."""


def nbytes(node: Node) -> int:
    """Return the bytes of a node's value, or of all its results; a symbolic number is one."""
    return sum(map(_nbytes, tree_leaves(value_of(node))))


def total_nbytes(nodes: Iterable[Node]) -> int:
    """Return the bytes of several nodes."""
    return sum(map(nbytes, nodes))


def _nbytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return math.prod(_hints(value), start=value.dtype.itemsize)
    return int(isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)))


def _hints(value: torch.Tensor) -> list[int]:
    return [hint(size, UNKNOWN_SIZE) for size in value.shape]


def run_time(node: Node) -> float:
    """Return an estimate of the time that a node takes, in floating-point operations."""
    moved = nbytes(node) + total_nbytes(node.all_input_nodes)
    return _flops(node) + PER_BYTE * moved


def _flops(node: Node) -> int:
    args, kwargs = tree_map(_strip_symbols, (list(node.args), dict(node.kwargs)))
    return flops(node, (tuple(args), kwargs), _strip_symbols(node))


def _strip_symbols(value: object) -> object:
    """Return a meta tensor without symbols for a node; any other value unchanged."""
    known = value_of(value) if isinstance(value, Node) else value
    if isinstance(known, torch.Tensor):
        return torch.empty(_hints(known), dtype=known.dtype, device="meta")
    return hint(known, UNKNOWN_SIZE) if isinstance(known, torch.SymInt) else known
