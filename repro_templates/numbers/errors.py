"""Measure errors between tensors, vectorised. The rule itself is explained in compare.py.

Dtypes, shapes and devices are equal already, and the tensors are not empty.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ctk.repro_templates.numbers.plain_parts import plain_parts
from ctk.repro_templates.numbers.tolerance import Tolerance

MismatchKind = Literal[
    "dtype", "shape", "stride", "structure", "accuracy", "nan", "alias", "requires-grad",
    "missing-error",
]  # fmt: skip

FACTOR = 10.0
"""Multiple of eager's own error that is a failure."""

SAMPLE = 1 << 20
"""Number of elements sampled for the statistics of a tensor."""

RARE = 0.01
"""Least share of inexact elements at which eager has noise."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A result that differs.

    Attributes:
        name: Of the result (`out0`, `in1`, `grad_in2`), or of the node.
        kind: The difference; for errors in numbers also the measurements below, else None.
        max_abs: Largest |compiled - reference|.
        rms_ratio: RMS error of compiled divided by that of eager; infinite when eager is exact.
        worst_index: The element that exceeds its allowance most.
    """

    name: str
    kind: MismatchKind
    detail: str
    max_abs: float | None = None
    rms_ratio: float | None = None
    worst_index: tuple[int, ...] | None = None


def identical(eager: object, compiled: object) -> bool:
    """Return whether two values are equal in type, dtype, shape and every number; NaN differs."""
    if isinstance(eager, Tensor) and isinstance(compiled, Tensor):
        ours, theirs = plain_parts(eager), plain_parts(compiled)
        return ours.keys() == theirs.keys() and all(
            _identical(part, theirs[place]) for place, part in ours.items()
        )
    return type(eager) is type(compiled) and not isinstance(eager, Tensor) and eager == compiled


