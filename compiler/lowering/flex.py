"""Lower the higher-order operators of attention with functions of its scores.

    flex_attention(query, key, value, score_mod, block_mask, scale, options, captured, captured)

`block_mask` is a tuple: two lengths; for blocks of queries, how many blocks of keys are listed and
which, partial ones and full ones; the same for blocks of keys; ...; the two sizes of a block, and
the graph of the mask. The lists decide which blocks count, as in torch's own kernels; in eager the
mask alone does.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.arrays import Array, cast
from ctk.compiler.lowering.attention import LOG2_E, Attention, Axes, BlockList, meaning
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.inlined import folded, inline
from ctk.compiler.lowering.ir import Const, Load, Local, Op, Position, Store, Value, View
from ctk.compiler.lowering.layout import memory_order, whole
from ctk.compiler.sizes.index import ZERO, Index, Var, as_index, of_atom
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

LARGEST = 256
"""The most parts of a key or of a value: a block of them must fit into fast memory."""

Operand = Callable[[Any], Any]
"""Returns a node's value for a lowering: an array of a tensor, the index of a size, a graph."""


class Mask(NamedTuple):
    """The parts of a block mask that kernels read."""

    lists: tuple[Array | None, ...]
    blocks: tuple[Index, Index]
    graph: GraphModule


