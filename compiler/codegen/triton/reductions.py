"""Reductions and scans over the axis of a sweep.

A row that is one block is combined at once. In a loop each position of the block has an accumulator
of its own, and these are combined after it, always in the same order.

    sum, prod, max, min, any, all     one accumulator
    argmax, argmin                    the value, and its first position
    mean_m2                           in one block: the mean, then squares around it; in a loop:
                                      Welford's update, whose count is that of the iteration
    max, then the sum of exp(x - max) one loop for both (`device.rescaled`)
"""

from dataclasses import dataclass

import torch

from ctk.compiler.codegen.triton.body import Body
from ctk.compiler.codegen.triton.layout import Axis
from ctk.compiler.codegen.triton.ops import TYPES, cast_text, number_text
from ctk.compiler.lowering.ir import Dtype, Reduce, ReduceKind, Scan, ScanKind
from ctk.compiler.lowering.vocabulary import neutral

_COMBINE = {"sum": "plus", "prod": "times", "max": "larger", "min": "smaller",
            "any": "larger", "all": "smaller"}  # fmt: skip
_OF_FLOATS = {"max": "maximum_or_nan", "min": "minimum_or_nan", "logsumexp": "log_add_exp"}
_FIRST = {"argmax": "first_largest", "argmin": "first_smallest"}


@dataclass(slots=True)
class Accumulated:
    """A reduction in a loop, and its accumulators."""

    reduce: Reduce
    names: tuple[str, ...]


def reduce_block(body: Body, reduce: Reduce, axis: Axis) -> None:
    """Print a reduction over an axis that is one block."""
    value = _filled(body, reduce, axis)
    if reduce.kind == "mean_m2":
        _two_passes(body, reduce, axis, value)
    elif reduce.kind in _FIRST:
        _first(body, reduce, value, _places(body, axis))
    else:
        _combined(body, reduce, value)


def begin(body: Body, reduce: Reduce, axis: Axis) -> Accumulated:
    """Print the accumulators of a reduction in a loop."""
    dtype = _held(reduce)
    fills = [(_neutral(reduce.kind, dtype), TYPES[dtype])]
    if reduce.kind in _FIRST:
        fills.append(("2147483647", body.positions.index_type))
    elif reduce.kind == "mean_m2":
        fills = [("0.0", TYPES[dtype])] * 2
    return Accumulated(reduce, _accumulators(body, axis, fills))


def update(body: Body, acc: Accumulated, axis: Axis) -> None:
    """Print the update by one iteration of the loop."""
    reduce, over = acc.reduce, _axes(axis)
    value = _filled(body, reduce, axis)
    if reduce.kind == "mean_m2":
        _welford_step(body, acc, axis, value)
    elif reduce.kind in _FIRST:
        places = _places(body, axis)
        text = f"device.{_FIRST[reduce.kind]}({', '.join(acc.names)}, {value}, {places})"
        body.code.line(f"{', '.join(acc.names)} = {text}", over, reduce.origin)
    elif reduce.kind == "sum":
        body.code.line(f"{acc.names[0]} += {value}", over, reduce.origin)
    else:
        text = f"device.{_function(reduce.kind, _held(reduce))}({acc.names[0]}, {value})"
        body.code.line(f"{acc.names[0]} = {text}", over, reduce.origin)


def end(body: Body, acc: Accumulated, axis: Axis) -> None:
    """Print how the accumulators of a block become one value for each row."""
    reduce = acc.reduce
    if reduce.kind == "mean_m2":
        counts = _counts(body, axis, TYPES[reduce.dtypes[0]])
        text = f"tl.reduce(({', '.join((*acc.names, counts))}), 1, device.welford)"
        _keep_several(body, reduce, text, extra=1)
    elif reduce.kind in _FIRST:
        _first(body, reduce, *acc.names)
    else:
        _combined(body, reduce, acc.names[0])


def softmax_begin(body: Body, largest: Reduce, axis: Axis) -> tuple[str, ...]:
    """Print the accumulators of a maximum and a sum of exponentials in one loop."""
    dtype = largest.dtypes[0]
    fills = [(_neutral("max", dtype), TYPES[dtype]), ("0.0", TYPES[dtype])]
    return _accumulators(body, axis, fills)


