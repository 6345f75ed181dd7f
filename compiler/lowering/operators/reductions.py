"""Lowerings of reductions over axes: sums, means, extremes, norms and moments."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    At,
    apply,
    cast,
    equal,
    filled,
    moved,
    raised,
    reshaped,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import axes_of, count_of
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.lowering.operators.pointwise import by_squaring
from ctk.compiler.lowering.operators.promotion import operands
from ctk.compiler.sizes.index import ONE, ZERO, Index, is_less, product
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten


def _summed(b: Builder, x: Array, dtype: Any) -> Array:
    result = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    return b.accumulated(cast(x, result))


def _sum(
    b: Builder, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    return b.reduce("sum", _summed(b, x, dtype), axes_of(x, dim), keepdim=keepdim)[0]


def _mean(
    b: Builder, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    total = _sum(b, x, dim, keepdim, dtype=dtype)
    return total / count_of([x.shape[axis] for axis in axes_of(x, dim)], total.dtype)


def _prod(
    b: Builder, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    return b.reduce("prod", _summed(b, x, dtype), axes_of(x, dim), keepdim=keepdim)[0]


def _best(b: Builder, kind: Any, x: Array, axes: Sequence[int], *, keepdim: bool) -> Array:
    """Return the largest or least; for bools whether any or all hold."""
    if x.dtype == torch.bool:
        kind = {"max": "any", "min": "all"}[kind]
    return b.reduce(kind, raised(x), axes, keepdim=keepdim)[0]


def _extreme(kind: str) -> Callable[..., Array]:
    def lower(b: Builder, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        return _best(b, kind, x, axes_of(x, dim), keepdim=keepdim)

    return lower


def _aminmax(
    b: Builder, x: Array, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    axes = axes_of(x, dim)
    return _best(b, "min", x, axes, keepdim=keepdim), _best(b, "max", x, axes, keepdim=keepdim)


def _with_position(kind: Any) -> Callable[..., tuple[Array, ...]]:

    def lower(b: Builder, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, ...]:
        return b.reduce(kind, _ordered(x), axes_of(x, dim), keepdim=keepdim)

    return lower


def _position(kind: Any) -> Callable[..., Array]:

    def lower(b: Builder, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is not None:
            return b.reduce(kind, _ordered(x), axes_of(x, dim), keepdim=keepdim)[1]
        flat = reshaped(_ordered(x), (product(x.shape),))
        found = b.reduce(kind, flat, (0,))[1]
        full = (ONE,) * len(x.shape) if keepdim else ()
        return moved(found, full, lambda _: ())

    return lower


def _with_elements(lowering: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lowering that leaves dimensions that may be empty to the library, where they raise.

    For `max` and `min`: the fake kernels of torch refuse empty dimensions, or guard against them,
    for all other reductions without identity.
    """

    def lower(b: Builder, x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if not all(is_less(0, x.shape[axis]) for axis in axes_of(x, dim)):
            raise NotLowered("it may reduce an empty dimension, which raises in eager")
        return lowering(b, x, dim, keepdim)

    return lower


def _ordered(x: Array) -> Array:
    return cast(x, torch.uint8) if x.dtype == torch.bool else raised(x)


def _truth(kind: Any) -> Callable[..., Array]:
    def lower(b: Builder, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        """Reduce over some dimensions: over none if their list is empty, where others take all."""
        axes = () if isinstance(dim, (list, tuple)) and not dim else axes_of(x, dim)
        return b.reduce(kind, cast(x, torch.bool), axes, keepdim=keepdim)[0]

    return lower


def _count_nonzero(b: Builder, x: Array, dim: Any = None) -> Array:
    return b.reduce("sum", cast(cast(x, torch.bool), torch.int64), axes_of(x, dim))[0]


def _var_mean(
    b: Builder, x: Array, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    axes = axes_of(x, dim)
    wide = b.accumulated(x)
    mean, m2 = b.reduce("mean_m2", wide, axes, keepdim=keepdim)
    count = count_of([x.shape[axis] for axis in axes], wide.dtype)
    free = count - float(1 if correction is None else correction)
    return m2 / apply("maximum", free, filled(free, 0)), mean


def _std_mean(
    b: Builder, x: Array, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Sum up in float64 on the CPU, as eager does: a variance may be too large for float32."""
    wide = cast(x, torch.float64) if b.device.type == "cpu" else x
    variance, mean = _var_mean(b, wide, dim, correction=correction, keepdim=keepdim)
    return apply("sqrt", variance), mean


def _without_mean(lowering: Callable[..., tuple[Array, Array]]) -> Callable[..., Array]:
    def lower(*args: Any, **kwargs: Any) -> Array:
        return lowering(*args, **kwargs)[0]

    return lower


def _norm(
    b: Builder, x: Array, p: float | None = None, dim: Any = None, keepdim: bool = False, *,
    dtype: Any = None,
) -> Array:  # fmt: skip
    ord_ = 2.0 if p is None else float(p)
    wide = raised(x if dtype is None else cast(x, dtype))
    sizes = apply("abs", b.accumulated(wide))
    axes = axes_of(x, dim)
    if math.isinf(ord_):
        return b.reduce("max" if ord_ > 0 else "min", sizes, axes, keepdim=keepdim)[0]
    if ord_ == 0:
        sizes = cast(apply("not", equal(sizes, 0)), sizes.dtype)
    elif ord_ == 2:
        sizes = sizes * sizes
    elif ord_ != 1:
        whole = ord_ in range(3, 9)
        exponent = filled(sizes, ord_)
        sizes = by_squaring(sizes, int(ord_)) if whole else apply("pow", sizes, exponent)
    total = b.reduce("sum", sizes, axes, keepdim=keepdim)[0]
    if ord_ in (0, 1):
        return total
    root = 1 / ord_
    return apply("sqrt", total) if ord_ == 2 else apply("pow", total, filled(total, root))


def _vector_norm(
    b: Builder, x: Array, ord: float = 2, dim: Any = None, keepdim: bool = False, *,
    dtype: Any = None,
) -> Array:  # fmt: skip
    return _norm(b, x, ord, dim, keepdim, dtype=dtype)


def _logsumexp(b: Builder, x: Array, dim: Any, keepdim: bool = False) -> Array:
    (wide,) = operands(x, to_float=True)
    axes = axes_of(x, dim)
    best = b.reduce("max", wide, axes, keepdim=True)[0]
    shift = where(equal(apply("abs", best), math.inf), 0, best)
    powers = b.accumulated(apply("exp", wide - shift))
    total = apply("log", b.reduce("sum", powers, axes, keepdim=True)[0]) + cast(shift, powers.dtype)
    if keepdim:
        return total
    kept = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)

    def back(at: At) -> list[Index]:
        rest = iter(at)
        return [ZERO if axis in axes else next(rest) for axis in range(len(x.shape))]

    return moved(total, kept, back)


TABLE: Mapping[object, Callable[..., Any]] = {
    **overloads(aten.all, "default dim dims", _truth("all")),
    aten.amax.default: _extreme("max"),
    aten.amin.default: _extreme("min"),
    aten.aminmax.default: _aminmax,
    **overloads(aten.any, "default dim dims", _truth("any")),
    aten.argmax.default: _position("argmax"),
    aten.argmin.default: _position("argmin"),
    **overloads(aten.count_nonzero, "default dim_IntList", _count_nonzero),
    aten.linalg_vector_norm.default: _vector_norm,
    aten.logsumexp.default: _logsumexp,
    aten.max.default: _with_elements(_extreme("max")),
    aten.max.dim: _with_elements(_with_position("argmax")),
    **overloads(aten.mean, "default dim", _mean),
    aten.min.default: _with_elements(_extreme("min")),
    aten.min.dim: _with_elements(_with_position("argmin")),
    **overloads(aten.norm, "Scalar ScalarOpt_dim ScalarOpt_dim_dtype", _norm),
    **overloads(aten.prod, "default dim_int", _prod),
    aten.std.correction: _without_mean(_std_mean),
    aten.std_mean.correction: _std_mean,
    **overloads(aten.sum, "default dim_IntList", _sum),
    aten.var.correction: _without_mean(_var_mean),
    aten.var_mean.correction: _var_mean,
}
