"""The operations of the loop IR: names, numbers of operands, and exact meanings.

The reference interpreter (`interpret.py`) gives each its meaning in numpy; the printers of C and
Triton each have a table from these names to code, which a test holds complete.

All operands have the type of the result, except those of `CONVERTS` (any operand type) and `where`
(bool first). Floating-point arithmetic is IEEE arithmetic of that type. Floats of 16 bits
are not computed in: values are cast to float32 first, and back where they are stored.
"""

from collections.abc import Mapping

import torch

from ctk.compiler.lowering.ir import Dtype, ReduceKind, ScanKind

ARITHMETIC = {"add": 2, "sub": 2, "mul": 2, "neg": 1, "abs": 1, "maximum": 2, "minimum": 2}
"""For floats and integers (which wrap); maximum and minimum give NaN if either is NaN. Of 0.0 and
-0.0 they give the second operand in C, as eager's SIMD does; elsewhere either.
"""

DIVISION = {"div": 2, "floordiv": 2, "truncdiv": 2, "mod": 2, "fmod": 2, "reciprocal": 1}
"""`div` is for floats. `floordiv` rounds down, `truncdiv` to zero; `mod` has the sign of the
divisor, `fmod` that of the dividend. Integers divided by zero give 0 here; a lowering asks first.
"""

COMPARISON = {"eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2}
"""Of two values of one type; the result is bool."""

LOGIC = {"and": 2, "or": 2, "xor": 2, "not": 1}
"""Of bools; of integers bit by bit."""

SHIFTS = {"shl": 2, "shr": 2}
"""Of integers; a shift of less than 0 or of the width and more gives 0 (shr: the sign)."""

ROUNDING = {"floor": 1, "ceil": 1, "trunc": 1, "round": 1}
"""`round` takes halves to even."""

SIGNS = {"sign": 1, "signbit": 1, "copysign": 2, "isnan": 1, "isinf": 1, "nextafter": 2}
"""`sign` of NaN is 0 for torch.sgn and torch.sign alike. signbit, isnan and isinf give bool."""

FUNCTIONS = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1,
    "sqrt": 1, "rsqrt": 1, "pow": 2, "hypot": 2,
    "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "atan2": 2,
    "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "erf": 1, "erfc": 1, "erfinv": 1, "lgamma": 1, "sigmoid": 1,
}  # fmt: skip
"""Of floats. How far each may be off is in docs/numerics.md, and tested."""

SELECTION = {"where": 3}

CONVERTS = {"cast": 1}
"""`cast` converts as torch does: to bool is `!= 0`, float to integer truncates, to a narrower float
rounds to nearest even.
"""

RANDOM = {"philox": 3}
"""`philox(seed, offset, lane)` of int64: 32 random bits, as int64, word `lane % 4` of
Philox4x32-10 with the key `seed` and the counter `offset`.
"""

EXACT = frozenset((
    *ARITHMETIC, "div", *COMPARISON, *LOGIC, *SHIFTS, *ROUNDING, *SIGNS, *SELECTION,
    *CONVERTS,
))  # fmt: skip
"""Operations with the bits of eager on every machine; the `exact` mode makes kernels of these only.

There is no `sqrt` and no `fmod`: the vector libraries that eager may call for them are not exact.
"""

ARITY: Mapping[str, int] = {
    **ARITHMETIC, **DIVISION, **COMPARISON, **LOGIC, **SHIFTS, **ROUNDING, **SIGNS, **FUNCTIONS,
    **SELECTION, **CONVERTS, **RANDOM,
}  # fmt: skip
"""How many operands each operation has."""

BOOL_RESULTS = frozenset((*COMPARISON, "signbit", "isnan", "isinf"))
"""Operations whose operands have another type than the bool that they give."""


def neutral(kind: ReduceKind | ScanKind, dtype: Dtype) -> float | int | bool:
    """Return the number that changes no result of a reduction or a scan."""
    if kind in ("sum", "mean_m2", "any", "prod", "all"):
        number = int(kind in ("prod", "all"))
        return bool(number) if dtype == torch.bool else number
    is_greatest = kind in ("min", "argmin")
    if dtype == torch.bool:
        return is_greatest
    if dtype.is_floating_point:
        return float("inf") if is_greatest else float("-inf")
    return torch.iinfo(dtype).max if is_greatest else torch.iinfo(dtype).min