def _identical(eager: Tensor, compiled: Tensor) -> bool:
    if eager.dtype != compiled.dtype or eager.device != compiled.device:
        return False
    if eager.is_meta:  # it has no numbers
        return eager.shape == compiled.shape
    if not (eager.layout is torch.strided and compiled.layout is torch.strided):
        return False
    if eager.dtype is torch.complex32:  # it has no comparison of its own
        return torch.equal(*(torch.view_as_real(each.resolve_conj()) for each in (eager, compiled)))
    return torch.equal(eager, compiled)


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors of one dtype and shape hold the same bits; all NaNs are the same."""
    if one.is_meta or other.is_meta:
        return one.device == other.device
    a, b = _real_parts(one), _real_parts(other)
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    both_nan = a.isnan() & b.isnan()
    return bool((((a == b) & (a.signbit() == b.signbit())) | both_nan).all())


def _real_parts(tensor: Tensor) -> Tensor:
    dense = tensor.resolve_conj().resolve_neg()
    return torch.view_as_real(dense) if dense.is_complex() else dense


def is_measurable(tensor: Tensor) -> bool:
    """Return whether the tensor has numbers to compare."""
    return tensor.numel() > 0 and tensor.device.type != "meta"


def integer_errors(
    name: str, eager: Tensor, compiled: Tensor, reference: Tensor | None
) -> Mismatch | None:
    """Compare integers or bools: exact, except for mistakes that eager itself makes.

    Args:
        reference: From the float64 run, of any dtype; None: eager is right.

    Returns:
        A mismatch when more than ten times as many elements, or ten times as large differences, are
        wrong as eager has; else None.
    """
    eager, compiled = as_dense(eager), as_dense(compiled)
    truth = eager if reference is None else as_dense(reference)
    wrong, own = compiled != truth, eager != truth
    e, c, r = (tensor.to(torch.float64) for tensor in (eager, compiled, truth))
    errors, eager_errors = (c - r).abs(), (e - r).abs()
    many = int(wrong.sum()) > FACTOR * int(own.sum())
    large = float(errors.max()) > FACTOR * float(eager_errors.max())
    if not (many or large):
        return None
    score = torch.where(wrong & ~own, errors + 1, errors)
    return _mismatch(name, "accuracy", score, wrong, (e, c, r), (eager_errors, errors))


def float_errors(
    name: str, eager: Tensor, compiled: Tensor, reference: Tensor | None, tolerance: Tolerance
) -> Mismatch | None:
    """Compare floats or complex numbers by the rule of compare.py.

    Args:
        reference: From the float64 run; None: eager is right.

    Returns:
        A mismatch of kind `nan` or `accuracy`, or None.
    """
    e, c = _wide(eager), _wide(compiled)
    r = e if reference is None else _wide(reference)
    finite = torch.isfinite(e) & torch.isfinite(c) & torch.isfinite(r)
    everywhere = bool(finite.all())
    if not everywhere:
        pattern = [_pattern(tensor) for tensor in (e, c, r)]
        bad = (pattern[1] != pattern[0]) & (pattern[1] != pattern[2])
        if bad.any():
            return _mismatch(name, "nan", bad.double(), bad, (e, c, r), (e - r, c - r))
        e, c, r = (torch.where(finite, tensor, 0.0) for tensor in (e, c, r))
    eager_errors, errors = (e - r).abs(), (c - r).abs()
    allowed = _allowance(eager_errors, r.abs(), tolerance, is_reference=reference is not None)
    if not (errors > allowed).any():
        return None
    score = torch.where(errors > allowed, errors / allowed, 0.0)
    return _mismatch(name, "accuracy", score, score > 0, (e, c, r), (eager_errors, errors))


def _allowance(
    eager_errors: Tensor, size: Tensor, tolerance: Tolerance, *, is_reference: bool
) -> Tensor:
    """Return the largest error of each element that is not a failure."""
    typical = _typical(size)
    atol = tolerance.atol
    if is_reference and typical > 100 * float(eager_errors.square().mean().sqrt()):
        atol *= min(1.0, typical)
    allowed = atol + tolerance.rtol * size.clamp(min=typical)
    scale = size + typical if typical else torch.ones_like(size)
    noise = _noise(eager_errors, scale)
    return torch.maximum(allowed, FACTOR * torch.maximum(eager_errors, noise * scale))


def _typical(size: Tensor) -> float:
    sample = _sample(size)
    nonzero = sample[sample > 0]
    return float(nonzero.median()) if nonzero.numel() else 0.0


def _noise(eager_errors: Tensor, scale: Tensor) -> float:
    errors = _sample(eager_errors)
    relative = errors / _sample(scale)
    inexact = relative[errors > 0]
    if inexact.numel() < max(1.0, RARE * relative.numel()):
        return 0.0
    rank = max(1, round(0.95 * inexact.numel()))
    return float(inexact.kthvalue(rank).values)


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat[:: -(-flat.numel() // SAMPLE)]


def _wide(tensor: Tensor) -> Tensor:
    """Return the numbers in float64; complex ones get a last dimension of two."""
    dense = as_dense(tensor)
    if dense.is_complex():
        return torch.view_as_real(dense.to(torch.complex128).resolve_conj())
    return dense.to(torch.float64)


def as_dense(tensor: Tensor) -> Tensor:
    """Return a tensor without its gradient, scales and sparse layout."""
    tensor = tensor.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _pattern(tensor: Tensor) -> Tensor:
    """Return 0 for a finite element, 1 and -1 for infinities, 2 for NaN."""
    infinite = torch.where(torch.isinf(tensor), tensor.sign(), 0.0)
    return torch.where(torch.isnan(tensor), 2.0, infinite)


def _mismatch(
    name: str,
    kind: MismatchKind,
    score: Tensor,
    failing: Tensor,
    values: tuple[Tensor, Tensor, Tensor],
    errors: tuple[Tensor, Tensor],
) -> Mismatch:
    """Put the measurements together; the worst element is the one with the highest score."""
    worst = int(score.reshape(-1).argmax())
    e, c, r = (float(tensor.reshape(-1)[worst]) for tensor in values)
    own, ours = (torch.nan_to_num(error.abs(), 0.0, 0.0, 0.0) for error in errors)
    size = values[2].abs()
    relative = torch.where(size > 0, ours / size, 0.0)
    own_rms, our_rms = (float(each.square().mean().sqrt()) for each in (own, ours))
    ratio = our_rms / own_rms if own_rms else float("inf") if our_rms else 1.0
    index = tuple(map(int, torch.unravel_index(torch.tensor(worst, device="cpu"), score.shape)))
    max_abs = float(ours.max())
    max_rel = float(torch.nan_to_num(relative, 0.0, 0.0, 0.0).max())
    where = f"at {list(index)}" if index else "in all"
    detail = (
        f"{int(failing.sum())} of {score.numel()} elements wrong, got {c:.9g}, expected {r:.9g}"
        f" (eager {e:.9g}) {where}; max abs {max_abs:.3g}, max rel {max_rel:.3g}"
    )
    return Mismatch(name, kind, detail, max_abs, ratio, index)
