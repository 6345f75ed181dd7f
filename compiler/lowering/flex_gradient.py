"""Lower the gradient of attention with functions of its scores: two kernels, and a sum of rows.

    flex_attention_backward(query, key, value, result, logarithm, gradient, gradient of logarithm,
                            score_mod, joint graph, block_mask, scale, options, captured, captured)

The first kernel loops over keys, for the gradient of queries and of captured tensors; the second
over queries, for those of keys and values. The joint graph returns the gradients of a score and of
the captured tensors, each a scatter of a number (`zeros_and_scatter`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.arrays import Array, cast, constant
from ctk.compiler.lowering.attention import (
    LOG2_E,
    AttentionGradient,
    Axes,
    Loads,
    meaning_of_gradient,
)
from ctk.compiler.lowering.builder import Builder, require_atomic
from ctk.compiler.lowering.flex import (
    Mask,
    Operand,
    axes_of,
    lists_of,
    loads_of,
    loops_of,
    mask_of,
    number_of_graph,
    places_of,
    require_device,
    result_memory,
    scalar,
    scaled_dot,
)
from ctk.compiler.lowering.inlined import Scattered, folded, folded_index, inline
from ctk.compiler.lowering.ir import Local, Op, Store, Value
from ctk.compiler.sizes.index import Var, of_atom
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of


def lower_attention_gradient(builder: Builder, node: Node, operand: Operand) -> None:
    """Add the kernels of `flex_attention_backward`."""
    query, key, value, result, logarithm, gradient, of_logarithm = map(operand, node.args[:7])
    graph, joint, block_mask, scale = map(operand, node.args[7:11])
    _require(builder, query, key, gradient, joint)
    mask = mask_of(block_mask)
    require_device(builder, query, mask)
    axes = axes_of(query, key, value, mask.lists[1])
    b, h, m, _, _, e, _ = map(of_atom, loops_of(axes))
    delta = _delta(builder, result, gradient, of_logarithm)
    rows = (gradient.at((b, h, m, e)), logarithm.at((b, h, m)), delta.at((b, h, m)))
    loads: Any = (*loads_of(query, key, value, axes), *rows)
    dot, places = scaled_dot(query.dtype, scale), places_of(builder, axes)
    captured: Any = node.args[12]
    score = number_of_graph(builder, graph, [scalar(builder, dot), *places], captured, operand)
    masked = number_of_graph(builder, mask.graph, places, node.args[13], operand)
    of_score = scalar(builder, Local("gradient", dot.dtype))
    pairs: Any = [(value_of(each), operand(each)) for each in captured]
    made = inline(builder, joint, [scalar(builder, dot), *places, of_score, *pairs])
    if not isinstance(made[0], Array):
        raise NotLowered("its scores have no gradient")
    change = Op("mul", (folded(cast(made[0], dot.dtype).at(())), dot.args[1]), dot.dtype)
    heads = Var("g", key.shape[1])
    adding = _Adding(builder, node, axes, loads, (score, masked, change), mask, heads)
    adding.add(of_keys=False, scatters=tuple(_scatters(builder, node, made[5:])))
    adding.add(of_keys=True)


def _require(builder: Builder, query: Array, key: Array, gradient: Any, joint: Any) -> None:
    if not builder.attention_gradients:
        raise NotLowered("the gradient of attention has no kernels in C")
    if gradient is None or joint is None:
        raise NotLowered("its result has no gradient")
    if key.shape[0] != query.shape[0]:
        raise NotLowered("queries of all batches share keys")


def _delta(builder: Builder, result: Array, gradient: Array, of_logarithm: Array | None) -> Array:
    """Return the memory with the sum of result times gradient, for each query."""
    wide = torch.float64 if result.dtype == torch.float64 else torch.float32
    (total,) = builder.reduce("sum", cast(result, wide) * cast(gradient, wide), [3])
    if of_logarithm is None:
        return total
    less = total - cast(of_logarithm, wide) * LOG2_E
    return builder.read(builder.realize(less, "delta"))


@dataclass(frozen=True, slots=True)
class _Adding:
    """The gradient of one attention, as its kernels are added."""

    builder: Builder
    node: Node
    axes: Axes
    loads: Loads
    values: tuple[Value, Value, Value]
    mask: Mask
    heads: Var

    def add(self, *, of_keys: bool, scatters: tuple[Store, ...] = ()) -> None:
        """Add the kernel of the gradient of queries, or of keys and values."""
        axes, loads, mask = self.axes, self.loads, self.mask
        numbers = of_atom(axes.m) // mask.blocks[0], of_atom(axes.n) // mask.blocks[1]
        row, other = numbers[::-1] if of_keys else numbers
        listed = mask.lists[5 if of_keys else 1]
        if listed is None:
            raise NotLowered("its block mask lists no blocks of queries")
        axes = replace(axes, j=Var("j", listed.shape[3]))
        lists = lists_of(mask, axes, 4 if of_keys else 0, row)
        stores = list(map(self._store, (1, 2) if of_keys else (0,)))
        names = [store.buffer for store in stores]
        kernel = AttentionGradient(
            names[0],
            (axes.b, self.heads, axes.n) if of_keys else (axes.b, axes.h, axes.m),
            meaning_of_gradient(axes, loads, self.values, lists, other, stores, scatters),
            (self.builder.origin,),
            self.builder.device,
            axes=axes,
            query=loads[0],
            key=loads[1],
            value=loads[2],
            score=self.values[0],
            mask=self.values[1],
            partial=lists[0],
            full=lists[1] if len(lists) > 1 else None,
            blocks=mask.blocks,
            results=(names[0], names[-1], ""),
            gradient=loads[3],
            logarithm=loads[4],
            delta=loads[5],
            change=self.values[2],
            scatters=scatters,
            heads=(self.heads, (axes.h.size.number or 0) // (self.heads.size.number or 1)),
        )
        self.builder.draft.steps.append(kernel)

    def _store(self, place: int) -> Store:
        """Return the store of a gradient: of queries, keys or values."""
        b, h, m, n, d, e, _ = map(of_atom, loops_of(self.axes))
        name, view, recorded = result_memory(self.builder, self.node, place)
        if view is None:
            raise NotLowered("not all of its gradients are used")
        at = (b, h, m, d) if place == 0 else (b, of_atom(self.heads), n, e if place == 2 else d)
        local = Local("other" if place == 2 else "result", self.values[0].dtype)
        array = cast(Array((), local.dtype, lambda _: local), recorded.dtype)
        return Store(name, view.at(at), array.at(()), origin=self.builder.origin)


def _scatters(
    builder: Builder, node: Node, made: Sequence[Array | Scattered | None]
) -> Iterator[Store]:
    """Yield the stores that add up gradients of captured tensors, and add memory of zeros."""
    for place, name in _users_of_captured(node):
        each = made[place]
        if not isinstance(each, Scattered):
            raise NotLowered("a captured tensor has another gradient than a scatter")
        recorded: Any = value_of(node)
        tensor = recorded[3][place]
        if tensor.dtype.itemsize < 4:
            raise NotLowered(f"gradients of {tensor.dtype} are not added up")
        require_atomic(builder.device, "add", tensor.dtype)
        view = builder.place(name, constant(0.0, tensor.dtype, sizes_of(tensor.shape)), tensor)
        builder.draft.views[name] = view
        pairs = zip(each.places, view.shape, strict=True)
        at = tuple(folded_index(index.at(()), size) for index, size in pairs)
        value = folded(cast(each.value, tensor.dtype).at(()))
        yield Store(view.buffer, view.at(at), value, "add", origin=builder.origin)


def _users_of_captured(node: Node) -> Iterator[tuple[int, str]]:
    """Yield the place and the name of each gradient of a captured tensor that is used."""
    for user in node.users:
        if user.args[1:] == (3,):
            for item in user.users:
                if item.op != "call_function" or not isinstance(item.args[1], int):
                    raise NotLowered("its gradients of captured tensors are read as a whole")
                yield item.args[1], item.name
