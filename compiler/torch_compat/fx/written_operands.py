"""Calls of operators and kernels that write, in the functional form in which torch traces them.

    auto_functionalized_v2(op, y=k, _x_base_index=0, _all_bases=[b])  ->  (*results of op, new b)
    triton_kernel_wrapper_functional(..., kwargs={"x": b, "y": k}, tensors_to_clone=["x"])
        ->  {"x": new b}

run `op(x=copy of b, y=k)`, and a Triton kernel of the program. A written argument is a whole base,
or a view of a base, by further keywords: `_x_alias`, `_x_slice_dim`..., `_x_size`...; a list
has `_x_length`, and keywords for each element. The same in torch 2.11 to 2.15.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu import triton_kernels

aten = torch.ops.aten
_BASES = "_all_bases"
_OPERATOR = "auto_functionalized_v2"
_KERNEL, MUTATING_WRAPPER = triton_kernels.WRAPPERS


@dataclass(frozen=True, slots=True)
class WrittenView:
    """A written argument: the place of its base, and the call that makes the view, if it is one."""

    base: int
    view: Callable[..., object] | None = None
    arguments: tuple[object, ...] = ()


Written = WrittenView | Sequence[WrittenView | None] | None


@dataclass(frozen=True, slots=True)
class WritingCall:
    """The call that a functional form runs.

    Attributes:
        target: The operator, or the higher-order operator that launches a kernel.
        written: The written arguments by name.
        others: The other arguments by name.
        bases: The tensors to which it writes, or of which it writes a part.
        items: The item of the functional form's result that holds the new value of each base.
        results: The number of the operator's own results, which are the first items.
        is_kernel: Whether `written` and the arguments of `others["kwargs"]` are those of a kernel.
    """

    target: object
    written: Mapping[str, Written]
    others: Mapping[str, Any]
    bases: Sequence[Any]
    items: Sequence[int | str]
    results: int = 0
    is_kernel: bool = False

    def arguments(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of the call, with these in the place of the written ones."""
        if not self.is_kernel:
            return {**self.others, **given}
        return {**self.others, "kwargs": {**self.others["kwargs"], **given}}


def is_functional(target: object) -> bool:
    """Return whether a target runs operators or kernels that write on copies."""
    return operators.kind_of(target) == "higher_order" and str(target) in (_OPERATOR, _KERNEL)


def read_call(target: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> WritingCall | None:
    """Return the call that a functional form runs; None for a form that has no such call.

    These are higher-order operators, operators with `out` arguments, which get new tensors, and
    operators that return an argument.
    """
    return _read_kernel(kwargs) if str(target) == _KERNEL else _read_operator(args, kwargs)


def _read_kernel(kwargs: Mapping[str, Any]) -> WritingCall:
    names = list(kwargs["tensors_to_clone"])
    written = {name: WrittenView(place) for place, name in enumerate(names)}
    others = {name: value for name, value in kwargs.items() if name != "tensors_to_clone"}
    bases = [kwargs["kwargs"][name] for name in names]
    target = operators.higher_order_op(MUTATING_WRAPPER)
    return WritingCall(target, written, others, bases, names, is_kernel=True)


def _read_operator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> WritingCall | None:
    (operator,) = args
    if operators.kind_of(operator) != "overload" or not kwargs.get(_BASES):
        return None
    returns = operator._schema.returns
    if any(each.alias_info is not None for each in returns):
        return None
    others = {name: value for name, value in kwargs.items() if name != _BASES}
    names = [name for _, name in operators.written_arguments_of(operator)]
    written = {name: _take(others, f"_{name}") for name in names}
    results = max(len(returns), 1)  # the result of an operator that returns nothing is one None
    bases = kwargs[_BASES]
    return WritingCall(
        operator, written, others, bases, range(results, results + len(bases)), results
    )


def _take(kwargs: dict[str, Any], prefix: str) -> Written:
    """Return a written argument, and remove its keywords."""
    if f"{prefix}_length" in kwargs:
        length = kwargs.pop(f"{prefix}_length")
        return (
            None if length is None else [_take_one(kwargs, f"{prefix}_{i}") for i in range(length)]
        )
    return _take_one(kwargs, prefix)


def _take_one(kwargs: dict[str, Any], prefix: str) -> WrittenView | None:
    base = kwargs.pop(f"{prefix}_base_index")
    if base is None:
        return None
    if kwargs.pop(f"{prefix}_alias", False):
        return WrittenView(base, aten.alias.default)
    if f"{prefix}_slice_dim" in kwargs:
        places = [kwargs.pop(f"{prefix}_slice_{part}") for part in ("dim", "start", "end")]
        return WrittenView(base, aten.slice.Tensor, tuple(places))
    if f"{prefix}_storage_offset" in kwargs:
        parts = [kwargs.pop(f"{prefix}_{part}") for part in ("size", "stride", "storage_offset")]
        return WrittenView(base, aten.as_strided.default, tuple(parts))
    return WrittenView(base)
