"""Pieces: the values of a chain of views, as positions in the tensor that the chain starts from.

A piece is a mixed-radix number system. Each of its dimensions is a row of digits, and a digit
counts `size` positions, `step` apart, along one axis of the base:

    x                       [4, 6]    dims  (x0 of 4) (x1 of 6)
    a, b, c = x.split(2, 1)           dims  (x0 of 4) (x1 of 2), begin 0, 2 and 4 along x1
    stack([a, b, c], 1)     [4, 3, 2] dims  (x0 of 4) (x1 of 3, step 2) (x1 of 2)      one piece
    stack([a, b, c], 0)     [3, 4, 2] dims  (x1 of 3, step 2) (x0 of 4) (x1 of 2)      one piece
    cat([a, b, c], 0)       [12, 2]   dims  (x1 of 3, step 2; x0 of 4) (x1 of 2)       one piece

So the many ways to cut a tensor and to put it together are two operations: pieces in a row are one
piece (`extend`) if they adjoin or are equal parts at equal distances, and each piece is at most a
slice, a view, a permutation and a view of its base (`calls_of`). Copies among the views are passed
over, since only values count. Sizes may be symbols in dimensions that stay whole.
"""

import itertools
import math
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import SPLITS
from ctk.compiler.fx.types import is_dense, same_sizes, tensor_of, value_of
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
Call = tuple[Callable[..., object], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """`size` positions along an axis of the base, `step` apart."""

    axis: int
    size: int
    step: int


Dim = tuple[Digit, ...]
"""A dimension: its digits, the slowest first; none for a size of 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Positions in a tensor.

    Attributes:
        base: The tensor.
        begin: The first position along each axis of the base.
        dims: The digits of each dimension of the piece.
    """

    base: Node
    begin: tuple[int, ...]
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> list[int]:
        return [math.prod(digit.size for digit in dim) for dim in self.dims]


def piece_of(node: Node, written: Container[Node] = ()) -> Piece:
    """Return the piece that a node is of the tensor its views start from: a written copy is one."""
    chain: list[Node] = []
    while node not in written and (source := source_of(node)) is not None:
        chain.append(node)
        node = source
    piece = whole(node)
    for view in reversed(chain):
        piece = _apply(piece, view) or whole(view)
    return piece


def source_of(view: Node) -> Node | None:
    """Return the operand of a call that `piece_of` follows."""
    call = view.args[0] if view.target is operator.getitem else view
    if not isinstance(call, Node) or call.op != "call_function" or not call.args:
        return None
    is_item = call is not view
    known = call.target in (*SPLITS, aten.unbind.int) if is_item else call.target in _VIEWS
    source = call.args[0]
    return source if known and isinstance(source, Node) and tensor_of(source) is not None else None


def whole(node: Node) -> Piece:
    """Return a tensor as a piece of itself."""
    tensor = tensor_of(node)
    sizes = () if tensor is None else tensor.shape
    dims = tuple((Digit(axis, size, 1),) for axis, size in enumerate(sizes))
    return Piece(node, (0,) * len(dims), dims)


def _apply(piece: Piece, view: Node) -> Piece | None:
    """Return a view of a piece; None if it is not one, or is empty."""
    tensor = tensor_of(view)
    if tensor is None or tensor.is_conj() or tensor.is_neg():
        return None
    if any(_is(size, 0) for size in tensor.shape):
        return None
    made = _item(piece, view) if view.target is operator.getitem else _view(piece, view, tensor)
    return made if made is not None and same_sizes(made.shape, tensor.shape) else None


def _view(piece: Piece, view: Node, tensor: torch.Tensor) -> Piece | None:
    args = arguments.full_arguments(view.target, view.args, view.kwargs)
    return None if args is None else _VIEWS[view.target](piece, tensor, *args[1:])


def _item(piece: Piece, view: Node) -> Piece | None:
    index, split = view.args[1], cast("Node", view.args[0])
    args = arguments.full_arguments(split.target, split.args, split.kwargs)
    values = value_of(split)
    if args is None or not isinstance(values, (list, tuple)) or type(index) is not int:
        return None
    parts = cast("list[torch.Tensor]", values)
    if not 0 <= index < len(parts):
        return None
    axis = cast("int", args[-1]) % max(len(piece.dims), 1)
    if split.target is aten.unbind.int:
        return _select(piece, parts[index], axis, index)
    sizes, of = cast("Any", args[1]), cast("Callable[[object], Any]", value_of)
    begin = sum(map(of, sizes[:index])) if isinstance(sizes, (list, tuple)) else of(sizes) * index
    return _narrow(piece, axis, begin, parts[index].shape[axis])


def _narrow(piece: Piece, axis: int, begin: int, size: int, step: int = 1) -> Piece | None:
    """Return `size` positions of a dimension, from `begin` on."""
    dim = piece.dims[axis]
    inner: int = math.prod(digit.size for digit in dim[1:])
    if same_sizes([begin, size], [0, math.prod(digit.size for digit in dim)]) and step == 1:
        return piece
    if not dim or not _are_known(begin, size, step, inner):
        return None
    if inner != 1 and (step != 1 or begin % inner or size % inner):
        return None
    first = dim[0]
    begins = list(piece.begin)
    begins[first.axis] += begin // inner * first.step
    digit = Digit(first.axis, size // inner, first.step * step)
    dims = (*piece.dims[:axis], (digit, *dim[1:]), *piece.dims[axis + 1 :])
    return replace(piece, begin=tuple(begins), dims=dims)


def _slice(
    piece: Piece, tensor: torch.Tensor, dim: int, start: Any, end: Any, step: int
) -> Piece | None:
    axis = dim % len(piece.dims)
    size = math.prod(digit.size for digit in piece.dims[axis])
    begin = 0 if start is None else start
    if _are_known(begin) and begin < 0:
        begin = max(begin + size, 0) if _are_known(size) else None
    return None if begin is None else _narrow(piece, axis, begin, tensor.shape[axis], step)


def _select(piece: Piece, tensor: torch.Tensor, dim: int, index: Any) -> Piece | None:
    axis = dim % len(piece.dims)
    size = math.prod(digit.size for digit in piece.dims[axis])
    if not _are_known(index) or (index < 0 and not _are_known(size)):
        return None
    made = _narrow(piece, axis, index + size if index < 0 else index, 1)
    return None if made is None else _without(made, [axis])


def _without(piece: Piece, axes: Iterable[int]) -> Piece:
    dims = tuple(dim for axis, dim in enumerate(piece.dims) if axis not in axes)
    return replace(piece, dims=dims)


def _squeeze(piece: Piece, tensor: torch.Tensor, dims: Any = None) -> Piece:
    rank = len(piece.dims)
    given = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    named = [axis % rank for axis in given if rank]
    return _without(piece, [a for a in named if all(_is(d.size, 1) for d in piece.dims[a])])


def _unsqueeze(piece: Piece, tensor: torch.Tensor, dim: int) -> Piece:
    return insert_dim(piece, dim % (len(piece.dims) + 1))


def insert_dim(piece: Piece, axis: int) -> Piece:
    """Return a piece with one more dimension of size 1."""
    return replace(piece, dims=(*piece.dims[:axis], (), *piece.dims[axis:]))


def _permute(piece: Piece, tensor: torch.Tensor, dims: Sequence[int]) -> Piece:
    return replace(piece, dims=tuple(piece.dims[dim] for dim in dims))


def _transpose(piece: Piece, tensor: torch.Tensor, one: int = 0, other: int = 1) -> Piece:
    order = list(range(len(piece.dims)))
    if len(order) > 1:
        order[one], order[other] = order[other], order[one]
    return _permute(piece, tensor, order)


def _reshape(piece: Piece, tensor: torch.Tensor, *_: object) -> Piece | None:
    """Return a piece whose digits are dealt out to the sizes of a result."""
    todo = _merge(digit for dim in piece.dims for digit in dim)
    dims = [_take(todo, size) for size in tensor.shape]
    if todo or None in dims:
        return None
    return replace(piece, dims=tuple(dim for dim in dims if dim is not None))


def _take(todo: list[Digit], size: Any) -> Dim | None:
    """Take the digits of one dimension from the front; cut the last of them if need be."""
    taken: list[Digit] = []
    while not _is(size, 1):
        if not todo:
            return None
        digit = todo.pop(0)
        if same_sizes([digit.size], [size]):
            return (*taken, digit)
        if not _are_known(digit.size, size) or max(digit.size, size) % min(digit.size, size):
            return None
        if digit.size > size:
            rest = digit.size // size
            todo.insert(0, replace(digit, size=rest))
            return (*taken, Digit(digit.axis, size, digit.step * rest))
        taken.append(digit)
        size //= digit.size
    return tuple(taken)


def _merge(digits: Iterable[Digit]) -> list[Digit]:
    """Return digits without those of size 1, and neighbours that count on as one."""
    merged: list[Digit] = []
    for digit in digits:
        last = merged[-1] if merged else None
        if _is(digit.size, 1):
            continue
        if last is not None and last.axis == digit.axis and _continues(last, digit):
            merged[-1] = Digit(digit.axis, last.size * digit.size, digit.step)
        else:
            merged.append(digit)
    return merged


def _continues(slow: Digit, fast: Digit) -> bool:
    return same_sizes([slow.step], [fast.step * fast.size])


def _keep(piece: Piece, *_: object) -> Piece:
    return piece


_VIEWS: Mapping[object, Callable[..., Piece | None]] = {
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.squeeze.default: _squeeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.unsqueeze.default: _unsqueeze,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _transpose,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.reshape.default: _reshape,
    aten.alias.default: _keep,
    aten.clone.default: _keep,
}


def _is(size: object, number: int) -> bool:
    return type(size) is int and size == number


def _are_known(*sizes: object) -> bool:
    return all(type(size) is int for size in sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Pieces in a row along a dimension that are one piece.

    Attributes:
        piece: The one piece.
        first: The first of them.
        count: Their number.
        distance: From one to the next, along an axis of the base, if they are equal parts.
    """

    piece: Piece
    first: Piece
    count: int = 1
    distance: tuple[int, int] | None = None


def extend(run: Run, other: Piece, axis: int) -> Run | None:
    """Return a run with one more piece along a dimension; None if they are not one piece."""
    first, count = run.first, run.count
    if other.base is not first.base or len(other.dims) != len(first.dims):
        return None
    joined = _adjoin(run.piece, other, axis)
    if joined is not None:
        return Run(joined, first, count + 1)
    gap = _gap(first, other)
    if gap is None or not _same_dims(first.dims, other.dims):
        return None
    along, width = gap
    distance = gap if count == 1 else run.distance
    if distance is None or (along, width) != (distance[0], distance[1] * count):
        return None
    dim = tuple(_merge((Digit(along, count + 1, distance[1]), *first.dims[axis])))
    piece = replace(first, dims=(*first.dims[:axis], dim, *first.dims[axis + 1 :]))
    return Run(piece, first, count + 1, distance) if _is_tiled(piece, along) else None


def _gap(first: Piece, other: Piece) -> tuple[int, int] | None:
    """Return the one axis along which a piece begins later than another one, and by how much."""
    pairs = enumerate(zip(first.begin, other.begin, strict=True))
    moved = [(axis, begin, end) for axis, (begin, end) in pairs if str(begin) != str(end)]
    if len(moved) != 1 or not _are_known(*moved[0]):
        return None
    ((axis, begin, end),) = moved
    return (axis, end - begin) if begin < end else None


def _adjoin(piece: Piece, other: Piece, axis: int) -> Piece | None:
    """Return two pieces as one if the second begins where the first ends."""
    mine, others = piece.dims[axis], other.dims[axis]
    if len(mine) != 1 or len(others) != 1 or mine[0].axis != others[0].axis:
        return None
    (one,), (two,) = mine, others
    ends = list(piece.begin)
    ends[one.axis] += one.size * one.step
    rest = [each.dims[:axis] + each.dims[axis + 1 :] for each in (piece, other)]
    if one.step != two.step or not same_sizes(ends, other.begin) or not _same_dims(*rest):
        return None
    dim = (Digit(one.axis, one.size + two.size, one.step),)
    return replace(piece, dims=(*piece.dims[:axis], dim, *piece.dims[axis + 1 :]))


def _same_dims(mine: Sequence[Dim], others: Sequence[Dim]) -> bool:
    def texts(dims: Sequence[Dim]) -> list[list[tuple[int, str, str]]]:
        return [[(d.axis, str(d.size), str(d.step)) for d in _merge(dim)] for dim in dims]

    return texts(mine) == texts(others)


def _own(piece: Piece, axis: int) -> list[Digit]:
    """Return the digits along an axis of the base, the slowest first."""
    own = [d for dim in piece.dims for d in dim if d.axis == axis and not _is(d.size, 1)]
    return own if len(own) < 2 else sorted(own, key=lambda digit: -digit.step)


def _is_tiled(piece: Piece, axis: int) -> bool:
    """Return whether the digits along an axis of the base leave no gaps: they are one slice."""
    own = _own(piece, axis)
    return all(_continues(slow, fast) for slow, fast in itertools.pairwise(own))


def calls_of(piece: Piece) -> list[Call] | None:
    """Return the calls that make a piece of its base: slices, a view, a permutation, a view.

    None if two sizes of a view would be symbols, or digits leave gaps: `x.view(3, 4)[:, :2]`. The
    last view may need a copy in front of it.
    """
    calls: list[Call] = []
    kept: list[Digit] = []
    sizes: list[int] = []
    for axis, size in enumerate(whole(piece.base).shape):
        own = _own(piece, axis)
        if not _is_tiled(piece, axis):
            return None
        count, step = math.prod(d.size for d in own), own[-1].step if own else 1
        begin = piece.begin[axis]
        if not same_sizes([begin, step, count], [0, 1, size]):
            if not _are_known(begin, step, count):
                return None
            bounds = (axis, begin, begin + (count - 1) * step + 1)
            calls.append((aten.slice.Tensor, bounds if step == 1 else (*bounds, step)))
        kept += own
        sizes.append(count)
    wanted = [d for dim in piece.dims for d in dim if not _is(d.size, 1)]
    order = [kept.index(digit) for digit in wanted]
    if order != sorted(order):
        _add_view(calls, sizes, [digit.size for digit in kept])
        calls.append((aten.permute.default, (order,)))
        sizes = [digit.size for digit in wanted]
    _add_view(calls, sizes, piece.shape)
    return None if any(_is_doubtful(args) for _, args in calls) else calls


def _add_view(calls: list[Call], old: Sequence[int], new: Sequence[int]) -> None:
    if not same_sizes(old, new):
        calls.append((aten.view.default, ([s if _are_known(s) else -1 for s in new],)))


def _is_doubtful(args: tuple[Any, ...]) -> bool:
    return isinstance(args[0], list) and cast("list[int]", args[0]).count(-1) > 1


def relative_to(part: Node, piece: Piece, axis: int, begin: int, *, is_stack: bool) -> Piece:
    """Return a piece of a concatenation or stack, inside one of its parts, as a piece of the part.

    Args:
        begin: The position of the part along the dimension `axis` of the whole.
    """
    begins = list(piece.begin)
    begins[axis] -= begin
    dims = piece.dims
    if is_stack:
        del begins[axis]
        dims = tuple(tuple(_behind(dim, axis)) for dim in dims)
    return Piece(part, tuple(begins), dims)


def _behind(dim: Dim, axis: int) -> list[Digit]:
    """Return digits without those of an axis, which is not there."""
    return [replace(d, axis=d.axis - (d.axis > axis)) for d in dim if d.axis != axis]


def range_of(piece: Piece, axis: int) -> tuple[int, int] | None:
    """Return begin and end of a piece along an axis of its base, if they are numbers."""
    own = [digit for dim in piece.dims for digit in dim if digit.axis == axis]
    if not _are_known(piece.begin[axis], *(d.size for d in own), *(d.step for d in own)):
        return None
    return piece.begin[axis], piece.begin[axis] + 1 + sum((d.size - 1) * d.step for d in own)


@dataclass(frozen=True, slots=True)
class View:
    """A piece that calls make of its base, with the value that they return."""

    base: Node
    calls: tuple[Call, ...]
    value: torch.Tensor

    @property
    def is_copy(self) -> bool:
        return any(target is aten.clone.default for target, _ in self.calls)

    def copy(self) -> "View | None":
        """Return the same values in new memory, without gaps."""
        value = compute(aten.clone.default, (self.value,))
        return None if value is None else View(self.base, (*self.calls, _COPY), value)

    def insert(self, rewriter: Rewriter, before: Node) -> Node:
        """Insert the calls in front of a node, inside an edit; return the last one."""
        node = self.base
        for target, args in self.calls:
            node = rewriter.insert(target, (node, *args), _kwargs(target), before=before)
        return node


_COPY: Call = (aten.clone.default, ())


def _kwargs(target: object) -> dict[str, Any]:
    is_copy = target is aten.clone.default
    return {"memory_format": torch.contiguous_format} if is_copy else {}


def view_of(piece: Piece) -> View | None:
    """Return the calls that make a piece, with a copy where its strides do not allow the view."""
    calls = calls_of(piece)
    view = View(piece.base, (), cast("torch.Tensor", tensor_of(piece.base)))
    for call in calls or ():
        view = _then(view, call) or _then(view.copy(), call)
        if view is None:
            return None
    return None if calls is None else view


def _then(view: View | None, call: Call) -> View | None:
    """Return a view with one more call, if its strides allow that."""
    target, args = call
    value = None if view is None else compute(target, (view.value, *args))
    if view is None or value is None:
        return None
    return View(view.base, (*view.calls, call), value)


def compute(target: Callable[..., Any], args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the result of a call on recorded values; None if it needs other strides or a guard."""
    operands = args[0] if isinstance(args[0], list) else args[:1]
    mode = fake.mode_of(cast("Sequence[object]", operands))
    if mode is None or (target is aten.view.default and not _is_viewable(operands[0])):
        return None
    try:
        with fake.guards_refused(mode):
            return fake.run_on_fakes(target, args, _kwargs(target))
    except Exception:  # a view that these strides do not allow, a guard, no rule for fake tensors
        return None


def _is_viewable(tensor: torch.Tensor) -> bool:
    """Return whether views of a tensor are known: fake ones of symbolic sizes are not checked."""
    return is_dense(tensor) or not any(map(fake.is_symbolic, (*tensor.shape, *tensor.stride())))
