"""Lowerings of pooling: maxima and means of windows, and their gradients.

The elements of a window are written out, one after the other in the order of eager, so that the
loops go along the results and become SIMD. An element in the padding is never read:

    best = x[2*i - 1] if 2*i - 1 >= 0 else -inf
    best = max(x[2*i], best)
    best = max(x[2*i + 1], best)

The gradient of a mean is gathered: each element adds up its shares from the windows around it. That
of a maximum is scattered to the positions of the maxima. Windows of more than `LARGEST` elements
are reduced if they are apart (`block_reductions.py`); others stay with the library.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, TypeAlias

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    At,
    apply,
    cast,
    constant,
    guarded,
    indirect,
    moved,
    raised,
    reshaped,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import Position, View
from ctk.compiler.lowering.layout import Shape, flatten, row_major
from ctk.compiler.lowering.operators.axes import all_of
from ctk.compiler.lowering.operators.block_reductions import largest_of_blocks, sum_of_blocks
from ctk.compiler.lowering.vocabulary import neutral
from ctk.compiler.sizes.index import (
    ZERO,
    Index,
    as_index,
    is_less,
    larger,
    product,
    smaller,
)
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

aten = torch.ops.aten

Back: TypeAlias = Callable[[At], Sequence[Index]]

LARGEST = 27
"""Elements of the largest window that is written out: 3 x 3 x 3, or 5 x 5."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows along one dimension.

    Attributes:
        axis: The dimension.
        size: Of the input.
        count: The number of windows.
        width: How many elements each has, `dilation` apart.
    """

    axis: int
    size: Index
    count: Index
    width: int
    stride: int
    padding: int
    dilation: int

    def first(self, window: Index) -> Index:
        """Return the position of a window's first element, which may be in the padding."""
        return window * self.stride - self.padding

    def elements(self, window: Index, *, padded: bool) -> Index:
        """Return how many elements a window has, with those in the padding or without."""
        start = self.first(window)
        end = smaller(start + self.width, self.size + self.padding)
        return end - start if padded else smaller(end, self.size) - larger(start, ZERO)

    def tests(self, shape: Shape, element: int) -> list[Array]:
        """Return the conditions under which an element of each window is not in the padding."""
        shift = element * self.dilation - self.padding
        tests: list[Array] = []
        if shift < 0:
            tests.append(_test("ge", shape, lambda at: at[self.axis] * self.stride, -shift))
        if not is_less((self.count - 1) * self.stride + shift, self.size):
            end = self.size - shift
            tests.append(_test("lt", shape, lambda at: at[self.axis] * self.stride, end))
        return tests

    @property
    def around(self) -> range:
        """How far the windows around one element are at most behind the last of them."""
        return range((self.width - 1) * self.dilation // self.stride, -1, -1)

    def behind(self, place: Index, distance: int) -> Index:
        """Return the window at a distance behind the last window to begin before a position."""
        return (place + self.padding) // self.stride - distance

    def gradient_tests(self, shape: Shape, distance: int, *, inside: bool) -> list[Array]:
        """Return the conditions under which the window `behind` each element exists.

        With `inside` also that the element is in it; else the reader compares positions.
        """
        axis, start = self.axis, distance * self.stride - self.padding
        tests: list[Array] = []
        if start > 0:
            tests.append(_test("ge", shape, lambda at: at[axis], start))
        if not is_less(self.behind(self.size - 1, distance), self.count):
            tests.append(_test("lt", shape, lambda at: at[axis], self.count * self.stride + start))
        room = self.width - distance * self.stride
        if inside and room < self.stride:
            tests.append(
                _test("lt", shape, lambda at: (at[axis] + self.padding) % self.stride, room)
            )
        return tests


def _test(name: str, shape: Shape, number: Callable[[At], Index], limit: Index | int) -> Array:
    left = Array(shape, torch.int64, lambda at: Position(number(at)))
    return apply(name, left, Array((), torch.int64, lambda _: Position(as_index(limit))))


def _windows(
    rank: int, x: Shape, results: Shape, width: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int] = (1,),
) -> list[_Windows]:  # fmt: skip
    given = (width, stride or width, padding, dilation)
    spread = [tuple(each) * rank if len(each) == 1 else tuple(each) for each in given]
    axes = range(len(x) - rank, len(x))
    return [
        _Windows(axis, x[axis], results[axis], *map(int, numbers))
        for axis, *numbers in zip(axes, *spread, strict=True)
    ]


def _elements(
    x: Array, shape: Shape, windows: Sequence[_Windows], other: Array
) -> Iterator[tuple[tuple[int, ...], Array | None, Array]]:
    """Yield the elements of a window in order, each as an array of all windows.

    Yields:
        Its place in the window, where it is not in the padding (None: everywhere), and its value:
        `other` in the padding.
    """
    ranges = [range(each.width) for each in windows]
    for places in itertools.product(*ranges):
        tests = [test for w, k in zip(windows, places, strict=True) for test in w.tests(shape, k)]
        shifts = {
            w.axis: (w.stride, k * w.dilation - w.padding)
            for w, k in zip(windows, places, strict=True)
        }
        value = moved(x, shape, lambda at, shifts=shifts: _shifted(at, shifts))
        inside = all_of(tests) if tests else None
        yield places, inside, value if inside is None else guarded(inside, value, other)


