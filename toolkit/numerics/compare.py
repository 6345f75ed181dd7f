"""Compare a compiled run with eager and a high-precision reference; each difference has a kind.

An element fails when its error against the reference exceeds its tolerance AND ten times eager's
own error. Both need a size to be relative to:

1. Tolerance: `atol + rtol * max(|ref|, typical)`, where `typical` is the median of |ref| over its
   nonzero elements: an element much smaller than its neighbours is what cancellation left over, and
   carries their error. Where the whole tensor is small and yet clearly above eager's noise
   (gradients of 1e-6), `atol` shrinks with it.
2. Eager's own error at an element is the larger of the error measured there and the tensor's noise:
   the 95th percentile, over the elements where eager is not exact, of error / (|ref| + typical),
   scaled back to the element. The percentile is there because eager is sometimes exact by accident;
   it is not the maximum, because one ill-conditioned element must not excuse all the others. When
   eager is exact on 99 of 100 elements there is no noise to speak of, and none is used.

NaN and Inf must stand where eager or the reference has them (a float16 overflow in eager alone is
eager's error). Integers and bools must be equal, except that eager's own mistakes are counted in
the same way: ten times as many, or ten times as large.

What it does not do: it runs nothing, and it does not say whether a difference reproduces an earlier
one (oracle/judge.py).

Source: the rule with a factor of ten is that of `torch._dynamo.utils.same`, which applies it to the
RMS of a whole tensor, and so misses a single wrong element.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ctk.compiler.errors import CtkError
from ctk.compiler.observe import Numerics
from ctk.toolkit.case.failure import FailureKind
from ctk.toolkit.numerics.errors import Errors, identical, integer_errors, is_measurable, measure
from ctk.toolkit.numerics.tolerance import tolerance_for
from ctk.toolkit.run.execute import Outcome, Result

Results = Outcome | Sequence[Result]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A result that differs.

    Attributes:
        name: Of the result (`out0`, `in1`, `grad_in2`), or of the node.
        kind: What differs; for errors in numbers also the measurements below, else None.
        detail: One line for people.
        max_abs: Largest |compiled - reference|.
        max_rel: Largest error divided by |reference|, over the elements that are not 0.
        rms_ratio: RMS error of compiled divided by that of eager; infinite when eager is exact.
        ulp: Error at the worst element in units of the last place of its dtype.
        worst_index: The element that exceeds its allowance most.
    """

    name: str
    kind: FailureKind
    detail: str
    max_abs: float | None = None
    max_rel: float | None = None
    rms_ratio: float | None = None
    ulp: float | None = None
    worst_index: tuple[int, ...] | None = None


def compare_results(
    eager: Results,
    compiled: Results,
    reference: Results | None = None,
    numerics: Numerics = "reassociates",
    *,
    strides: bool = False,
) -> tuple[Mismatch, ...]:
    """Return every mismatch between two runs, in the order of the results.

    Args:
        eager: What the program gives.
        compiled: What is under test.
        reference: The float64 run; None, or one without a value of the same name and shape: eager
            is the reference.
        numerics: What the compiler may do to values; a whole compile may reassociate.
        strides: Compare the strides of outputs too. Dynamo and AOTAutograd promise them, but a
            program seldom depends on them, so it is asked for.

    Raises:
        CtkError: `eager` or `compiled` is the outcome of a run that raised.
    """
    ours, theirs = _results(eager), _results(compiled)
    expected, seen = [r.name for r in ours], [r.name for r in theirs]
    if expected != seen:
        return (_structure(expected, seen),)
    known = {} if reference is None else {r.name: r.value for r in _results(reference)}
    found = (
        compare_values(
            a.name,
            a.value,
            b.value,
            known.get(a.name),
            numerics,
            strides=strides and a.name.startswith("out"),
        )
        for a, b in zip(ours, theirs, strict=True)
    )
    return tuple(mismatch for mismatch in found if mismatch)


def results_identical(eager: Results, compiled: Results) -> bool:
    """Return whether two runs agree bit for bit (then no reference is needed), strides aside."""
    ours, theirs = _results(eager), _results(compiled)
    if len(ours) != len(theirs):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(a.name == b.name and identical(a.value, b.value) for a, b in pairs)


