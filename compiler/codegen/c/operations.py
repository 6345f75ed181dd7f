"""Operations of the loop IR's vocabulary as C expressions.

Floats of 32 and 64 bits have C's operators; other operations are functions of `functions.py`,
called `NAME_TYPE`: `exp_f32`, `floordiv_i64`. Floats of 16 bits are computed in float32.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from ctk.compiler.codegen.c.types import C_TYPES, LIBRARY, SUFFIXES, grouped, is_narrow
from ctk.compiler.lowering.ir import Dtype, Op
from ctk.compiler.lowering.vocabulary import ARITY, BOOL_RESULTS

Form = Callable[[Sequence[str], Dtype], str]
"""Makes C of the operands' code and their type."""

_WRAPPING = (torch.int8, torch.int16, torch.uint8)
"""Types that C widens to int before it computes."""


def operation_code(op: Op, args: Sequence[str]) -> str:
    """Return an operation as a C expression."""
    if op.name == "cast":
        return cast_code(args[0], op.args[0].dtype, op.dtype)
    if op.name == "where":
        condition, then, other = map(grouped, args)
        return f"{condition} ? {then} : {other}"
    dtype = op.args[-1].dtype
    if not is_narrow(dtype):
        return FORMS[op.name](args, dtype)
    wide = [cast_code(arg, dtype, torch.float32) for arg in args]
    code = FORMS[op.name](wide, torch.float32)
    return code if op.name in BOOL_RESULTS else cast_code(code, torch.float32, op.dtype)


def cast_code(code: str, source: Dtype, target: Dtype) -> str:
    """Return a value converted as torch converts."""
    if source == target:
        return code
    if is_narrow(source):
        wide = f"f32_of_{SUFFIXES[source]}({code})"
        return cast_code(wide, torch.float32, target)
    if target == torch.bool:
        return f"{grouped(code)} != 0"
    if is_narrow(target):
        return f"{SUFFIXES[target]}_of_f32({cast_code(code, source, torch.float32)})"
    return f"({C_TYPES[target]}){grouped(code)}"


def without_rounding(op: Op) -> Op:
    """Simplify a conversion to 16 bits and back to float32.

    A small integer is exact in 16 bits: its conversion is left out. A float32 is rounded in place.
    """
    if op.name != "cast" or op.dtype != torch.float32:
        return op
    (half,) = op.args
    if not isinstance(half, Op) or half.name != "cast" or not is_narrow(half.dtype):
        return op
    (whole,) = half.args
    if whole.dtype == torch.float32:
        return replace(op, name=f"round_{SUFFIXES[half.dtype]}", args=(whole,))
    small = whole.dtype in (torch.bool, torch.uint8, torch.int8)
    return replace(op, args=(whole,)) if small else op


def _infix(sign: str) -> Form:
    def form(args: Sequence[str], dtype: Dtype) -> str:
        code = f"{grouped(args[0])} {sign} {grouped(args[1])}"
        return f"({C_TYPES[dtype]})({code})" if dtype in _WRAPPING else code

    return form


def _compared(sign: str) -> Form:
    return lambda args, _: f"{grouped(args[0])} {sign} {grouped(args[1])}"


def _call(name: str) -> Form:
    return lambda args, dtype: f"{name}_{SUFFIXES[dtype]}({', '.join(args)})"


def _negated(args: Sequence[str], dtype: Dtype) -> str:
    return f"({C_TYPES[dtype]})(-{grouped(args[0])})" if dtype in _WRAPPING else f"-({args[0]})"


def _not(args: Sequence[str], dtype: Dtype) -> str:
    if dtype == torch.bool:
        return f"!{grouped(args[0])}"
    return f"({C_TYPES[dtype]})(~{grouped(args[0])})"


def _floats(form: Form, of_integers: str) -> Form:
    """Return a form for floats; integers have a constant answer, or are themselves."""

    def chosen(args: Sequence[str], dtype: Dtype) -> str:
        if dtype.is_floating_point:
            return form(args, dtype)
        return of_integers.format(grouped(args[0]))

    return chosen


def _libm(name: str) -> Form:
    """Return a call of C's mathematics that compilers have an instruction for."""
    assert name in LIBRARY, "no buffer may be called so"
    return lambda args, dtype: f"{name}{'f' * (dtype == torch.float32)}({', '.join(args)})"


FORMS: Mapping[str, Form] = {
    **{name: _call(name) for name in ARITY},
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "reciprocal": lambda args, dtype: f"({C_TYPES[dtype]})1 / {grouped(args[0])}",
    "neg": _negated,
    "eq": _compared("=="),
    "ne": _compared("!="),
    "lt": _compared("<"),
    "le": _compared("<="),
    "gt": _compared(">"),
    "ge": _compared(">="),
    "and": _infix("&"),
    "or": _infix("|"),
    "xor": _infix("^"),
    "not": _not,
    "floor": _floats(_libm("floor"), "{}"),
    "ceil": _floats(_libm("ceil"), "{}"),
    "trunc": _floats(_libm("trunc"), "{}"),
    "round": _floats(_libm("rint"), "{}"),
    "copysign": _libm("copysign"),
    "sqrt": _libm("sqrt"),
    **{f"round_{name}": _call(f"round_{name}") for name in ("f16", "bf16")},
    "signbit": _floats(_call("signbit"), "{} < 0"),
    "isnan": _floats(_call("isnan"), "false"),
    "isinf": _floats(_call("isinf"), "false"),
    "philox": lambda args, _: f"philox({', '.join(args)})",
}
