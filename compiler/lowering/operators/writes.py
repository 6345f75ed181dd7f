"""Lowerings of operators that write to existing memory.

At the end of a graph `copy_` writes to its inputs; users' passes may write elsewhere. The result is
the written memory, as a view. Memory made by a kernel is written by the library: else kernels that
wait for each other could belong to one inseparable unit (`order.together`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.lowering.arrays import Array, cast, expand
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import View
from ctk.compiler.lowering.operators.indexing import TABLE as INDEXING
from ctk.compiler.lowering.operators.pointwise import TABLE as POINTWISE
from ctk.compiler.lowering.order import base_name, memory_of
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten
_FUNCTIONAL = {**POINTWISE, **INDEXING}


def _copy(b: Builder, x: Array, source: Array, non_blocking: bool = False) -> View:
    """Write a tensor; through other memory if it reads the memory that it writes."""
    target = _target(b)
    values = expand(cast(source, x.dtype), x.shape)
    if _reads(b, target):
        values = b.read(b.realize(values))
    b.write(target, values)
    return target


def _in_place(operator: object) -> Callable[..., View]:
    lowering = _FUNCTIONAL[operator]

    def lower(b: Builder, x: Array, *args: Any, **kwargs: Any) -> View:
        target = _target(b)
        if _reads(b, target):
            raise NotLowered("it reads elements that it writes at other positions")
        with b.writing(x, target):
            result = lowering(b, x, *args, **kwargs)
        if result is not x:
            b.write(target, result)
        return target

    return lower


def _target(b: Builder) -> View:
    node = b.current.args[0]
    if not isinstance(node, Node) or node.name not in b.draft.views:
        raise NotLowered("it writes to memory that kernels do not write")
    target = b.draft.views[node.name]
    if b.draft.buffers[target.buffer].role == "kernel":
        raise NotLowered("it writes to memory that a kernel made")
    return target


def _reads(b: Builder, target: View) -> bool:
    """Return whether an operand but the first is in the memory that is written."""
    base = base_name(b.draft.buffers, target.buffer)
    others = b.current.all_input_nodes[1:]
    return any(base in memory_of(other, b.draft.views, b.draft.buffers) for other in others)


TABLE: Mapping[object, Callable[..., View]] = {
    aten.copy_.default: _copy,
    aten.index_add_.default: _in_place(aten.index_add.default),
    aten.index_copy_.default: _in_place(aten.index_copy.default),
    aten.index_fill_.int_Scalar: _in_place(aten.index_fill.int_Scalar),
    aten.index_fill_.int_Tensor: _in_place(aten.index_fill.int_Tensor),
    aten.index_put_.default: _in_place(aten.index_put.default),
    aten.masked_fill_.Scalar: _in_place(aten.masked_fill.Scalar),
    aten.masked_fill_.Tensor: _in_place(aten.masked_fill.Tensor),
    aten.scatter_.reduce: _in_place(aten.scatter.reduce),
    aten.scatter_.src: _in_place(aten.scatter.src),
    aten.scatter_.value: _in_place(aten.scatter.value),
    aten.scatter_.value_reduce: _in_place(aten.scatter.value_reduce),
    aten.scatter_add_.default: _in_place(aten.scatter_add.default),
    aten.scatter_reduce_.two: _in_place(aten.scatter_reduce.two),
}
