"""Inline a graph of scalars, which a higher-order operator calls for each element, as arrays.

    def score_mod(score, b, h, q, k): return score + bias[h, q - k + 200]

The graph runs once on recorded (fake) values, and every operator that it calls is lowered on the
spot, as in `decompose.py`; but no part gets memory. The caller reads the result at its own loop
variables. `folded` then makes sums of positions one position, so that `bias` is read at an index
expression, and drops the checks of positions that are known to be in range.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.lowering.arrays import Array, constant, expand, indirect, moved
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.decompose import LIBRARY, decomposition_of
from ctk.compiler.lowering.ir import Const, Op, Position, Value, indirect_value
from ctk.compiler.lowering.operators import LOWERINGS
from ctk.compiler.lowering.operators.axes import axis_of
from ctk.compiler.lowering.walk import Rewriting
from ctk.compiler.sizes.index import (
    Atom,
    Index,
    IndexLike,
    Indirect,
    as_index,
    is_less,
    is_nonnegative,
    largest,
)
from ctk.compiler.sizes.size_guards import NotLowered, size_of, sizes_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import tree_map
from ctk.compiler.torch_compat.fx.operators import kind_of

aten = torch.ops.aten

_SAME = (aten.detach.default, aten.alias.default, aten.lift_fresh.default)
_SCATTER = "flex_lib::zeros_and_scatter"


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Zeros of a shape, to which a value is added at a place for each element."""

    shape: tuple[Index, ...]
    places: tuple[Array, ...]
    value: Array


