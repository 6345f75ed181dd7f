"""Parts of a tensor along one dimension, however they are cut out: by `slice` or by `split`.

Known sizes only: no bound depends on a symbol. And whether a tensor may stand for a copy of it.
"""

import operator
from collections.abc import Container
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import SPLITS
from ctk.compiler.fx.properties import base_of, escapes
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import same_layout, same_type, tensor_of, value_of

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Part:
    """`source[begin:end]` along a dimension, counted from 0."""

    source: Node
    axis: int
    begin: int
    end: int


def axis_of(tensor: torch.Tensor | None, given: object) -> int | None:
    """Return a dimension that a call names, counted from 0."""
    if tensor is None or not isinstance(given, int) or not tensor.dim():
        return None
    return given % tensor.dim()


def arguments(node: Node, *defaults: object) -> tuple[object, ...]:
    """Return the arguments behind the first, with defaults for missing ones.

    If one is given by keyword, all are None, which no rule takes.
    """
    if node.kwargs:
        return (None,) * len(defaults)
    return (*node.args[1:], *defaults[len(node.args) - 1 :])


def part_of(node: Node) -> Part | None:
    """Return which part of which tensor a node is; None if it is none, or its sizes are symbols."""
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, Node):
        return None
    if node.target is aten.slice.Tensor:
        return _slice(node, source)
    if node.target is operator.getitem and source.target in SPLITS:
        return _item(node.args[1], source)
    return None


def _slice(node: Node, source: Node) -> Part | None:
    given, start, end, step = arguments(node, 0, None, None, 1)
    tensor = tensor_of(source)
    axis = axis_of(tensor, given)
    if tensor is None or axis is None or step != 1:
        return None
    size = tensor.shape[axis]
    bounds = [0 if start is None else start, size if end is None else end]
    if not all(type(each) is int for each in (size, *bounds)):
        return None
    begin, last = (_within(cast("int", bound), size) for bound in bounds)
    return Part(source, axis, begin, max(begin, last))


def _within(bound: int, size: int) -> int:
    return min(max(bound + size if bound < 0 else bound, 0), size)


def _item(index: object, split: Node) -> Part | None:
    source, values = split.args[0], value_of(split)
    if not isinstance(source, Node) or not isinstance(values, (list, tuple)):
        return None
    axis = axis_of(tensor_of(source), arguments(split, None, 0)[1])
    parts = cast("list[torch.Tensor]", values)
    if axis is None or type(index) is not int or not 0 <= index < len(parts):
        return None
    sizes = [part.shape[axis] for part in parts[: index + 1]]
    if not all(type(size) is int for size in sizes):
        return None
    return Part(source, axis, sum(sizes[:-1]), sum(sizes))


def may_stand_for(source: Node, node: Node, written: Container[Node]) -> bool:
    """Return whether replacing a copy by its source is unobservable.

    Args:
        source: The replacement.
        node: A copy: new memory.
        written: The nodes whose memory is written to.
    """
    mine, others = tensor_of(node), tensor_of(source)
    if mine is None or others is None or not same_type(mine, others):
        return False
    if escapes(node) or base_of(source) in written:
        return False
    return same_layout(node, source) or not is_noticed({node: others.stride()})
