"""Take parts of tensors without parts of parts, and without writing back unchanged values.

Rules, along one dimension and with step 1:
    1. slice(slice(x, a, b), c, d) -> slice(x, a + c, a + d)      a part of `split` counts as a
       slice
    2. select(slice(x, a, b), i) -> select(x, a + i)
    3. squeeze(slice(x, i, i + 1)) -> select(x, i)
    4. slice_scatter(x, slice(x, a, b), a, b) -> x      the same with `select`
    5. slice_scatter(x, y), all of the dimension -> y
Preconditions: 1. to 3. are views of the same memory with the same strides, so unobservable. 4. and
5. make no copy: the result does not leave the graph, nothing writes to its replacement, and the
strides are the same, or no user notices them. Bounds and sizes are numbers, not symbols. Exact.

Source: `slice_noop` and `slice_scatter_noop` in `torch/_inductor/fx_passes/post_grad.py`, and
`split_with_sizes` with `squeeze` in `split_cat.py`. Those look neither at sharing nor at strides.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.fx import Node
from torch.fx.node import Argument

from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.passes.post_grad.parts import arguments, axis_of, may_stand_for, part_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten
Call = tuple[Callable[..., object], tuple[Argument, ...]]


class SimplifySlices(Pass):
    """Take parts of tensors without parts of parts, and without writing back unchanged values."""

    name = "simplify_slices"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            source = _source(node)
            if source is not None and may_stand_for(source, node, written):
                rewriter.replace(node, source, rule=f"{node.target}(x, ...) -> what it makes")
            elif (view := _slice_of_part(node) or _item_of_part(node)) is not None:
                _take(rewriter, node, view)


def _source(node: Node) -> Node | None:
    """Rules 4 and 5: return the tensor that has the values of an update."""
    operands = node.args[:2]
    if node.target not in _TAKEN or node.kwargs or len(operands) < 2:
        return None
    old, new = operands
    if not isinstance(old, Node) or not isinstance(new, Node):
        return None
    if new.target is _TAKEN[node.target] and new.args == (old, *node.args[2:]) and not new.kwargs:
        return old
    return new if _is_whole(node, old) else None


_TAKEN: Mapping[object, object] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}


def _is_whole(node: Node, old: Node) -> bool:
    """Rule 5."""
    if node.target is not aten.slice_scatter.default:
        return False
    given, start, end, step = arguments(node, None, 0, None, None, 1)[1:]
    tensor = tensor_of(old)
    axis = axis_of(tensor, given)
    if tensor is None or axis is None or type(tensor.shape[axis]) is not int:
        return False
    is_to_end = end is None or (isinstance(end, int) and end >= tensor.shape[axis])
    return start in (None, 0) and is_to_end and step == 1


def _slice_of_part(node: Node) -> Call | None:
    """Rule 1."""
    outer = part_of(node) if node.target is aten.slice.Tensor else None
    part = part_of(outer.source) if outer is not None else None
    if outer is None or part is None or outer.axis != part.axis:
        return None
    bounds = (part.begin + outer.begin, part.begin + outer.end)
    return aten.slice.Tensor, (part.source, part.axis, *bounds)


def _item_of_part(node: Node) -> Call | None:
    """Rules 2 and 3."""
    inner = node.args[0] if node.target in _ITEMS and node.args else None
    part = part_of(inner) if isinstance(inner, Node) else None
    if part is None:
        return None
    given, index = arguments(node, None, 0)
    if isinstance(given, (list, tuple)):
        given = given[0] if len(given) == 1 else None
    size = part.end - part.begin
    is_squeeze = node.target is not aten.select.int
    if axis_of(tensor_of(inner), given) != part.axis or not isinstance(index, int):
        return None
    if (is_squeeze and size != 1) or not -size <= index < size:
        return None
    return aten.select.int, (part.source, part.axis, part.begin + index % size)


_ITEMS = (aten.select.int, aten.squeeze.dim, aten.squeeze.dims)


def _take(rewriter: Rewriter, node: Node, view: Call) -> None:
    target, args = view
    source, axis, *_ = args
    outer, tensor = tensor_of(source), tensor_of(node)
    assert outer is not None  # it has parts
    assert tensor is not None
    strides = list(outer.stride())
    if target is aten.select.int:
        strides.pop(axis)  # type: ignore[arg-type]  # the dimension of a part
    if not same_sizes(strides, tensor.stride()):  # a wrapped tensor: the recorded strides differ
        return

    make = partial(rewriter.insert, target, args, before=node)
    nodes = [node, node.all_input_nodes[0]]
    rewriter.replace_by(f"{node.target}(part of x) -> {target}(x)", nodes, make)


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule."""
    x, y = torch.ones(4, 3), torch.ones(2, 3)
    return [
        (lambda x: aten.slice.Tensor(aten.slice.Tensor(x, 0, 1, 4), 0, -2, 9), (x,)),
        (lambda x: x.split([1, 3])[1][1:].neg(), (x,)),
        (lambda x: aten.select.int(aten.slice.Tensor(x, 0, 1, 4), 0, -1), (x,)),
        (lambda x: aten.squeeze.dim(x.split(1)[2], 0).sin(), (x,)),
        (lambda x: aten.slice_scatter.default(x, x[1:3], 0, 1, 3).sin(), (x,)),
        (lambda x: aten.select_scatter.default(x, x.select(0, 1), 0, 1).sin(), (x,)),
        (lambda x: aten.slice_scatter.default(x.neg(), x, 1, 0, 3).sin(), (x,)),
        (lambda x, y: aten.slice_scatter.default(y, x[2:], 0).sin(), (x, y)),
    ]


PASS = SimplifySlices()
