"""Lowerings of elementwise arithmetic, of choice between elements, and of copies."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, equal, expand, filled, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.lowering.operators.promotion import Operand, operand, operands, promoted
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

aten = torch.ops.aten


def unary(name: str) -> Callable[[Builder, Array], Array]:
    """Return the lowering of an operation on each element, in the type of the tensor."""

    def lower(_: Builder, x: Array) -> Array:
        return apply(name, raised(x))

    return lower


def binary(
    name: str, *, to_float: bool = False, rounded: bool = False
) -> Callable[[Builder, Operand, Operand], Array]:
    """Return the lowering of an operation on two tensors, or a tensor and a number."""

    def lower(_: Builder, x: Operand, y: Operand) -> Array:
        left, right = operands(x, y, to_float=to_float, rounded=rounded)
        return apply(_of_type(name, left.dtype), left, right)

    return lower


def _of_type(name: str, dtype: torch.dtype) -> str:
    """Return an operation's name for a type: `or` is the sum and the larger of two bools."""
    return _OF_BOOLS.get(name, name) if dtype == torch.bool else name


_OF_BOOLS = {"add": "or", "maximum": "or", "mul": "and", "minimum": "and"}


def _scaled(name: str) -> Callable[..., Array]:

    def lower(b: Builder, x: Operand, y: Operand, alpha: Any = 1) -> Array:
        dtype = promoted([x, y])
        on_cpu = b.device.type == "cpu"  # where eager rounds a number to the type, but for `mul`
        left, right = (operand(each, dtype, rounded=on_cpu) for each in (x, y))
        if alpha != 1:
            right = apply(_of_type("mul", dtype), right, operand(alpha, dtype))
        return apply(_of_type(name, dtype), left, right)

    return lower


def _rsub(b: Builder, x: Array, y: Operand, alpha: Any = 1) -> Array:
    return _scaled("sub")(b, y, x, alpha)