def compare_values(
    name: str,
    eager: object,
    compiled: object,
    reference: object = None,
    numerics: Numerics = "reassociates",
    *,
    strides: bool = False,
) -> Mismatch | None:
    """Compare one value; return None when it is as good as eager's.

    Tensors of any size, 0-d and empty ones included, Python scalars and None. A Python float is
    held to the row of float32, because it mostly comes from `item()`.

    Args:
        name: For the report.
        eager: What the program gives.
        compiled: What is under test.
        reference: The same value in float64; anything else (None, another shape) means eager.
        numerics: Row of the tolerance table.
        strides: Also compare the strides of dimensions longer than 1.
    """
    if isinstance(eager, Tensor) and isinstance(compiled, Tensor):
        return _compare_tensors(name, eager, compiled, reference, numerics, strides=strides)
    if eager is None or compiled is None or isinstance(eager, Tensor | str):
        same = eager is compiled or (isinstance(eager, str) and eager == compiled)
        return None if same else _kinds_differ(name, eager, compiled)
    if isinstance(compiled, Tensor):
        return _kinds_differ(name, eager, compiled)
    return _compare_scalars(name, eager, compiled, reference, numerics)


def _compare_tensors(
    name: str,
    eager: Tensor,
    compiled: Tensor,
    reference: object,
    numerics: Numerics,
    *,
    strides: bool,
) -> Mismatch | None:
    if eager.dtype != compiled.dtype:
        detail = f"{_short(compiled.dtype)}, eager gives {_short(eager.dtype)}"
        return Mismatch(name, "dtype", detail)
    if eager.shape != compiled.shape:
        return Mismatch(name, "shape", f"{list(compiled.shape)}, eager gives {list(eager.shape)}")
    if eager.device != compiled.device or eager.layout != compiled.layout:
        return _kinds_differ(name, eager, compiled)
    if strides and _strides(eager) != _strides(compiled):
        detail = f"{tuple(compiled.stride())}, eager gives {tuple(eager.stride())}"
        return Mismatch(name, "stride", detail)
    if not is_measurable(eager) or identical(eager, compiled):
        return None
    return _compare_numbers(name, eager, compiled, reference, numerics)


def _compare_numbers(
    name: str, eager: Tensor, compiled: Tensor, reference: object, numerics: Numerics
) -> Mismatch | None:
    usable = isinstance(reference, Tensor) and reference.shape == eager.shape
    truth = cast(Tensor, reference) if usable else None
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        errors = integer_errors(eager, compiled, truth)
    else:
        errors = measure(eager, compiled, truth, tolerance_for(eager.dtype, numerics))
    return _mismatch(name, errors) if errors else None


def _mismatch(name: str, errors: Errors) -> Mismatch:
    return Mismatch(
        name,
        errors.kind,
        str(errors),
        errors.max_abs,
        errors.max_rel,
        errors.rms_ratio,
        errors.ulp,
        errors.worst_index,
    )


def _compare_scalars(
    name: str, eager: object, compiled: object, reference: object, numerics: Numerics
) -> Mismatch | None:
    if isinstance(eager, bool) != isinstance(compiled, bool) or _rank(eager) != _rank(compiled):
        return _kinds_differ(name, eager, compiled)
    if _rank(eager) < 2:
        same = eager == compiled
        detail = f"{compiled!r}, eager gives {eager!r}"
        return None if same else Mismatch(name, "accuracy", detail)
    dtype = torch.complex64 if isinstance(eager, complex) else torch.float32
    wide = torch.complex128 if isinstance(eager, complex) else torch.float64
    ours, theirs = (torch.tensor(value, dtype=wide) for value in (eager, compiled))
    if identical(ours, theirs):
        return None
    truth = torch.tensor(reference, dtype=wide) if isinstance(reference, float | complex) else None
    errors = measure(ours, theirs, truth, tolerance_for(dtype, numerics))
    return _mismatch(name, errors) if errors else None


def _rank(value: object) -> int:
    """Return 0 for what can only be compared by ==, 1 for integers, 2 for floats, 3 for complex."""
    number = isinstance(value, int | float | complex)
    return 0 if not number else 1 + isinstance(value, float | complex) + isinstance(value, complex)


def _results(run: Results) -> Sequence[Result]:
    if not isinstance(run, Outcome):
        return run
    if run.results is None:
        said = f"{type(run.error).__name__}: {run.error}"
        raise CtkError(f"nothing to compare: the run raised {said}")
    return run.results


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides that a program can notice: of dimensions longer than 1."""
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return ()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in pairs if size > 1)


def _structure(expected: Iterable[str], seen: Iterable[str]) -> Mismatch:
    missing = [name for name in expected if name not in set(seen)]
    extra = [name for name in seen if name not in set(expected)]
    parts = [f"missing {', '.join(missing)}"] * bool(missing)
    parts += [f"unexpected {', '.join(extra)}"] * bool(extra)
    first = (*missing, *extra, "out0")[0]
    return Mismatch(first, "structure", "; ".join(parts) or "results in another order")


def _kinds_differ(name: str, eager: object, compiled: object) -> Mismatch:
    return Mismatch(name, "structure", f"{_kind(compiled)}, eager gives {_kind(eager)}")


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {value.layout} tensor on {value.device}".replace("torch.", "")
    return "None" if value is None else f"a Python {type(value).__name__}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
