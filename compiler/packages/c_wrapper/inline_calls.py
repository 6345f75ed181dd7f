"""Calls that need no operator of torch: views, tensors made to fit, arithmetic of sizes.

C knows the first element of a tensor, not its storage. So `as_strided` is printed if its start is
at an offset from the start of its base; an offset in the storage of an input is unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from ctk.compiler.packages.c_wrapper.body import Body, require_rank
from ctk.compiler.packages.c_wrapper.c_literals import (
    array_text,
    size_text,
    sizes_text,
    string_text,
)
from ctk.compiler.packages.c_wrapper.entries import NotInC, dtype_code
from ctk.compiler.packages.c_wrapper.operator_calls import number_text
from ctk.compiler.packages.c_wrapper.variables import Items, Nothing, Number
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.runtime.steps import Call, Ref
from ctk.compiler.sizes.index import Index
from ctk.compiler.torch_compat.process import strided_tensors

aten = torch.ops.aten

_INTEGERS: Mapping[object, str] = {
    operator.add: "({0} + {1})",
    operator.sub: "({0} - {1})",
    operator.mul: "({0} * {1})",
    operator.floordiv: "floordiv_i64({0}, {1})",
    operator.mod: "mod_i64({0}, {1})",
    operator.neg: "(-{0})",
    operator.eq: "({0} == {1})",
    operator.ne: "({0} != {1})",
    operator.lt: "({0} < {1})",
    operator.le: "({0} <= {1})",
    operator.gt: "({0} > {1})",
    operator.ge: "({0} >= {1})",
    operator.and_: "({0} & {1})",
    operator.or_: "({0} | {1})",
    operator.not_: "(!{0})",
    torch.sym_max: "maximum_i64({0}, {1})",
    torch.sym_min: "minimum_i64({0}, {1})",
    torch.sym_not: "(!{0})",
}
"""Arithmetic of Python on sizes."""


def is_inline(call: Call) -> bool:
    """Return whether a call needs no operator of torch."""
    return call.function in _printers()


def print_inline(body: Body, call: Call) -> None:
    """Print a call that needs no operator of torch.

    Raises:
        NotInC: It cannot be expressed in C.
    """
    _printers()[call.function](body, call)


def _item(body: Body, call: Call) -> None:
    """Nothing to run: the call that made the parts has set this part."""
    source = call.args[0]
    if not isinstance(body.find(source), Items):
        raise NotInC(f"{call.name} picks a part of {source.name}, which has none")


def _integer(body: Body, call: Call) -> None:
    first = body.find(call.args[0]) if isinstance(call.args[0], Ref) else None
    if isinstance(first, Number) and first.is_storage_offset:
        if call.function is not operator.add:
            raise NotInC(f"{call.name} computes with where a tensor begins in its storage")
        text = number_text(call.args[1], body.find, "int")
        body.places[call.name] = Number(f"({first.text} + {text})", is_storage_offset=True)
        return
    given = [f"({number_text(arg, body.find, 'int')})" for arg in call.args]
    body.variable(call.name, _INTEGERS[call.function].format(*given))


def _storage_offset(body: Body, call: Call) -> None:
    body.places[call.name] = Number("0", is_storage_offset=True)


def _size_of(body: Body, call: Call) -> None:
    """`sym_size.int(x, dim)` and `sym_stride.int(x, dim)`."""
    field = "strides" if call.function is aten.sym_stride.int else "sizes"
    tensor, axis = body.tensor(call.args[0]), call.args[1]
    at = axis if axis >= 0 else f"({tensor})->tensor.rank - {-axis}"
    body.variable(call.name, f"({tensor})->tensor.{field}[{at}]")


def _read(body: Body, call: Call) -> None:
    """`_local_scalar_dense(x)`: an integer that a tensor holds."""
    tensor = body.tensor(call.args[0])
    variable = body.variable(call.name, None)
    body.lines.append(f"if (read_integer(ctk, {tensor}, &{variable})) return 1;")


def _assert(body: Body, call: Call) -> None:
    condition = number_text(call.args[0], body.find, "int")
    message = string_text(str(call.args[1]).replace("%", "%%"))
    failed = f"ctk->host->fail(ctk, CTK_ERROR_ARGUMENT, {message})"
    body.lines.append(f"if (!({condition})) return {failed};")
    body.places[call.name] = Nothing()


def _nothing(body: Body, call: Call) -> None:
    """Nothing to run: facts for the compiler about a number that the graph reads."""
    body.places[call.name] = Nothing()


def _fit(body: Body, call: Call) -> None:
    base, shape, strides, dtype = call.args
    require_rank(shape)
    tensor, out = body.tensor(base), body.new(call.name)
    shaped = f"{dtype_code(dtype)}, {sizes_text(shape)}, {array_text(strides)}"
    body.lines.append(f"DO(fit, {out}, {tensor}, {shaped});")


def _require(body: Body, call: Call) -> None:
    base, shape, strides = call.args
    tensor, out = body.tensor(base), body.new(call.name)
    shaped = f"({tensor})->tensor.dtype, {sizes_text(shape)}, {array_text(strides)}"
    name = string_text(body.title(base))
    body.lines.append(f"DO(require, {out}, {tensor}, {shaped}, {name});")


def _reinterpret(body: Body, call: Call) -> None:
    base, shape, strides, moved = call.args
    _view(body, call, base, shape=shape, strides=strides, moved=size_text(moved))


def _as_strided(body: Body, call: Call) -> None:
    base, shape, strides, *rest = (*call.args, *call.kwargs.values())
    moved = "0"
    if rest and rest[0] is not None:
        place = body.find(rest[0]) if isinstance(rest[0], Ref) else None
        if not (isinstance(place, Number) and place.is_storage_offset):
            raise NotInC(f"{call.name} begins at an offset in the storage of {base.name}")
        moved = place.text
    _view(body, call, base, shape=shape, strides=strides, moved=moved)


def _view(
    body: Body, call: Call, base: Ref, *, shape: Sequence[Any], strides: Sequence[Any], moved: str
) -> None:
    require_rank(shape)
    if not all(isinstance(each, (int, Index)) for each in (*shape, *strides)):
        raise NotInC(f"{call.name} is a view of sizes that the graph computes")
    tensor, out = body.tensor(base), body.new(call.name)
    shaped = f"({tensor})->tensor.dtype, {sizes_text(shape)}, {array_text(strides)}"
    body.lines.append(f"DO(view, {out}, {tensor}, {shaped}, {moved});")


@cache
def _printers() -> Mapping[object, Callable[[Body, Call], None]]:
    """Return the printer of each function that is printed in place."""
    return {
        **dict.fromkeys(_INTEGERS, _integer),
        operator.getitem: _item,
        torch.Tensor.storage_offset: _storage_offset,
        fitted: _fit,
        required: _require,
        strided_tensors.reinterpret(): _reinterpret,
        aten.as_strided.default: _as_strided,
        aten.sym_size.int: _size_of,
        aten.sym_stride.int: _size_of,
        aten._local_scalar_dense.default: _read,
        aten._assert_scalar.default: _assert,
        aten.sym_constrain_range.default: _nothing,
        aten.sym_constrain_range_for_size.default: _nothing,
    }