def softmax_update(body: Body, names: tuple[str, ...], largest: Reduce, axis: Axis) -> None:
    """Print one iteration of them: the sum is scaled when a larger value is met."""
    value = _filled(body, largest, axis)
    text = f"device.rescaled({', '.join(names)}, {value}, 1.0)"
    body.code.line(f"{', '.join(names)} = {text}", _axes(axis), largest.origin)


def softmax_end(body: Body, names: tuple[str, ...], largest: Reduce, total: Reduce) -> None:
    """Print how the accumulators become a maximum and a sum for each row."""
    of = frozenset(("x",))
    text = f"tl.reduce(({', '.join(names)}), 1, device.rescaled)"
    high, both = _several(body, text, 2, largest.origin)
    found = body.code.variable(f"{high}[:, None]", of, largest.origin)
    infinite = f'tl.abs({found.text}) == float("inf")'  # inf - inf is NaN
    nan = f'tl.where({infinite}, float("nan"), {both}[:, None])'
    summed = body.code.variable(nan, of, total.origin)
    body.locals[largest.names[0]] = found
    body.locals[total.names[0]] = summed


def scan_block(body: Body, scan: Scan, axis: Axis) -> None:
    """Print a scan over an axis; in a loop, with the running value of the earlier blocks."""
    function = f"device.{_function(scan.kind, scan.dtype)}"
    value = _filled(body, scan, axis)
    over = _axes(axis)
    text = f"tl.associative_scan({value}, 1, {function})"
    if not axis.looped:
        body.locals[scan.name] = body.code.variable(text, over, scan.origin)
        return
    fill = _neutral(scan.kind, scan.dtype)
    carry = body.code.variable(
        f"tl.full([XBLOCK, 1], {fill}, {TYPES[scan.dtype]})", frozenset(), prefix="carry"
    )
    part = body.code.variable(text, over, scan.origin)
    body.locals[scan.name] = body.code.variable(
        f"{function}({carry.text}, {part.text})", over, scan.origin
    )
    total = f"tl.reduce({value}, 1, {function})[:, None]"
    body.code.line(f"{carry.text} = {function}({carry.text}, {total})", over, scan.origin)


def _accumulators(body: Body, axis: Axis, fills: list[tuple[str, str]]) -> tuple[str, ...]:
    shape = _shape(body, axis)
    return tuple(
        body.code.variable(f"tl.full({shape}, {fill}, {kind})", frozenset(), prefix="acc").text
        for fill, kind in fills
    )


def _two_passes(body: Body, reduce: Reduce, axis: Axis, value: str) -> None:
    of = frozenset(("x",))
    count = (
        number_text(axis.numel.number, reduce.dtypes[0])
        if axis.numel.number
        else (f"({body.positions.size(axis.numel)}).to({TYPES[reduce.dtypes[0]]})")
    )
    total = f"tl.sum({value}, 1)[:, None]"
    mean = body.code.variable(f"device.divided({total}, {count})", of, reduce.origin)
    rest = f"{value} - {mean.text}"
    if not axis.whole:
        rest = f"tl.where({body.positions.mask((axis,)).text}, {rest}, 0.0)"
    left = body.code.variable(rest, _axes(axis), reduce.origin)
    m2 = body.code.variable(f"tl.sum({left.text} * {left.text}, 1)[:, None]", of, reduce.origin)
    body.locals.update(zip(reduce.names, (mean, m2), strict=True))


def _welford_step(body: Body, acc: Accumulated, axis: Axis, value: str) -> None:
    mean, m2 = acc.names
    over, origin = _axes(axis), acc.reduce.origin
    kind = TYPES[acc.reduce.dtypes[0]]
    share = f"1.0 / tl.full([], {axis.name}start // {axis.block_name} + 1, {kind})"
    apart = body.code.variable(f"{value} - {mean}", over, origin)
    moved = body.code.variable(f"{mean} + {apart.text} * ({share})", over, origin)
    grown = body.code.variable(f"{m2} + {apart.text} * ({value} - {moved.text})", over, origin)
    for name, new in ((mean, moved), (m2, grown)):
        text = new.text
        if not axis.whole:
            text = f"tl.where({body.positions.mask((axis,)).text}, {text}, {name})"
        body.code.line(f"{name} = {text}", over, origin)


