"""Arrays, the operands of lowerings: a shape, a type, and the value at each position.

Nothing is computed when arrays are combined: `array.at(position)` builds the expression of one
element, and the builder (`builder.py`) makes kernels of that.

    x = Array((n, m), torch.float32, at=...)
    y = x * 2.0                                     # apply("mul", x, constant(2.0, x.dtype))
    y.at((i, j))                                    # mul(x[i*m + j], 2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from ctk.compiler.lowering.ir import Const, Dtype, Guarded, Op, Position, Value
from ctk.compiler.lowering.layout import Shape, flatten, unflatten
from ctk.compiler.lowering.vocabulary import BOOL_RESULTS
from ctk.compiler.sizes.index import ONE, ZERO, Index, IndexLike, Indirect, as_index, of_atom
from ctk.compiler.sizes.size_guards import NotLowered

At: TypeAlias = tuple[Index, ...]
Number: TypeAlias = float | int | bool


def _operator(name: str) -> Callable[[Array, Array | Number], Array]:
    def method(self: Array, other: Array | Number) -> Array:
        return apply(name, self, _like(other, self))

    return method


def _reflected(name: str) -> Callable[[Array, Number], Array]:
    def method(self: Array, other: Number) -> Array:
        return apply(name, _like(other, self), self)

    return method


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A value for each position.

    Attributes:
        element: Builds the value at a position, whose parts are within the sizes.
        buffer: The buffer that it is the whole of, row-major; empty if there is none.

    Arithmetic and order (`x * 2.0`, `x < y`) are `apply`; numbers take the type of the array.
    """

    shape: Shape
    dtype: Dtype
    element: Callable[[At], Value] = field(repr=False)
    buffer: str = ""
    _made: dict[At, Value] = field(default_factory=dict[At, Value], repr=False)

    def at(self, position: Sequence[IndexLike]) -> Value:
        """Return the value at a position; the same object for the same position."""
        key = tuple(map(as_index, position))
        if key not in self._made:
            self._made[key] = self.element(key)
        return self._made[key]

    __add__ = _operator("add")
    __radd__ = _reflected("add")
    __sub__ = _operator("sub")
    __rsub__ = _reflected("sub")
    __mul__ = _operator("mul")
    __rmul__ = _reflected("mul")
    __truediv__ = _operator("div")
    __rtruediv__ = _reflected("div")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    __and__ = _operator("and")
    __or__ = _operator("or")

    def __neg__(self) -> Array:
        return apply("neg", self)


def constant(value: Number | Index, dtype: Dtype, shape: Shape = ()) -> Array:
    """Return an array of one number, which may be a size that is known at the call only."""
    if isinstance(value, Index):
        number = convert(Position(value), dtype)
    else:
        number = Const(_fitting(value, dtype), dtype)
    return Array(shape, dtype, lambda _: number)


def positions(index: Index) -> Array:
    """Return an index expression as an array without dimensions."""
    return Array((), torch.int64, lambda _: Position(index))


def iota(shape: Shape, axis: int) -> Array:
    """Return the position along an axis."""
    return Array(shape, torch.int64, lambda at: Position(at[axis]))


def apply(name: str, *arrays: Array) -> Array:
    """Return an operation of the vocabulary on each element, shapes broadcast.

    Comparisons make bool, and others the type of the last operand.
    """
    shape = broadcast_shape(*(array.shape for array in arrays))
    spread = [expand(array, shape) for array in arrays]
    kind = torch.bool if name in BOOL_RESULTS else arrays[-1].dtype
    return Array(shape, kind, lambda at: Op(name, tuple(each.at(at) for each in spread), kind))


def where(condition: Array, value: Array | Number, other: Array | Number) -> Array:
    """Return `value` where a condition holds, and `other` elsewhere.

    One of them is an array: `constant` makes an array of a number.
    """
    typed = value if isinstance(value, Array) else other
    assert isinstance(typed, Array)
    return apply("where", condition, _like(value, typed), _like(other, typed))


