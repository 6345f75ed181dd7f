"""Each operation of the loop IR as a Triton expression.

`tl` and `libdevice` are Triton's, `device` is `device.py` of this folder. In Triton, `/` of floats
is approximate, so that division is `tl.math.div_rn`; `//` and `%` of integers are those of C; and
`tl.maximum` drops a NaN by default.

Accuracy in float32, as NVIDIA documents it for libdevice (CUDA Math API, ULP): exp2 2,
expm1 1, log 1, log2 1, log10 2, log1p 1, pow 4, hypot 3, sin, cos 2, tan 4, asin 2, acos 2,
atan 2, atan2 3, sinh 3, cosh 2, tanh 2, asinh 3, acosh 4, atanh 3, erf 2, erfc 4, erfinv 2,
lgamma 6 (outside of -10.001 to -2.264), sigmoid 3; exp (`device.py`) 2.3, rsqrt 1. Arithmetic,
division and sqrt round correctly; a row divided by one number is within 2. Subnormal numbers are
kept: libdevice is compiled without flushing them (`enable_reflect_ftz`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from ctk.compiler.lowering.ir import Const, Dtype, Op

Printer: TypeAlias = Callable[[Op, Sequence[str]], str]

_SAME_NAME = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
)  # fmt: skip

TYPES: Mapping[Dtype, str] = {
    **{each: str(each).replace("torch.", "tl.") for each in _SAME_NAME},
    torch.bool: "tl.int1",
}

_ROUNDED = {"floor": "tl.floor", "ceil": "tl.ceil", "trunc": "libdevice.trunc",
            "round": "libdevice.nearbyint"}  # fmt: skip

_FUNCTIONS = (
    "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "hypot",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "erf", "erfc", "erfinv", "lgamma",
)  # fmt: skip


def op_text(op: Op, args: Sequence[str]) -> str:
    """Return an operation on the texts of its operands."""
    return PRINTERS[op.name](op, args)


def const_text(const: Const, *, bare: bool = False) -> str:
    """Return a number; `bare` where the other operand determines its type.

    One of 16 bits is made in float32: numpy, in which the interpreter computes, has no bfloat16.
    """
    literal = number_text(const.value, const.dtype)
    if bare and const.dtype not in (torch.bool, torch.float64):
        return literal
    if const.dtype.is_floating_point and const.dtype.itemsize < 4:
        return f"tl.full([], {literal}, tl.float32).to({TYPES[const.dtype]})"
    return f"tl.full([], {literal}, {TYPES[const.dtype]})"


def number_text(value: float | int | bool, dtype: Dtype) -> str:
    """Return a number as a literal of Python."""
    if dtype == torch.bool:
        return str(int(bool(value)))
    if not dtype.is_floating_point:
        return str(int(value))
    text = repr(float(value))
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def cast_text(value: str, source: Dtype, target: Dtype) -> str:
    """Return a value converted as torch converts."""
    if source == target:
        return value
    if target == torch.bool:
        return f"({value} != 0)"
    if source.is_floating_point and target.itemsize < 4 and not target.is_floating_point:
        return f"{value}.to(tl.int32).to({TYPES[target]})"
    return f"{value}.to({TYPES[target]})"


def _cast(op: Op, args: Sequence[str]) -> str:
    return cast_text(args[0], op.args[0].dtype, op.dtype)


def _infix(sign: str) -> Printer:
    return lambda _, args: f"{args[0]} {sign} {args[1]}"


def _call(name: str) -> Printer:
    return lambda _, args: f"{name}({', '.join(args)})"


def _extreme(name: str, of_bools: str) -> Printer:
    def text(op: Op, args: Sequence[str]) -> str:
        if op.dtype == torch.bool:
            return f"{args[0]} {of_bools} {args[1]}"
        if op.dtype.is_floating_point:
            return f"device.{name}_or_nan({args[0]}, {args[1]})"
        return f"tl.{name}({args[0]}, {args[1]})"

    return text


def _by_kind(floats: str, integers: str) -> Printer:
    return lambda op, args: (
        f"{floats if op.dtype.is_floating_point else integers}({', '.join(args)})"
    )


def _div(op: Op, args: Sequence[str]) -> str:
    if op.dtype == torch.float64:
        return f"{args[0]} / {args[1]}"
    return f"tl.math.div_rn({args[0]}, {args[1]})"


def _sqrt(op: Op, args: Sequence[str]) -> str:
    return f"tl.sqrt({args[0]})" if op.dtype == torch.float64 else f"tl.sqrt_rn({args[0]})"


def _reciprocal(op: Op, args: Sequence[str]) -> str:
    one = f"tl.full([], 1.0, {TYPES[op.dtype]})"
    return _div(op, (one, args[0]))


def _negated(op: Op, args: Sequence[str]) -> str:
    """Return the number with the other sign: `-x` of Triton is `0 - x`, which makes 0 of 0."""
    if op.dtype.is_floating_point:
        return f"{args[0]} * -1.0"
    return f"0 - {args[0]}"


def _invert(op: Op, args: Sequence[str]) -> str:
    if op.dtype == torch.uint8:
        return f"{args[0]} ^ 255"
    return f"{args[0]} == 0" if op.dtype == torch.bool else f"~{args[0]}"


def _isnan(_: Op, args: Sequence[str]) -> str:
    return f"{args[0]} != {args[0]}"


def _isinf(op: Op, args: Sequence[str]) -> str:
    if not op.args[0].dtype.is_floating_point:
        return f"{args[0]} != {args[0]}"
    return f'tl.abs({args[0]}) == float("inf")'


def _signbit(op: Op, args: Sequence[str]) -> str:
    dtype = op.args[0].dtype
    if not dtype.is_floating_point:
        return f"{args[0]} < 0"
    bits = {8: "tl.int64", 4: "tl.int32", 2: "tl.int16"}[dtype.itemsize]
    return f"{args[0]}.to({bits}, bitcast=True) < 0"


def _shl(op: Op, args: Sequence[str]) -> str:
    return f"device.shl({args[0]}, {args[1]}, {op.dtype.itemsize * 8})"


def _shr(op: Op, args: Sequence[str]) -> str:
    name = "shr_unsigned" if op.dtype == torch.uint8 else "shr"
    return f"device.{name}({args[0]}, {args[1]}, {op.dtype.itemsize * 8})"


def _round(op: Op, args: Sequence[str]) -> str:
    return f"{_ROUNDED[op.name]}({args[0]})" if op.dtype.is_floating_point else args[0]


PRINTERS: Mapping[str, Printer] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "neg": _negated,
    "abs": _call("tl.abs"),
    "maximum": _extreme("maximum", "|"),
    "minimum": _extreme("minimum", "&"),
    "div": _div,
    "floordiv": _by_kind("device.floordiv_of_floats", "device.floordiv"),
    "truncdiv": _by_kind("device.truncdiv_of_floats", "device.truncdiv"),
    "mod": _by_kind("device.mod_of_floats", "device.mod"),
    "fmod": _by_kind("libdevice.fmod", "device.fmod"),
    "reciprocal": _reciprocal,
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "and": _infix("&"),
    "or": _infix("|"),
    "xor": _infix("^"),
    "not": _invert,
    "shl": _shl,
    "shr": _shr,
    **dict.fromkeys(_ROUNDED, _round),
    "sign": _call("device.sign"),
    "signbit": _signbit,
    "copysign": _call("libdevice.copysign"),
    "isnan": _isnan,
    "isinf": _isinf,
    "nextafter": _call("libdevice.nextafter"),
    **{name: _call(f"libdevice.{name}") for name in _FUNCTIONS},
    "sqrt": _sqrt,
    "rsqrt": _call("device.rsqrt"),
    "exp": _call("device.exp"),
    "sigmoid": _call("device.sigmoid"),
    "where": _call("tl.where"),
    "cast": _cast,
}
"""A printer for each operation of `vocabulary.ARITY` but `philox`, which `body.py` prints."""

INFIX = frozenset(("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"))
"""Operations of which one operand may be a bare number."""