def _div_mode(b: Builder, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return binary("div", to_float=True)(b, x, y)
    if rounding_mode == "floor":
        return _floor_divide(b, x, y)
    dtype = promoted([x, y])
    if dtype.is_floating_point:
        return apply("trunc", binary("div")(b, x, y))
    return _integers("truncdiv", x, y, dtype)


def _floor_divide(_: Builder, x: Operand, y: Operand) -> Array:
    """Divide as Python does: the remainder decides where rounding might go wrong."""
    dtype = promoted([x, y])
    if not dtype.is_floating_point:
        return _integers("floordiv", x, y, dtype)
    return apply("floordiv", *operands(x, y))


def _rest(name: str) -> Callable[[Builder, Operand, Operand], Array]:
    """Return the lowering of a remainder; eager rounds a number to the type of the tensor."""

    def lower(_: Builder, x: Operand, y: Operand) -> Array:
        dtype = promoted([x, y])
        if not dtype.is_floating_point:
            return _integers(name, x, y, dtype)
        return apply(name, *operands(x, y, rounded=True))

    return lower


def _integers(name: str, x: Operand, y: Operand, dtype: torch.dtype) -> Array:
    """Return a division of integers, by a number only: eager raises for a divisor of zero."""
    if dtype == torch.bool or isinstance(y, Array) or not isinstance(y, int) or y == 0:
        raise NotLowered("eager raises where integers are divided by zero")
    return apply(name, operand(x, dtype), operand(y, dtype))


def _pow_number(b: Builder, x: Array, exponent: Any) -> Array:
    dtype = promoted([x, exponent])
    base = operand(x, dtype)
    if not dtype.is_floating_point:
        return _whole_power(base, exponent)
    if dtype == torch.float16 and b.device.type == "cpu" and exponent in (0.5, -0.5):
        power = _power_of_half(base)
        return power if exponent > 0 else 1 / power
    if exponent in _POWERS:
        return _POWERS[exponent](base)
    return apply("pow", base, operand(exponent, dtype))


def _pow(b: Builder, x: Operand, exponent: Array) -> Array:
    dtype = promoted([x, exponent])
    if not dtype.is_floating_point:
        raise NotLowered("eager raises where integers have a negative power")
    if not isinstance(x, Array) and x == 2:
        return apply("exp2", operand(exponent, dtype))
    return binary("pow")(b, x, exponent)


def _whole_power(base: Array, exponent: Any) -> Array:
    """Return a power of integers, which wraps as eager's does."""
    if base.dtype == torch.bool or not isinstance(exponent, int) or not 0 <= exponent < 64:
        raise NotLowered("kernels have no power of integers with this exponent")
    return by_squaring(base, exponent)


def by_squaring(base: Array, exponent: int) -> Array:
    """Return a power whose exponent is whole and not negative."""
    result = filled(base, 1)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result


def _power_of_half(base: Array) -> Array:
    """Return C's `pow(x, 0.5)`: not the root where x is -0.0 or -inf. GCC takes it for the root."""
    return where(equal(base, -math.inf), math.inf, apply("sqrt", base) + 0)


_POWERS: Mapping[float, Callable[[Array], Array]] = {
    0: lambda x: filled(x, 1),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -2: lambda x: 1 / (x * x),
    0.5: lambda x: apply("sqrt", x),
    -0.5: lambda x: apply("rsqrt", x),
    -1: lambda x: 1 / x,
}
"""Powers that eager computes without `pow`."""


def _square(b: Builder, x: Array) -> Array:
    return _pow_number(b, x, 2)


def _added(name: str) -> Callable[..., Array]:
    """Return the lowering of `x + value * y * z`, or with another operation before `z`."""

    def lower(_: Builder, x: Array, y: Array, z: Array, value: Any = 1) -> Array:
        first, second, third = operands(x, y, z)
        return first + apply(name, operand(value, promoted([x, y, z])) * second, third)

    return lower


def _lerp(_: Builder, start: Array, end: Array, weight: Operand) -> Array:
    dtype = start.dtype
    first, last, part = (operand(each, dtype) for each in (start, end, weight))
    way = last - first
    near = apply("abs", part) < 0.5
    return where(near, first + part * way, last - way * (1 - part))


def _clamp(_: Builder, x: Array, low: Operand | None = None, high: Operand | None = None) -> Array:
    limits = [each for each in (low, high) if each is not None]
    dtype = promoted([x, *limits])
    result = operand(x, dtype)
    if low is not None:
        result = bounded("maximum", result, low, dtype)
    return result if high is None else bounded("minimum", result, high, dtype)


def bounded(name: str, x: Array, bound: Operand, dtype: torch.dtype) -> Array:
    """Return the larger or smaller one; of 0.0 and -0.0 a bound that is a tensor, no number."""
    limit = operand(bound, dtype)
    return apply(name, *((x, limit) if isinstance(bound, Array) else (limit, x)))


def _clamp_max(b: Builder, x: Array, high: Operand) -> Array:
    return _clamp(b, x, None, high)


def _fmax(name: str) -> Callable[[Builder, Array, Array], Array]:

    def lower(b: Builder, x: Array, y: Array) -> Array:
        left, right = operands(x, y)
        is_right = promoted([x, y]) == torch.bfloat16 and b.device.type == "cpu"
        first, second = (left, right) if is_right else (right, left)
        best = apply(_of_type(name, left.dtype), first, second)  # the second of 0.0 and -0.0
        if not left.dtype.is_floating_point:
            return best
        return where(apply("isnan", left), right, where(apply("isnan", right), left, best))

    return lower


def _where(_: Builder, condition: Array, x: Operand, y: Operand) -> Array:
    return where(cast(condition, torch.bool), *operands(x, y))


def _masked_fill(_: Builder, x: Array, mask: Array, value: Operand) -> Array:
    return where(mask, operand(value, x.dtype), raised(x))


def _to_copy(b: Builder, x: Array, *, dtype: Any = None, device: Any = None, **_: object) -> Array:
    if device is not None and torch.device(device) != b.device:
        raise NotLowered("it copies to another device")
    return x if dtype is None else cast(x, dtype)


def _clone(_: Builder, x: Array, **__: object) -> Array:
    return x


def _copy(_: Builder, x: Array, source: Array, __: bool = False) -> Array:
    return expand(cast(source, x.dtype), x.shape)


def _expand_copy(b: Builder, x: Array, *_: object, **__: object) -> Array:
    return expand(x, sizes_of(b.result.shape))


TABLE: Mapping[object, Callable[..., Array]] = {
    aten._to_copy.default: _to_copy,
    aten.abs.default: unary("abs"),
    **overloads(aten.add, "Scalar Tensor", _scaled("add")),
    aten.addcdiv.default: _added("div"),
    aten.addcmul.default: _added("mul"),
    **overloads(aten.clamp, "Tensor default", _clamp),
    **overloads(aten.clamp_max, "Tensor default", _clamp_max),
    **overloads(aten.clamp_min, "Tensor default", _clamp),
    aten.clone.default: _clone,
    aten.copy.default: _copy,
    aten.div.Scalar: binary("div", to_float=True),
    aten.div.Scalar_mode: _div_mode,
    aten.div.Tensor: binary("div", to_float=True),
    aten.div.Tensor_mode: _div_mode,
    aten.expand_copy.default: _expand_copy,
    **overloads(aten.floor_divide, "Scalar default", _floor_divide),
    aten.fmax.default: _fmax("maximum"),
    aten.fmin.default: _fmax("minimum"),
    **overloads(aten.fmod, "Scalar Tensor", _rest("fmod")),
    **overloads(aten.lerp, "Scalar Tensor", _lerp),
    aten.lift_fresh_copy.default: _clone,
    **overloads(aten.masked_fill, "Scalar Tensor", _masked_fill),
    aten.maximum.default: binary("maximum"),
    aten.minimum.default: binary("minimum"),
    **overloads(aten.mul, "Scalar Tensor", binary("mul")),
    aten.neg.default: unary("neg"),
    aten.pow.Scalar: _pow,
    aten.pow.Tensor_Scalar: _pow_number,
    aten.pow.Tensor_Tensor: _pow,
    **overloads(aten.remainder, "Scalar Tensor", _rest("mod")),
    **overloads(aten.rsub, "Scalar Tensor", _rsub),
    aten.square.default: _square,
    **overloads(aten.sub, "Scalar Tensor", _scaled("sub")),
    **overloads(aten.where, "Scalar ScalarOther ScalarSelf self", _where),
}