def _shifted(at: At, shifts: Mapping[int, tuple[int, int]]) -> list[Index]:
    return [
        index * shifts[axis][0] + shifts[axis][1] if axis in shifts else index
        for axis, index in enumerate(at)
    ]


def _require_small(windows: Sequence[_Windows]) -> None:
    """Refuse large windows.

    Raises:
        NotLowered: They have too many elements.
    """
    if math.prod(each.width for each in windows) > LARGEST:
        raise NotLowered(f"its windows have more than {LARGEST} elements")


def _are_blocks(windows: Sequence[_Windows]) -> bool:
    """Return whether windows are too large to be written out, and whole ones side by side."""
    return math.prod(_widths(windows)) > LARGEST and all(
        each.stride == each.width
        and each.padding == 0
        and each.dilation == 1
        and is_less(each.count * each.width - 1, each.size)
        for each in windows
    )


def _widths(windows: Sequence[_Windows]) -> list[int]:
    return [each.width for each in windows]


def _require_elements(windows: Sequence[_Windows]) -> None:
    """Refuse windows that may lie in the padding alone: dilated beyond the size of the input.

    Raises:
        NotLowered: Such a window has the place of no element.
    """
    dilated = [each for each in windows if each.padding and each.dilation > 1]
    if not all(is_less(each.dilation - 1, each.size) for each in dilated):
        raise NotLowered("a window may have no element")


