"""C functions of quotients and of roots: remainders of floats, hypot, rsqrt."""

from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.function_texts import of_floats, rare_case

_OF_FLOATS = {
    "fmod": """\
FN T fmod_X(T x, T y) {  // exact: a whole quotient below QUOTIENT is off by 1 at most
    T a = fabsF(x), b = fabsF(y);
    T r = fused_X(-truncF(a / b), b, a);
    r = r < 0 ? r + b : r;
    r = r >= b ? r - b : r;
    return fmod_of_far_X(x, y, copysignF(a < b ? a : r, x));
}""",
    "mod": """\
FN T mod_X(T a, T b) {
    T rest = fmod_X(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    "floordiv": """\
FN T floordiv_X(T a, T b) {  // a quotient below QUOTIENT has its whole part, or 1 more
    T q = a / b, whole = floorF(q), rest = fused_X(-whole, b, a);
    whole = rest != 0 && (b < 0) != (rest < 0) ? whole - 1 : whole;
    return floordiv_of_far_X(a, b, whole == 0 ? copysignF((T)0, q) : whole);
}""",
    "careful_floordiv": """\
FN T careful_floordiv_X(T a, T b) {
    T rest = fmodF(a, b);
    T whole = (a - rest) / b;
    whole = rest != 0 && (b < 0) != (rest < 0) ? whole - 1 : whole;
    T down = floorF(whole);
    down = whole - down > (T)0.5 ? down + 1 : down;
    down = whole == 0 ? copysignF((T)0, a / b) : down;
    return b == 0 ? a / b : down;
}""",
    "hypot": """\
FN T hypot_X(T x, T y) {
    T a = fabsF(x), b = fabsF(y), high = a > b ? a : b, low = a > b ? b : a;
    T scale = high > LARGE ? DOWN : (T)1, back = high > LARGE ? UP : (T)1;
    scale = high < SMALL ? UP : scale;
    back = high < SMALL ? DOWN : back;
    high *= scale;
    low *= scale;
    T root = sqrtF(fma_X(high, high, low * low)) * back;
    root = x != x || y != y ? (T)NAN : root;
    return a == INFINITY || b == INFINITY ? (T)INFINITY : root;
}""",
    "rsqrt": "FN T rsqrt_X(T x) { return 1 / sqrtF(x); }",
}

_CONSTANTS = {
    torch.float32: {
        "LARGE": "0x1p60f", "SMALL": "0x1p-60f", "DOWN": "0x1p-100f", "UP": "0x1p100f",
    },
    torch.float64: {
        "LARGE": "0x1p500", "SMALL": "0x1p-500", "DOWN": "0x1p-700", "UP": "0x1p700",
    },
}  # fmt: skip
"""Squares of numbers between SMALL and LARGE are normal."""


def _of_far() -> dict[str, str]:
    """Return remainders of numbers whose quotient has too many digits, and special values."""
    made: dict[str, str] = {}
    for dtype, suffix, end, limit in (
        (torch.float32, "f32", "f", "0x1p22f"),
        (torch.float64, "f64", "", "0x1p51"),
    ):
        key = f"fmod_of_far_{suffix}"
        usual = f"ABS(x) < ABS(y) * {limit}"
        made[key] = rare_case(key, dtype, "x, y", usual=usual, slow=f"fmod{end}(x, y)")
        key, usual = f"floordiv_of_far_{suffix}", f"{usual} - ABS(y)"  # NaN of an infinite y
        slow = f"careful_floordiv_{suffix}(x, y)"
        made[key] = rare_case(key, dtype, "x, y", usual=usual, slow=slow)
    return made


QUOTIENTS: Mapping[str, str] = {**of_floats(_OF_FLOATS, _CONSTANTS), **_of_far()}
