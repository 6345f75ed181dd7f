"""Compute a scatter onto a tensor of equal elements place by place, fused with its readers.

Rules, where `u` is `full`, `zeros`, `ones` or such, and the index `i` has one element along `dim`
and all others of `u`:
    1. scatter(u, dim, i, v) -> where(i == places, v, u)     `v`: a number, or a tensor like `i`
    2. scatter_add(zeros, dim, i, v) -> where(i == places, v + 0, 0)
`places` counts along `dim`. Each element is written once at most, so nothing is accumulated; the
sum with 0 makes 0.0 of -0.0, as accumulation does. `i` is read by way of a gather from `places`:
its kernels check that it is in range, as those of a scatter do.

Preconditions: a reader of the result works element by element (with it the program is 1.8 to 3.2
times as fast on a CPU, measured; alone, or before a sum over rows, a scatter is as fast or faster);
`v` has the type of the result; numbers are finite and not -0.0 (code generators print them);
nothing writes to `u`; not complex; no size is a symbol. Exact.

Source: Inductor's `scatter_upon_const_tensor`, of a number only, which does not check the index.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of
from ctk.compiler.passes.joint.fold_uniform_values import FILLS, fill_value, number_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

aten = torch.ops.aten
_SETS = (aten.scatter.value, aten.scatter.src)
_SCATTERS = (*_SETS, aten.scatter_add.default)


class ScatterToWhere(Pass):
    """Compute a scatter onto a tensor of equal elements at each place."""

    name = "scatter_to_where"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            if node.target in _SCATTERS and node.args[0] not in written and _may(node):
                name = str(node.target).removeprefix("aten.")
                rewriter.replace_by(
                    f"{name}(uniform) -> where", [node], _replacement(rewriter, node)
                )


def _may(node: Node) -> bool:
    """Return whether each element of the result is the uniform or the scattered one."""
    start, dim, index, value = (*node.args, None, None, None, None)[:4]
    result, places, part = tensor_of(node), tensor_of(index), tensor_of(value)
    if node.kwargs or len(node.args) != 4 or result is None or places is None:
        return False
    if not isinstance(start, Node) or start.target not in FILLS or not isinstance(dim, int):
        return False
    if result.is_complex() or not is_dense(result) or not same_layout(node, start):
        return False
    if any(map(fake.is_symbolic, result.shape)) or not _is_line(places, result, dim):
        return False
    if isinstance(value, Node) and (
        part is None or part.dtype != result.dtype or not same_sizes(part.shape, places.shape)
    ):
        return False
    fill = fill_value(start)
    if fill is None or not _is_printed(number_of(fill), result.dtype):
        return False
    if not isinstance(value, Node) and not _is_printed(value, result.dtype):
        return False
    is_zero = number_of(fill) == 0
    if node.target not in _SETS and not is_zero:
        return False
    return _is_read(node)


def _is_line(places: torch.Tensor, result: torch.Tensor, dim: int) -> bool:
    sizes = list(result.shape)
    if not sizes or places.dim() != len(sizes):
        return False
    sizes[dim] = 1
    return same_sizes(places.shape, sizes)


def _is_printed(value: object, dtype: torch.dtype) -> bool:
    """Return whether a number is one of the dtype, finite and not -0.0."""
    if not isinstance(value, (bool, int, float)) or str(value) in ("-0.0", "nan", "inf", "-inf"):
        return False
    if dtype.is_floating_point:
        return abs(value) <= torch.finfo(dtype).max
    low, high = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return low <= value <= high and value == int(value)


def _is_read(node: Node) -> bool:
    """Return whether a reader computes on each element, and would fuse with the scatter."""
    declared = (operators.declared_by(user.target) for user in node.users)
    return any(each is not None and each.pointwise for each in declared)


def _replacement(rewriter: Rewriter, node: Node) -> Callable[[], Node]:
    def make() -> Node:
        start, dim, index, value = cast("tuple[Node, int, Node, Any]", node.args)
        result, fill = tensor_of(node), fill_value(start)
        assert result is not None  # _may has looked
        assert fill is not None
        call = rewriter.inserter(node)
        options = {"dtype": result.dtype, "device": result.device}
        sizes = [1] * result.dim()
        sizes[dim] = result.shape[dim]
        numbers = call(aten.arange.default, result.shape[dim], device=result.device)
        places = call(aten.view.default, numbers, sizes)
        whole = call(aten.expand.default, places, list(result.shape))
        checked = call(aten.gather.default, whole, dim, index)
        if node.target is aten.scatter_add.default:
            value = call(aten.add.Tensor, value, 0)
        elif not isinstance(value, Node):
            value = call(aten.full.default, [], value, **options)
        other = call(aten.full.default, [], number_of(fill), **options)
        return call(aten.where.self, call(aten.eq.Tensor, checked, places), value, other)

    return make


def examples() -> list[Example]:
    """Return programs that the pass changes, for each rule."""
    x = torch.ones(4, 3)

    def largest(x: torch.Tensor) -> torch.Tensor:
        return aten.argmax.default(x, 1, True)

    return [
        (lambda x: aten.scatter.value(torch.zeros_like(x), 1, largest(x), -1.0).exp(), (x,)),
        (lambda x: aten.scatter.value(torch.full_like(x, 7), -1, largest(x), 2) + x, (x,)),
        (lambda x: aten.scatter.src(torch.ones_like(x), 1, largest(x), x[:, :1]).neg(), (x,)),
        (lambda x: aten.scatter_add.default(x.new_zeros(4, 3), 1, largest(x), x[:, 1:2]) * 2, (x,)),
        (lambda x: aten.scatter.value(x.new_zeros(3, 4), 0, largest(x).t(), 1.0).sin(), (x,)),
    ]


PASS = ScatterToWhere()
