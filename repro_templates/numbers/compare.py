"""Compare a compiled run with eager and a high-precision reference; each difference has a kind.

An element fails when its error against the reference exceeds its tolerance AND ten times eager's
own error. Both are relative to a size:

1. Tolerance: `atol + rtol * max(|ref|, typical)`, where `typical` is the median of |ref| over its
   nonzero elements: an element much smaller than its neighbours is a remainder of cancellation, and
   carries their error. If the whole tensor is small and yet clearly above eager's noise
   (gradients of 1e-6), `atol` shrinks with it.
2. Eager's own error at an element is the larger of the error measured there and the tensor's noise:
   the 95th percentile, over the elements where eager is not exact, of error / (|ref| + typical),
   scaled back to the element. The percentile is there because eager is sometimes exact by accident;
   it is not the maximum, because one ill-conditioned element must not excuse all the others. When
   eager is exact on 99 of 100 elements there is no noise to speak of, and none is used.

NaN and Inf must be where eager or the reference has them (a float16 overflow in eager alone is
eager's error). Integers and bools must be equal, except that eager's own mistakes are counted in
the same way: ten times as many, or ten times as large.

Source: the rule with a factor of ten is that of `torch._dynamo.utils.same`, which applies it to the
RMS of a whole tensor, and so misses a single wrong element.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.repro_templates.numbers.errors import (
    Mismatch,
    float_errors,
    identical,
    integer_errors,
    is_measurable,
)
from ctk.repro_templates.numbers.plain_parts import plain_parts
from ctk.repro_templates.numbers.tolerance import REASSOCIATES, Rows, Tolerance, tolerance_for


def compare_runs(
    eager: Mapping[str, object],
    compiled: Mapping[str, object],
    reference: Mapping[str, object] | None = None,
) -> tuple[Mismatch, ...]:
    """Return every mismatch between two runs, in the order of the results.

    Args:
        reference: The float64 run; if it is None, or has no value of the same name and shape, eager
            is the reference.
    """
    if list(eager) != list(compiled):
        return (_structure(list(eager), list(compiled)),)
    known = reference or {}
    return tuple(
        mismatch
        for name, value in eager.items()
        for mismatch in _mismatches(name, value, compiled[name], known.get(name))
    )


def _mismatches(
    name: str, eager: object, compiled: object, reference: object
) -> Iterator[Mismatch]:
    """Yield the mismatches of one value: numbers of another dtype may be wrong as well."""
    values = compare_values(name, eager, compiled, reference)
    if values is None:
        return
    yield values
    if values.kind == "dtype" and isinstance(eager, Tensor) and isinstance(compiled, Tensor):
        numbers = _compare_across(name, eager, compiled, reference)
        yield from (numbers,) if numbers else ()


def runs_identical(eager: Mapping[str, object], compiled: Mapping[str, object]) -> bool:
    """Return whether two runs agree bit for bit (then no reference is needed), strides aside."""
    if list(eager) != list(compiled):
        return False
    return all(identical(value, compiled[name]) for name, value in eager.items())


def compare_values(
    name: str,
    eager: object,
    compiled: object,
    reference: object = None,
    rows: Rows = REASSOCIATES,
) -> Mismatch | None:
    """Compare one value; return None when it is as good as eager's.

    Tensors of any size, 0-d and empty ones included, Python scalars and None. A Python float is
    held to the row of float32, because it mostly comes from `item()`.

    Args:
        reference: The same value in float64; anything else (None, another shape) means eager.
    """
    if isinstance(eager, Tensor) and isinstance(compiled, Tensor):
        if type(eager) in PLAIN_CLASSES and type(compiled) in PLAIN_CLASSES:
            return _compare_tensors(name, eager, compiled, reference, rows)
        return _compare_parts(name, eager, compiled, reference, rows)
    if eager is None or compiled is None or isinstance(eager, Tensor | str):
        same = eager is compiled or (isinstance(eager, str) and eager == compiled)
        return None if same else _kinds_differ(name, eager, compiled)
    if isinstance(compiled, Tensor):
        return _kinds_differ(name, eager, compiled)
    return _compare_scalars(name, eager, compiled, reference, rows)


def _compare_parts(
    name: str, eager: Tensor, compiled: Tensor, reference: object, rows: Rows
) -> Mismatch | None:
    """Compare the plain tensors in two tensors of other classes."""
    ours, theirs = plain_parts(eager), plain_parts(compiled)
    if ours.keys() != theirs.keys():
        said = f"a {type(compiled).__name__}, eager gives a {type(eager).__name__}"
        return Mismatch(name, "structure", said)
    known = plain_parts(reference) if isinstance(reference, Tensor) else {}
    for place, part in ours.items():
        tensors = _compare_tensors(name, part, theirs[place], known.get(place), rows)
        if tensors is not None:
            return replace(
                tensors, detail=f"{tensors.detail}{f', in its {place}' if place else ''}"
            )
    return None


def _compare_tensors(
    name: str,
    eager: Tensor,
    compiled: Tensor,
    reference: object,
    rows: Rows,
) -> Mismatch | None:
    if eager.dtype != compiled.dtype:
        detail = f"{_short(compiled.dtype)}, eager gives {_short(eager.dtype)}"
        return Mismatch(name, "dtype", detail)
    if eager.shape != compiled.shape:
        return Mismatch(name, "shape", f"{list(compiled.shape)}, eager gives {list(eager.shape)}")
    if eager.device != compiled.device or eager.layout != compiled.layout:
        return _kinds_differ(name, eager, compiled)
    if not is_measurable(eager) or identical(eager, compiled):
        return None
    return _compare_numbers(name, eager, compiled, reference, tolerance_for(eager.dtype, rows))


def _compare_across(
    name: str, eager: Tensor, compiled: Tensor, reference: object
) -> Mismatch | None:
    """Compare the numbers of tensors of two dtypes, by the tolerance of the coarser one."""
    try:
        common = torch.promote_types(eager.dtype, compiled.dtype)
    except RuntimeError:  # there is none
        return None
    if eager.shape != compiled.shape or not is_measurable(eager):
        return None
    ours, theirs = eager.to(common), compiled.to(common)
    if identical(ours, theirs):
        return None
    inexact = [each.dtype for each in (eager, compiled) if _is_inexact(each.dtype)]
    coarser = max(inexact, key=lambda dtype: torch.finfo(dtype).eps, default=common)
    return _compare_numbers(name, ours, theirs, reference, tolerance_for(coarser, REASSOCIATES))


def _compare_numbers(
    name: str, eager: Tensor, compiled: Tensor, reference: object, tolerance: Tolerance
) -> Mismatch | None:
    usable = isinstance(reference, Tensor) and reference.shape == eager.shape
    truth = cast(Tensor, reference) if usable else None
    if not _is_inexact(eager.dtype):
        return integer_errors(name, eager, compiled, truth)
    return float_errors(name, eager, compiled, truth, tolerance)


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _compare_scalars(
    name: str, eager: object, compiled: object, reference: object, rows: Rows
) -> Mismatch | None:
    if isinstance(eager, bool) != isinstance(compiled, bool) or _rank(eager) != _rank(compiled):
        return _kinds_differ(name, eager, compiled)
    if _rank(eager) < 2:
        same = eager == compiled
        detail = f"{compiled!r}, eager gives {eager!r}"
        return None if same else Mismatch(name, "accuracy", detail)
    dtype = torch.complex64 if isinstance(eager, complex) else torch.float32
    wide = torch.complex128 if isinstance(eager, complex) else torch.float64
    ours, theirs = (torch.tensor(value, dtype=wide, device="cpu") for value in (eager, compiled))
    if identical(ours, theirs):
        return None
    is_known = isinstance(reference, float | complex)
    truth = torch.tensor(reference, dtype=wide, device="cpu") if is_known else None
    return float_errors(name, ours, theirs, truth, tolerance_for(dtype, rows))


def _rank(value: object) -> int:
    """Return 0 for values that only == compares, 1 for integers, 2 for floats, 3 for complex."""
    number = isinstance(value, int | float | complex)
    return 0 if not number else 1 + isinstance(value, float | complex) + isinstance(value, complex)


def _structure(expected: Sequence[str], seen: Sequence[str]) -> Mismatch:
    missing = [name for name in expected if name not in seen]
    extra = [name for name in seen if name not in expected]
    parts = [f"missing {', '.join(missing)}"] * bool(missing)
    parts += [f"unexpected {', '.join(extra)}"] * bool(extra)
    first = (*missing, *extra, "out0")[0]
    return Mismatch(first, "structure", "; ".join(parts) or "results in another order")


SHOWN = (bool, int, float, complex, str, bytes, range, slice, torch.dtype, torch.device)
"""Types shown by value in a message."""


def _kinds_differ(name: str, eager: object, compiled: object) -> Mismatch:
    return Mismatch(name, "structure", f"{_kind(compiled)}, eager gives {_kind(eager)}")


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {value.layout} tensor on {value.device}".replace("torch.", "")
    if value is None:
        return "None"
    shown = repr(value) if isinstance(value, SHOWN) else ""
    return f"a Python {type(value).__name__} {shown[:60]}".rstrip()


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
