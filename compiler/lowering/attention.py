"""Attention with functions of its scores (`flex_attention`), as one kernel of its own kind.

    score[m, n] = change(scale * sum(query[m, d] * key[n, d]), b, h, m, n)  where mask(b, h, m, n)
    result[m, e] = sum(softmax(score)[m, n] * value[n, e])

The sum over `d` within a loop over `n` is not a sweep, which reduces all its loops. So an
`Attention` is printed by its fields, in blocks of queries and keys that never hold more than one
block of scores. Its sweeps state the meaning, with a value of the local `dot` for each `n`: they
name all loads and stores, so that order, memory and arguments need no other case. It is not fused.

`change` and `mask` are values of the loop IR like any other. A user may also list, for each block
of queries, the blocks of keys that it needs, in part or in full (`BlockList`).

Source: T. Dao et al., FlashAttention (2022); torch's `flex_attention` (J. Dong et al., 2024).
"""

from dataclasses import dataclass

import torch

from ctk.compiler.lowering.ir import (
    Const,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Reduce,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.sizes.index import ZERO, Index, Var, of_atom

Loads = tuple[Load, Load, Load, Load, Load, Load]
"""Of query, key, value, gradient, logarithm and delta."""

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Axes:
    """The loops: batch, head, query, key, parts of keys, parts of values, place in a list."""

    b: Var
    h: Var
    m: Var
    n: Var
    d: Var
    e: Var
    j: Var


@dataclass(frozen=True, slots=True, eq=False)
class BlockList:
    """For each block of queries, some blocks of keys.

    Attributes:
        count: How many, at (b, h, m).
        block: The number of one, at (b, h, m, j).
    """

    count: Load
    block: Load


@dataclass(frozen=True, slots=True, eq=False)
class Attention(Kernel):
    """A kernel of attention; its outer loops are (b, h, m).

    Attributes:
        query: At (b, h, m, d); `key` is at (b, h, n, d) and `value` at (b, h, n, e).
        score: The score that enters the softmax, from the local `dot`, in `dot`'s type.
        mask: Whether a key counts for a query.
        partial: The blocks of keys in which the mask holds for some.
        full: The blocks in which it holds for all; None if none are listed.
        blocks: How many queries and how many keys a listed block has.
        result: The buffers of the result, of the logarithm to base 2 of the sum of exponentials,
            and of the largest score times log2(e); the sweeps store the needed ones.
    """

    axes: Axes
    query: Load
    key: Load
    value: Load
    score: Value
    mask: Value
    partial: BlockList
    full: BlockList | None
    blocks: tuple[Index, Index]
    results: tuple[str, str, str]

    @property
    def dtype(self) -> torch.dtype:
        """The type that scores are computed in."""
        return self.score.dtype

    @property
    def is_masked(self) -> bool:
        """Whether the mask may leave out a key."""
        return not (isinstance(self.mask, Const) and bool(self.mask.value))

    @property
    def is_changed(self) -> bool:
        """Whether the score depends on more than the product of a query and a key."""
        return scale_of(self.score) is None

    @property
    def reads_values(self) -> bool:
        """Whether more than the statistics of the scores is needed."""
        return self.store_of(0) is not None

    def store_of(self, place: int) -> Store | None:
        """Return the store of a result, if it is needed."""
        name = self.results[place]
        return next((store for store in self.stores if store.buffer == name), None)


@dataclass(frozen=True, slots=True, eq=False)
class AttentionGradient(Attention):
    """A kernel of the gradient of attention: of queries, or of keys and values.

    For the gradient of queries the loops and lists are those of `Attention`, and results is that
    gradient alone. For that of keys and values the outer loops are (b, g, n), `g` a head of keys;
    the lists name blocks of queries for each block of keys.

    Attributes:
        gradient: The gradient of the result, at (b, h, m, e).
        logarithm: The logarithm that attention has stored, at (b, h, m).
        delta: The sum of result times gradient over parts, less the logarithm's gradient.
        change: The gradient of `dot`, from the locals `dot` and `gradient`, that of the score.
        scatters: The sums of gradients of captured tensors; with the gradient of queries.
        heads: The head of keys `g`, and how many heads of queries share it.
    """

    gradient: Load
    logarithm: Load
    delta: Load
    change: Value
    scatters: tuple[Store, ...]
    heads: tuple[Var, int]

    @property
    def is_of_keys(self) -> bool:
        return self.outer[-1] == self.axes.n


def scale_of(score: Value) -> float | None:
    """Return the factor of a score that is `dot` times a number; None for any other."""
    if not isinstance(score, Op) or score.name != "mul":
        return None
    left, right = score.args
    plain = isinstance(left, Local) and isinstance(right, Const)
    return float(right.value) if plain and isinstance(right, Const) else None


def meaning(
    axes: Axes, query: Load, key: Load, value: Load, score: Value, mask: Value,
    lists: list[BlockList], blocks: tuple[Index, Index], stores: list[Store],
) -> tuple[Sweep, ...]:  # fmt: skip
    """Return the sweeps of attention: `stores` read the locals `result`, `total` and `largest`."""
    dtype, origin = score.dtype, stores[0].origin
    found, condition = _listed(axes, mask, lists, of_atom(axes.n) // blocks[1], axes.n, origin)
    masked = Op("where", (condition, score, Const(-float("inf"), dtype)), dtype)
    moved = Op("sub", (masked, Local("largest", dtype)), dtype)
    weight = Op("exp", (moved,), dtype)
    rows = [store for store in stores if axes.e not in store.index.atoms]
    n, d, e = axes.n, axes.d, axes.e
    return (
        *found,
        _sum("dot", (n, d), _times(query, key, dtype), origin),
        Sweep((n,), (Reduce(("largest",), "max", masked, (dtype,), origin),)),
        _sum("total", (n,), weight, origin),
        _sum("result", (e, n), _times(weight, value, dtype), origin),
        Sweep((e,), tuple(store for store in stores if store not in rows)),
        *((Sweep((), tuple(rows)),) if rows else ()),
    )


def meaning_of_gradient(
    axes: Axes, loads: Loads, values: tuple[Value, Value, Value],
    lists: list[BlockList], number: Index, stores: list[Store], scatters: tuple[Store, ...] = (),
) -> tuple[Sweep, ...]:  # fmt: skip
    """Return the sweeps of a gradient: `stores` read the locals `result` and `other`.

    Args:
        loads: Of query, key, value, gradient, logarithm and delta.
        values: The score, the mask, and the gradient of `dot`.
        number: The number of the block that is looked up in a list.
    """
    query, key, value, gradient, logarithm, delta = loads
    score, mask, change = values
    dtype, origin = score.dtype, stores[0].origin
    of_keys = len(stores) == 2
    n = axes.m if of_keys else axes.n
    inner = (axes.h, axes.m) if of_keys else (axes.n,)
    found, condition = _listed(axes, mask, lists, number, n, origin)
    scaled = Op("mul", (score, Const(LOG2_E, dtype)), dtype)
    moved = Op("sub", (scaled, _wide(logarithm, dtype)), dtype)
    weight = Op("where", (condition, Op("exp2", (moved,), dtype), Const(0.0, dtype)), dtype)
    less = Op("sub", (Local("product", dtype), _wide(delta, dtype)), dtype)
    of_score = Op("mul", (weight, less), dtype)
    factors = (query, gradient) if of_keys else (key,)
    sums = zip(("result", "other"), (axes.d, axes.e), (change, weight), factors, strict=False)
    return (
        *found,
        _sum("dot", (n, axes.d), _times(query, key, dtype), origin),
        _sum("product", (n, axes.e), _times(gradient, value, dtype), origin),
        _sum("gradient", (n,), of_score, origin),
        *(_sum(name, (at, *inner), _times(x, y, dtype), origin) for name, at, x, y in sums),
        *(Sweep((at,), (s,)) for at, s in zip((axes.d, axes.e), stores, strict=False)),
        *((Sweep((n,), scatters),) if scatters else ()),
    )


def _listed(
    axes: Axes, mask: Value, lists: list[BlockList], number: Index, loop: Var, origin: str
) -> tuple[list[Sweep], Value]:
    """Return the sweeps that look a block up, and whether a pair of query and key counts."""
    listed = [_is_listed(Position(number, torch.int32), each, axes) for each in lists]
    found = [
        Sweep((loop, axes.j), (Reduce((f"listed{k}",), "any", each, (torch.bool,), origin),))
        for k, each in enumerate(listed)
    ]
    both = Op("and", (mask, Local("listed0", torch.bool)), torch.bool)
    full = (both, Local("listed1", torch.bool))
    return found, both if len(lists) == 1 else Op("or", full, torch.bool)


def _sum(name: str, loops: tuple[Var, ...], value: Value, origin: str) -> Sweep:
    return Sweep(loops, (Reduce((name,), "sum", value, (value.dtype,), origin),))


def _times(left: Value, right: Load, dtype: torch.dtype) -> Value:
    one = _wide(left, dtype) if isinstance(left, Load) else left
    return Op("mul", (one, _wide(right, dtype)), dtype)


def _is_listed(number: Value, blocks: BlockList, axes: Axes) -> Value:
    place = Position(of_atom(axes.j), torch.int32)
    is_it = Op("eq", (blocks.block, number), torch.bool)
    return Op("and", (is_it, Op("lt", (place, blocks.count), torch.bool)), torch.bool)


def _wide(load: Load, dtype: torch.dtype) -> Value:
    return load if load.dtype == dtype else Op("cast", (load,), dtype)


def start_of(load: Load, *within: Var) -> Index:
    """Return the index of a load where some loops are at 0."""
    return load.index.substitute(dict.fromkeys(within, ZERO))