def _max_pool(
    rank: int, b: Builder, x: Array, width: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """The largest element of each window and its position: the first one, the last NaN."""
    shape = sizes_of(b.result.shape)
    windows = _windows(rank, x.shape, shape, width, stride, padding, dilation)
    _require_elements(windows)
    if _are_blocks(windows):
        return largest_of_blocks(b, x, [each.count for each in windows], _widths(windows))
    _require_small(windows)
    wide = raised(x)
    best = lowest = constant(neutral("max", wide.dtype), wide.dtype, shape)
    spatial = x.shape[windows[0].axis :]
    size = product(spatial).number
    kind = torch.int32 if size is not None and size < 1 << 31 else torch.int64
    place, known = constant(-1, kind, shape), False
    for places, inside, value in _elements(wide, shape, windows, lowest):
        steps = [as_index(k * w.dilation) for w, k in zip(windows, places, strict=True)]
        away = flatten(tuple(steps), spatial)
        here = Array(shape, kind, lambda _, away=away: Position(away, kind))
        better = value > best
        if wide.dtype.is_floating_point:
            better = better | apply("isnan", value)
        if not known:
            empty = place < 0
            better = better | (empty if inside is None else empty & inside)
        known = known or inside is None
        best, place = apply("maximum", value, best), where(better, here, place)

    def start(at: At) -> Position:
        return Position(flatten(tuple(w.first(at[w.axis]) for w in windows), spatial))

    return best, cast(place, torch.int64) + Array(shape, torch.int64, start)


def _adaptive_max_pool(b: Builder, x: Array, size: Sequence[Any]) -> tuple[Array, Array]:
    """Pool by windows of one size; torch's decomposition takes another one of several NaNs."""
    shape = sizes_of(b.result.shape)
    pairs = [(n.number, count.number) for n, count in zip(x.shape, shape, strict=True)][-2:]
    widths = [n // count for n, count in pairs if n and count and n % count == 0]
    if len(widths) < len(pairs):
        raise NotLowered("its windows are of several sizes")
    return _max_pool(2, b, x, widths)


def _max_pool_gradient(
    rank: int, b: Builder, grad: Array, x: Array, width: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool, places: Array,
) -> View | Array:  # fmt: skip
    """Add each gradient where its window's largest element was, in the order of eager."""
    if b.device.type != "cpu":
        raise NotLowered("atomic sums would come in any order")
    wide = raised(grad)
    lead, spatial = x.shape[:-rank], x.shape[-rank:]
    zero = constant(0, wide.dtype, (*lead, product(spatial)))

    def where_from(at: At) -> list[Index]:
        return [*at[:-rank], indirect(places.at(at), product(spatial))]

    planes = b.scatter(zero, wide, where_from, "add")
    view = View(planes.buffer, wide.dtype, x.shape, row_major(x.shape))
    return view if grad.dtype == wide.dtype else cast(b.read(view), grad.dtype)


def _max_unpool(b: Builder, x: Array, places: Array, size: Sequence[Any], *_: object) -> Array:
    """Store each element at its place in a plane of zeros; of several at one the last remains."""
    if b.device.type != "cpu":
        raise NotLowered("stores to one place would come in any order")
    rank = len(size)
    lead, spatial = x.shape[:-rank], tuple(as_index(each) for each in size)

    def where_to(at: At) -> list[Index]:
        return [*at[:-rank], indirect(places.at(at), product(spatial))]

    planes = b.scatter(constant(0, x.dtype, (*lead, product(spatial))), x, where_to)
    return reshaped(planes, (*lead, *spatial))


def _fold(
    b: Builder, x: Array, size: Sequence[Any], width: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Array:  # fmt: skip
    """Add up the columns of all windows around each element (`F.fold`)."""
    shape = sizes_of(b.result.shape)
    if any(each != 1 for each in dilation):
        raise NotLowered("windows with gaps")
    steps = zip(shape[-2:], width, padding, stride, strict=True)
    counts = tuple((n + 2 * p - k) // s + 1 for n, k, p, s in steps)
    windows = _windows(2, shape, (*shape[:-2], *counts), width, stride, padding)
    wide = raised(x)

    def passed(back: Back) -> Array:
        def column(at: At) -> list[Index]:
            behind = back(at)
            inner = [at[w.axis] - w.first(behind[w.axis]) for w in windows]
            channel = flatten((at[-3], *inner), (shape[-3], *map(as_index, width)))
            return [*at[:-3], channel, flatten(tuple(behind[-2:]), counts)]

        return moved(wide, shape, column)

    return _gathered(shape, windows, passed, inside=True)


def _gathered(
    shape: Shape, windows: Sequence[_Windows], passed: Callable[[Back], Array], *, inside: bool
) -> Array:
    """Return the sum of the values that the windows around each element pass on, in their order.

    Args:
        passed: Makes the values of a map from the positions of elements to those of windows.
        inside: Whether windows that only begin before an element pass nothing.
    """
    around = list(itertools.product(*(each.around for each in windows)))
    if len(around) > LARGEST:
        raise NotLowered(f"more than {LARGEST} of its windows overlap")
    total: Array | None = None
    for distances in around:
        pairs = list(zip(windows, distances, strict=True))
        tests = [t for w, d in pairs for t in w.gradient_tests(shape, d, inside=inside)]
        value = passed(partial(_behind, pairs))
        if tests:
            value = guarded(all_of(tests), value, constant(0, value.dtype, shape))
        total = value if total is None else total + value
    assert total is not None
    return total


def _behind(pairs: Sequence[tuple[_Windows, int]], at: At) -> list[Index]:
    """Return the position of the windows that are so far behind the last ones at a position."""
    place = list(at)
    for windows, distance in pairs:
        place[windows.axis] = windows.behind(at[windows.axis], distance)
    return place


def _avg_pool(
    rank: int, b: Builder, x: Array, width: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Array:  # fmt: skip
    _require_floats(x)
    shape = sizes_of(b.result.shape)
    windows = _windows(rank, x.shape, shape, width, stride, padding)
    wide = raised(x)
    if _are_blocks(windows):
        total = sum_of_blocks(b, x, [each.count for each in windows], _widths(windows))
        return total / float(divisor_override or math.prod(_widths(windows)))
    _require_small(windows)
    zero = constant(0, wide.dtype, shape)
    values = [value for *_, value in _elements(wide, shape, windows, zero)]
    total = reduce(add, values)
    return total / _divisor(windows, shape, wide, count_include_pad, divisor_override)


def _require_floats(x: Array) -> None:
    if not x.dtype.is_floating_point:
        raise NotLowered("means of integers")


def _divisor(
    windows: Sequence[_Windows], shape: Shape, like: Array, padded: bool, given: Any,
    back: Back = lambda at: at,
) -> Array:  # fmt: skip
    """Return the number of elements by which the sum of each window is divided."""
    if given:
        return constant(int(given), like.dtype)

    def count(at: At) -> Position:
        at = tuple(back(at))
        return Position(product([w.elements(at[w.axis], padded=padded) for w in windows]))

    return cast(Array(shape, torch.int64, count), like.dtype)


def _avg_pool_gradient(
    rank: int, b: Builder, grad: Array, x: Array, width: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor_override: Any,
) -> Array:  # fmt: skip
    _require_floats(grad)
    windows = _windows(rank, x.shape, grad.shape, width, stride, padding)
    wide = raised(grad)

    def passed(back: Back) -> Array:
        divisor = _divisor(windows, x.shape, wide, count_include_pad, divisor_override, back)
        return moved(wide, x.shape, back) / divisor

    return _gathered(x.shape, windows, passed, inside=True)


TABLE: Mapping[object, Callable[..., Any]] = {
    aten.adaptive_max_pool2d.default: _adaptive_max_pool,
    aten.avg_pool2d.default: partial(_avg_pool, 2),
    aten.avg_pool2d_backward.default: partial(_avg_pool_gradient, 2),
    aten.avg_pool3d.default: partial(_avg_pool, 3),
    aten.avg_pool3d_backward.default: partial(_avg_pool_gradient, 3),
    aten.col2im.default: _fold,
    aten.max_pool2d_with_indices.default: partial(_max_pool, 2),
    aten.max_pool2d_with_indices_backward.default: partial(_max_pool_gradient, 2),
    aten.max_pool3d_with_indices.default: partial(_max_pool, 3),
    aten.max_pool3d_with_indices_backward.default: partial(_max_pool_gradient, 3),
    aten.max_unpool2d.default: _max_unpool,
    aten.max_unpool3d.default: _max_unpool,
}