def lower_attention(builder: Builder, node: Node, operand: Operand) -> None:
    """Add the kernel of `flex_attention`, which makes the results that are used."""
    query, key, value, graph, block_mask, scale = map(operand, node.args[:6])
    mask = mask_of(block_mask)
    require_device(builder, query, mask)
    axes = axes_of(query, key, value, mask.lists[1])
    loads = loads_of(query, key, value, axes)
    dot = scaled_dot(query.dtype, scale)
    dtype, places = dot.dtype, places_of(builder, axes)
    score = number_of_graph(builder, graph, [scalar(builder, dot), *places], node.args[7], operand)
    masked = number_of_graph(builder, mask.graph, places, node.args[8], operand)
    lists = lists_of(mask, axes, 0, of_atom(axes.m) // mask.blocks[0])
    stores = list(_stores(builder, node, axes, dtype))
    results = tuple(store.buffer for store in stores)
    used = [store for store in stores if store.buffer in builder.draft.buffers]
    if not used:
        raise NotLowered("none of its results is used")
    kernel = Attention(
        used[0].buffer,
        (axes.b, axes.h, axes.m),
        meaning(axes, *loads, score, masked, lists, mask.blocks, used),
        (builder.origin,),
        builder.device,
        axes=axes,
        query=loads[0],
        key=loads[1],
        value=loads[2],
        score=score,
        mask=masked,
        partial=lists[0],
        full=lists[1] if len(lists) > 1 else None,
        blocks=mask.blocks,
        results=(results[0], results[1], results[2]),
    )
    builder.draft.steps.append(kernel)


def require_device(builder: Builder, query: Array, mask: Mask) -> None:
    """Raise `NotLowered` for types and blocks whose products a GPU does not have."""
    if builder.device.type == "cpu":
        return
    if query.dtype == torch.float64:
        raise NotLowered("kernels of attention on a GPU do not have torch.float64")
    if any(size.number is None or size.number % 16 for size in mask.blocks):
        raise NotLowered("the blocks of its mask are not multiples of 16")


def scaled_dot(dtype: torch.dtype, scale: object) -> Op:
    """Return the product of a query and a key times the scale, in the type of scores."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if not isinstance(scale, float):
        raise NotLowered("its scale is known at the call only")
    return Op("mul", (Local("dot", wide), Const(scale, wide)), wide)


def mask_of(block_mask: tuple[Any, ...]) -> Mask:
    """Return the parts of a block mask, the tuple of an operator's arguments."""
    sizes = as_index(block_mask[-3]), as_index(block_mask[-2])
    return Mask(tuple(block_mask[2:10]), sizes, block_mask[-1])


def axes_of(query: Array, key: Array, value: Array, listed: Array | None) -> Axes:
    """Return the loops of attention; `listed` are the numbers of listed blocks."""
    if query.dtype not in _FLOATS or {key.dtype, value.dtype} != {query.dtype}:
        raise NotLowered(f"it has {query.dtype}, {key.dtype} and {value.dtype}")
    parts = query.shape[3].number, value.shape[3].number
    if None in parts or max(part or 0 for part in parts) > LARGEST:
        raise NotLowered(f"its keys or values have more than {LARGEST} parts")
    if query.shape[1].number is None or not key.shape[1].number:
        raise NotLowered("its number of heads is known at the call only")
    assert listed is not None
    sizes = (*query.shape[:3], key.shape[2], query.shape[3], value.shape[3], listed.shape[3])
    return Axes(*(Var(name, size) for name, size in zip("bhmndej", sizes, strict=True)))


def loads_of(query: Array, key: Array, value: Array, axes: Axes) -> tuple[Load, Load, Load]:
    """Return the loads of a query, a key and a value."""
    b, h, m, n, d, e, _ = map(of_atom, loops_of(axes))
    heads, groups = key.shape[1].number, query.shape[1].number
    assert heads and groups is not None
    group = h // (groups // heads)
    batch = ZERO if key.shape[0] == as_index(1) else b
    made = query.at((b, h, m, d)), key.at((batch, group, n, d)), value.at((batch, group, n, e))
    return tuple(each for each in made if isinstance(each, Load))  # type: ignore[return-value]  # operands are memory


def loops_of(axes: Axes) -> tuple[Var, ...]:
    """Return the loops in the order of the fields of `Axes`."""
    return axes.b, axes.h, axes.m, axes.n, axes.d, axes.e, axes.j


def places_of(builder: Builder, axes: Axes) -> list[tuple[Tensor, Array]]:
    """Return the batch, the head, the query and the key as arguments of a function of scores."""
    loops = (axes.b, axes.h, axes.m, axes.n)
    return [scalar(builder, Position(of_atom(loop), torch.int32)) for loop in loops]


def scalar(builder: Builder, value: Value) -> tuple[Tensor, Array]:
    """Return a value as a tensor without dimensions: a fake one, and an array."""
    mode = fake.mode_of([builder.result])
    with fake.fake_compute(mode):
        tensor = torch.empty((), dtype=value.dtype, device=builder.device)
    return tensor, Array((), value.dtype, lambda _: value)


def number_of_graph(
    builder: Builder, graph: GraphModule, given: list[Any], captured: Any, operand: Operand
) -> Value:
    """Return the one result of a function of a score: of its type, or a bool."""
    pairs = [*given, *((value_of(each), operand(each)) for each in captured)]
    (result,) = inline(builder, graph, pairs)
    if not isinstance(result, Array) or result.shape:
        raise NotLowered("its function does not return a number")
    dtype = given[0][1].dtype
    return folded(cast(result, dtype if dtype.is_floating_point else torch.bool).at(()))


def lists_of(mask: Mask, axes: Axes, first: int, row: Index) -> list[BlockList]:
    """Return the lists of blocks, partial ones and full ones.

    Args:
        first: The place of the partial ones in the mask.
        row: The number of the block that is looked up.
    """
    found: list[BlockList] = []
    for place in (first, first + 2):
        count, block = mask.lists[place : place + 2]
        if count is None or block is None:
            continue
        at = [
            ZERO if size == as_index(1) else of_atom(loop)
            for size, loop in zip(count.shape[:2], (axes.b, axes.h), strict=True)
        ]
        loads = count.at((*at, row)), block.at((*at, row, of_atom(axes.j)))
        found.append(BlockList(*(each for each in loads if isinstance(each, Load))))
    return found


def _stores(builder: Builder, node: Node, axes: Axes, dtype: torch.dtype) -> Iterator[Store]:
    """Yield the store of each result, and add memory for the used ones."""
    b, h, m, _, _, e, _ = map(of_atom, loops_of(axes))
    largest, total = Local("largest", dtype), Local("total", dtype)
    scaled = Op("mul", (largest, Const(LOG2_E, dtype)), dtype)
    is_empty = Op("eq", (total, Const(0.0, dtype)), torch.bool)  # all keys are left out
    divisor = Op("where", (is_empty, Const(1.0, dtype), total), dtype)
    result = Op("div", (Local("result", dtype), divisor), dtype)
    logarithm = Op("add", (Op("log2", (total,), dtype), scaled), dtype)
    for place, value in enumerate((result, logarithm, scaled)):
        name, view, recorded = result_memory(builder, node, place)
        at = (b, h, m, e) if place == 0 else (b, h, m)
        array = cast(Array((), dtype, lambda _, value=value: value), recorded.dtype)
        index = view.at(at) if view is not None else ZERO
        yield Store(name, index, array.at(()), origin=builder.origin)


def result_memory(builder: Builder, node: Node, place: int) -> tuple[str, View | None, Tensor]:
    """Return the name and the memory of a result, none if it is not used; and its fake value."""
    recorded: Any = value_of(node)
    tensor = recorded[place]
    users = [user for user in node.users if user.args[1:] == (place,)]
    if not users:
        return f"{builder.origin}.{place}", None, tensor
    shape, strides = sizes_of(tensor.shape), sizes_of(tensor.stride())
    if memory_order(shape, strides) is None:
        raise NotLowered(f"its result is not dense: strides {tuple(tensor.stride())}")
    view = whole(
        builder.draft.add_memory(users[0].name, tensor.dtype, shape, strides, tensor.device)
    )
    for user in users:
        builder.draft.views[user.name] = view
    return users[0].name, view, tensor