def equal(x: Array, y: Array | Number) -> Array:
    """Return where an array equals another one, or a number."""
    return apply("eq", x, _like(y, x))


def filled(array: Array, value: Number) -> Array:
    """Return an array of one number, of the shape and type of another one."""
    return constant(value, array.dtype, array.shape)


def cast(array: Array, dtype: Dtype) -> Array:
    """Return an array converted to a type, as torch converts."""
    if array.dtype == dtype:
        return array
    return Array(array.shape, dtype, lambda at: convert(array.at(at), dtype))


def convert(value: Value, dtype: Dtype) -> Value:
    """Return a value converted to a type; a number is converted at once."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Const) and not (dtype.is_floating_point and dtype.itemsize < 4):
        return Const(_fitting(value.value, dtype), dtype)
    return Op("cast", (value,), dtype)


def guarded(condition: Array, value: Array, other: Array) -> Array:
    """Return `value` where a condition holds, its loads made only there, and `other` elsewhere."""
    shape = broadcast_shape(condition.shape, value.shape, other.shape)
    c, v, o = (expand(each, shape) for each in (condition, value, other))
    return Array(shape, o.dtype, lambda at: Guarded(c.at(at), v.at(at), o.at(at)))


def indirect(value: Value, size: Index, *, wrap: bool = False) -> Index:
    """Return an integer that a kernel computes as a position in a dimension of some size.

    It must be within; with `wrap`, negative ones count from the end. Generators can check that.
    """
    wide = convert(value, torch.int64)
    if wrap:
        below = Op("lt", (wide, Const(0, torch.int64)), torch.bool)
        moved = Op("add", (wide, Position(size)), torch.int64)
        wide = Op("where", (below, moved, wide), torch.int64)
    return of_atom(Indirect(wide, size))


def broadcast_shape(*shapes: Shape) -> Shape:
    """Return the shape that arrays of these shapes have together."""
    rank = max(map(len, shapes), default=0)
    result: list[Index] = []
    for axis in range(-rank, 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis]
        result.append(next((size for size in sizes if size != ONE), ONE))
    return tuple(result)


def expand(array: Array, shape: Shape) -> Array:
    """Return an array broadcast to a shape."""
    if array.shape == shape:
        return array
    lead = len(shape) - len(array.shape)
    single = [size == ONE for size in array.shape]

    def element(at: At) -> Value:
        own = at[lead:]
        return array.at([ZERO if one else i for one, i in zip(single, own, strict=True)])

    return Array(shape, array.dtype, element)


def moved(array: Array, shape: Shape, back: Callable[[At], Sequence[IndexLike]]) -> Array:
    """Return an array whose element at a position is that of `array` at `back(position)`."""
    return Array(shape, array.dtype, lambda at: array.at(back(at)))


def reshaped(array: Array, shape: Shape) -> Array:
    """Return an array with the same elements, in row-major order, in another shape."""
    return moved(array, shape, lambda at: unflatten(flatten(at, shape), array.shape))


def compute_type(dtype: Dtype) -> Dtype:
    """Return the type that values of a type are computed in: float32 for narrower floats."""
    if dtype.is_floating_point and dtype.itemsize < 4:
        return torch.float32
    return dtype


def raised(array: Array) -> Array:
    """Return an array in the type that it is computed in."""
    return cast(array, compute_type(array.dtype))


def _like(value: Array | Number | Index, other: Array) -> Array:
    return value if isinstance(value, Array) else constant(value, other.dtype)


def _fitting(value: Number, dtype: Dtype) -> Number:
    if isinstance(value, complex) or dtype.is_complex:
        raise NotLowered(f"{value} of {dtype} is complex: that stays with the library")
    if dtype == torch.bool:
        return bool(value)
    if dtype.is_floating_point:
        return float(value)
    limits = torch.iinfo(dtype)
    if not limits.min <= value <= limits.max:  # NaN is not, either
        raise NotLowered(f"{dtype} does not have {value}")
    return int(value)