def _counts(body: Body, axis: Axis, kind: str) -> str:
    lane = f"tl.arange(0, {axis.block_name})[None, :]"
    numel = body.positions.size(axis.numel)
    text = f"(({numel}) - {lane} + {axis.block_name} - 1) // {axis.block_name}"
    shape = _shape(body, axis)
    return body.code.variable(f"tl.broadcast_to(({text}).to({kind}), {shape})", frozenset()).text


def _combined(body: Body, reduce: Reduce, value: str) -> None:
    dtype = reduce.dtypes[0]
    held = _held(reduce)
    if reduce.kind == "sum":
        text = f"tl.sum({value}, 1)[:, None]"
    else:
        text = f"tl.reduce({value}, 1, device.{_function(reduce.kind, held)})[:, None]"
    if held != dtype or (reduce.kind == "sum" and dtype.itemsize < 4):
        text = cast_text(text, torch.int32 if held != dtype else torch.int64, dtype)
    body.locals[reduce.names[0]] = body.code.variable(text, frozenset(("x",)), reduce.origin)


def _first(body: Body, reduce: Reduce, value: str, places: str) -> None:
    text = f"tl.reduce(({value}, {places}), 1, device.{_FIRST[reduce.kind]})"
    _keep_several(body, reduce, text)


def _keep_several(body: Body, reduce: Reduce, text: str, extra: int = 0) -> None:
    """Print a reduction with several results, and bind the ones named by the IR."""
    of = frozenset(("x",))
    names = _several(body, text, len(reduce.names) + extra, reduce.origin)
    for name, local, dtype in zip(names, reduce.names, reduce.dtypes, strict=False):
        body.locals[local] = body.code.variable(
            f"{name}[:, None].to({TYPES[dtype]})", of, reduce.origin
        )


def _several(body: Body, text: str, count: int, origin: str) -> list[str]:
    names = [f"red{len(body.locals)}_{n}" for n in range(count)]
    body.code.line(f"{', '.join(names)} = {text}", frozenset(("x",)), origin)
    return names


def _held(statement: Reduce | Scan) -> Dtype:
    """Return the type of the accumulators: bools are counted in 32 bits."""
    if statement.kind in ("any", "all"):
        return torch.int32
    return statement.dtype if isinstance(statement, Scan) else statement.dtypes[0]


def _filled(body: Body, statement: Reduce | Scan, axis: Axis) -> str:
    """Return a value over a whole block, with the neutral number beyond the end of the axis."""
    shown, dtype = body.value(statement.value), _held(statement)
    text = shown.text
    if statement.value.dtype != dtype:
        if dtype == torch.int32:  # the answer of any and all
            text = f"({text} != 0).to(tl.int32)"
        else:
            text = cast_text(text, statement.value.dtype, dtype)
    if axis.name not in shown.axes or (body.layout.grid[-1].block > 1 and "x" not in shown.axes):
        text = f"tl.broadcast_to({text}, {_shape(body, axis)})"
    if not axis.whole:
        fill = _neutral(statement.kind, dtype)
        text = f"tl.where({body.positions.mask((axis,)).text}, {text}, {fill})"
    if text == shown.text:
        return text
    return body.code.variable(text, _axes(axis), buffers=shown.buffers).text


def _places(body: Body, axis: Axis) -> str:
    body.positions.used.add(axis.index)
    return f"tl.broadcast_to({axis.index}, {_shape(body, axis)})"


def _shape(body: Body, axis: Axis) -> str:
    return body.positions.shape(("x", axis.name))


def _axes(axis: Axis) -> frozenset[str]:
    return frozenset(("x", axis.name))


def _neutral(kind: ReduceKind | ScanKind, dtype: Dtype) -> str:
    return number_text(neutral(kind, dtype), dtype)


def _function(kind: str, dtype: Dtype) -> str:
    if kind in _OF_FLOATS and dtype.is_floating_point:
        return _OF_FLOATS[kind]
    return _COMBINE[kind]