@dataclass(slots=True)
class _Inlining:
    """One run of a graph: the array of each tensor; tensors are kept, so that no id is reused."""

    builder: Builder
    mode: Any
    arrays: dict[int, tuple[Tensor, Array | Scattered]] = field(
        default_factory=dict[int, "tuple[Tensor, Array | Scattered]"]
    )

    def call(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Lower a call, and return its fake result."""
        args, kwargs = tree_map(self._known, (args, kwargs))
        lowering = LOWERINGS.get(operator)
        if operator in _SAME:
            return args[0]
        is_scatter = kind_of(operator) == "overload" and operator.name().startswith(_SCATTER)
        known = lowering is not None or is_scatter or operator in _VIEWS
        if not known:
            function = decomposition_of(operator)
            if function is None or operator in LIBRARY:
                raise NotLowered(f"its function calls {operator}, which has no lowering")
            with fake.intercept_ops(self.call):
                return function(*args, **kwargs)
        result = operator(*args, **kwargs)
        arrays = tree_map(self.operand, (args, kwargs))
        if is_scatter:
            shape, places, value = arrays[0]
            made: Array | Scattered = Scattered(tuple(map(as_index, shape)), tuple(places), value)
        else:
            made = self._lowered(lowering or _VIEWS[operator], arrays, result)
        self.arrays[id(result)] = result, made
        return result

    def _lowered(self, lowering: Any, arrays: Any, result: Tensor) -> Array:
        builder = self.builder
        mark, builder.part = builder.draft.mark(), result
        try:
            made = lowering(builder, *arrays[0], **arrays[1])
        finally:
            builder.part = None
        if builder.draft.mark() != mark or not isinstance(made, Array):
            raise NotLowered("its function reduces or scatters")
        return made

    def _known(self, value: Any) -> Any:
        """Return a number that the graph holds as a tensor as a fake tensor."""
        if not isinstance(value, Tensor) or id(value) in self.arrays:
            return value
        if fake.is_fake(value) or value.ndim or value.device.type != "cpu":
            raise NotLowered("its function reads a tensor that is not an operand")
        made = fake.to_fake(value, self.mode)
        assert isinstance(made, Tensor)
        with fake.real_compute():
            number = value.item()
        self.arrays[id(made)] = made, constant(number, value.dtype)
        return made

    def operand(self, value: Any) -> Any:
        """Return the array of a tensor, and the index of a size."""
        if isinstance(value, Tensor):
            return self.arrays[id(value)][1]
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise NotLowered("its function reads a number that is known at the call only")
        return size_of(value) if isinstance(value, torch.SymInt) else value


def inline(
    builder: Builder, graph: GraphModule, inputs: Sequence[tuple[Any, Any]]
) -> list[Array | Scattered | None]:
    """Return the results of a graph of scalars.

    Args:
        inputs: For each placeholder, a fake tensor with its array; or a number, twice.

    Raises:
        NotLowered: It calls an operator that has no lowering without memory.
    """
    mode = fake.mode_of([value for value, _ in inputs])
    run = _Inlining(builder, mode)
    for value, array in inputs:
        if isinstance(value, Tensor):
            run.arrays[id(value)] = value, array
    try:
        with fake.guards_refused(mode), fake.intercept_ops(run.call):
            results: Any = graph(*(value for value, _ in inputs))
    except NotLowered:
        raise
    except Exception as error:  # of torch: an operator refuses, or asks for a guard
        raise NotLowered(f"its function cannot be inlined: {error}") from error
    listed = results if isinstance(results, (list, tuple)) else (results,)
    return [run.arrays[id(each)][1] if isinstance(each, Tensor) else None for each in listed]


def _selected(_: Builder, x: Array, dim: int, index: Any) -> Array:
    axis = axis_of(x, dim)
    at = as_index(index) + (x.shape[axis] if isinstance(index, int) and index < 0 else 0)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return moved(x, shape, lambda place: (*place[:axis], at, *place[axis:]))


def _reshaped(b: Builder, x: Array, *_: object, **__: object) -> Array:
    shape = sizes_of(b.result.shape)
    ones = [size for size in (*x.shape, *shape) if size != as_index(1)]
    if x.shape and (ones or shape):
        raise NotLowered("its function takes a view of a tensor")
    return expand(x, shape)


_VIEWS = {
    aten.select.int: _selected,
    aten.expand.default: _reshaped,
    aten.view.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
}


def folded(value: Value) -> Value:
    """Return a value with arithmetic of positions as index expressions.

    int32(q) - int32(k) + 200 becomes one position if it cannot overflow; a comparison of a position
    with 0 is decided if its range is known; an indirect position in range is the index itself.
    """
    return _Folding(change=_fold).value(value)


def folded_index(value: Value, size: Index) -> Index:
    """Return a position that a function computes as an index expression; negative ones wrap."""
    index = indirect(value, size, wrap=True)
    return _Folding(change=_fold).index(index)


class _Folding(Rewriting):
    """Also makes indirect positions direct."""

    def _atom(self, atom: Atom) -> IndexLike | None:
        if not isinstance(atom, Indirect):
            return Rewriting._atom(self, atom)
        new = self.value(indirect_value(atom))
        index = _index_of(new)
        if index is not None and is_nonnegative(index) and is_less(index, atom.size):
            return index
        return Index((((Indirect(new, atom.size),), 1),))


def _index_of(value: Value) -> Index | None:
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Const) and value.dtype in (torch.int32, torch.int64):
        return as_index(int(value.value))
    return None


def _fold(value: Value) -> Value | None:
    if not isinstance(value, Op):
        return None
    if value.name == "where" and isinstance(value.args[0], Const):
        return value.args[1] if value.args[0].value else value.args[2]
    parts = [_index_of(arg) for arg in value.args]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or not found:
        return None
    if value.name == "lt" and is_nonnegative(found[0] - found[1]):
        return Const(False, torch.bool)
    if value.dtype not in (torch.int32, torch.int64):
        return None
    made = _arithmetic(value.name, found)
    return Position(made, value.dtype) if made is not None and _fits(made) else None


def _arithmetic(name: str, parts: list[Index]) -> Index | None:
    if name == "cast":
        return parts[0]
    if name == "neg":
        return -parts[0]
    if len(parts) != 2:
        return None
    left, right = parts
    if name in ("add", "sub"):
        return left + right if name == "add" else left - right
    if name == "mul" and (left.number is not None or right.number is not None):
        return left * right
    divides = right.number is not None and right.number > 0 and is_nonnegative(left)
    if divides and name in ("floordiv", "mod", "truncdiv", "fmod"):
        return left % right if name.endswith("mod") else left // right
    return None


def _fits(index: Index) -> bool:
    """Return whether an index is known to be a number of 32 bits; sizes are below 2**24 or so."""
    high, low = largest(index), largest(-index)
    return all(
        each is not None and (each.number is None or each.number < 2**31) for each in (high, low)
    )
