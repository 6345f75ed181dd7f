"""Whether two runs are the same to everyone who can see them, as far as a rule's numerics demand.

Compared, in this order: exceptions, dtypes, shapes, strides of results, memory shared with inputs
and among results, what was written to inputs, and numbers: bit for bit for a rule that is `exact`
(any NaN equals any other, -0.0 is not 0.0), else as `rounding.py` says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ctk.compiler.observe import first_line
from ctk.repro_templates.numbers.layout import visible_strides
from ctk.toolkit.verify_rules.running import Play

Kind = Literal["crash", "exception", "dtype", "shape", "stride", "alias", "write", "value"]

Numbers = Callable[[int, Tensor, Tensor], str | None]
"""Says what is wrong with a result (its number, before, after) whose bits differ; None: nothing."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What tells a graph from itself after a rule."""

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def difference(before: Play, after: Play, numbers: Numbers) -> Difference | None:
    """Return the first difference between two runs; `before` has not raised."""
    if after.error is not None:
        said = f"{type(after.error).__name__}: {first_line(after.error)}"
        return Difference("exception", f"only the graph after the rule raises {said}")
    if len(before.outputs) != len(after.outputs):
        return Difference("shape", f"{len(after.outputs)} results, not {len(before.outputs)}")
    return (
        _layouts(before.outputs, after.outputs)
        or _memory(before, after)
        or _written(before, after)
        or _numbers(before.outputs, after.outputs, numbers)
    )


def _layouts(before: Sequence[object], after: Sequence[object]) -> Difference | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            if type(old) is not type(new):
                return Difference("dtype", f"result {index} is {new!r}, not {old!r}")
        elif old.dtype != new.dtype:
            return Difference("dtype", f"result {index} is {new.dtype}, not {old.dtype}")
        elif old.shape != new.shape:
            return Difference(
                "shape", f"result {index} is {list(new.shape)}, not {list(old.shape)}"
            )
        elif visible_strides(old) != visible_strides(new):
            strides = f"{tuple(new.stride())}, not {tuple(old.stride())}"
            return Difference("stride", f"result {index} has strides {strides}")
    return None


def _memory(before: Play, after: Play) -> Difference | None:
    for one, other in sorted(before.shared ^ after.shared):
        when = "only before the rule" if (one, other) in before.shared else "only after the rule"
        return Difference("alias", f"{one} shares memory with {other} {when}")
    return None


def _written(before: Play, after: Play) -> Difference | None:
    for index, (old, new) in enumerate(zip(before.inputs, after.inputs, strict=True)):
        if not same_bits(old, new):
            return Difference("write", f"in{index} holds {listed(new)} after, not {listed(old)}")
    return None


def _numbers(
    before: Sequence[object], after: Sequence[object], numbers: Numbers
) -> Difference | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            if repr(old) != repr(new):
                return Difference("value", f"result {index} is {new!r}, not {old!r}")
        elif not same_bits(old, new) and (said := numbers(index, old, new)) is not None:
            return Difference("value", f"result {index} {said}")
    return None


def bits(_index: int, before: Tensor, after: Tensor) -> str | None:
    """Say which of two results of other bits there are: the rule of what is `exact`."""
    return f"is {listed(after)}, not {listed(before)}"


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one dtype and shape hold the same bits; any NaN is one."""
    if one.is_meta or other.is_meta:
        return one.device == other.device
    a, b = _parts(one), _parts(other)
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    both_nan = a.isnan() & b.isnan()
    same = (a == b) & (a.signbit() == b.signbit())
    return bool((same | both_nan).all())


def _parts(tensor: Tensor) -> Tensor:
    dense = tensor.resolve_conj().resolve_neg()
    return torch.view_as_real(dense) if dense.is_complex() else dense


def listed(tensor: Tensor) -> str:
    """Return the numbers of a small tensor."""
    text = str(tensor.tolist())
    return text if len(text) <= 200 else f"{text[:200]}…"
