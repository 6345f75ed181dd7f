"""C functions that exist for each type alike: extremes, divisions, shifts, signs, reductions.

The texts have the words of `function_texts.of_type`.
"""

from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.function_texts import FLOATS, of_type
from ctk.compiler.codegen.c.types import SUFFIXES

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)

_OF_FLOATS = {
    "abs": "FN T abs_X(T a) { return fabsF(a); }",
    "maximum": "FN T maximum_X(T a, T b) { T best = a > b ? a : b; return a != a ? a : best; }",
    "minimum": "FN T minimum_X(T a, T b) { T best = a < b ? a : b; return a != a ? a : best; }",
    "sign": "FN T sign_X(T a) { T less = a < 0 ? -1 : 0; return a > 0 ? 1 : less; }",
    "isnan": "FN bool isnan_X(T a) { return a != a; }",
    "isinf": "FN bool isinf_X(T a) { return fabsF(a) == INFINITY; }",
    "signbit": "FN bool signbit_X(T a) { return bits_of_X(a) < 0; }",
    "nextafter": """\
FN T nextafter_X(T x, T y) {
    I bits = bits_of_X(x), step = (y > x) == (x > 0) ? 1 : -1;
    T next = number_of_X(x == 0 ? 1 : bits + step);
    next = x == 0 ? copysignF(next, y) : next;
    next = x == y ? y : next;
    return x != x || y != y ? x + y : next;
}""",
    "truncdiv": "FN T truncdiv_X(T a, T b) { return truncF(a / b); }",
}

_OF_INTEGERS = {
    "abs": "FN T abs_X(T a) { return (T)(a < 0 ? -a : a); }",
    "maximum": "FN T maximum_X(T a, T b) { return a > b ? a : b; }",
    "minimum": "FN T minimum_X(T a, T b) { return a < b ? a : b; }",
    "sign": "FN T sign_X(T a) { return (T)((a > 0) - (a < 0)); }",
    "shl": "FN T shl_X(T a, T b) { return (T)(b < 0 || b >= WIDTH ? 0 : (U)a << b); }",
    "shr": "FN T shr_X(T a, T b) { return (T)(a >> (b < 0 || b >= WIDTH ? WIDTH - 1 : b)); }",
}

_UNSIGNED = {
    "abs": "FN T abs_X(T a) { return a; }",
    "sign": "FN T sign_X(T a) { return a != 0; }",
    "shl": "FN T shl_X(T a, T b) { return (T)(b >= WIDTH ? 0 : a << b); }",
    "shr": "FN T shr_X(T a, T b) { return (T)(b >= WIDTH ? 0 : a >> b); }",
    "truncdiv": "FN T truncdiv_X(T a, T b) { return b == 0 ? 0 : quotient_X(a, b == 0 ? 1 : b); }",
    "mod": "FN T mod_X(T a, T b) { return fmod_X(a, b); }",
    "floordiv": "FN T floordiv_X(T a, T b) { return truncdiv_X(a, b); }",
}

_DIVISIONS = {
    "truncdiv": """\
FN T truncdiv_X(T a, T b) {
    T whole = quotient_X(a, b == 0 || b == (T)-1 ? 1 : b);
    whole = b == (T)-1 ? (T)-a : whole;
    return b == 0 ? 0 : whole;
}""",
    "fmod": "FN T fmod_X(T a, T b) { return b == 0 ? 0 : (T)(a - truncdiv_X(a, b) * b); }",
    "mod": """\
FN T mod_X(T a, T b) {
    T rest = fmod_X(a, b);
    return (T)(rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest);
}""",
    "floordiv": """\
FN T floordiv_X(T a, T b) {
    T whole = truncdiv_X(a, b), rest = b == 0 ? 0 : (T)(a - whole * b);
    return (T)(whole - (rest != 0 && (b < 0) != (rest < 0)));
}""",
}
"""Divisions of integers; processors divide vectors of floats only.

A quotient of two integers below 2**24 (2**53 of doubles) is never rounded up to a whole number.
"""

_QUOTIENT = """\
FN T quotient_X(T a, T b) {  // rounded to 0; b is neither 0 nor -1
    if (__builtin_constant_p(b)) return (T)(a / b);
    return (T)(int32_t)((REAL)a / (REAL)b);
}"""

_QUOTIENT_OF_LONG = """\
FN T quotient_X(T a, T b) {  // the first 50 bits, then those of the rest, which may be 1 off
    if (__builtin_constant_p(b) && (b & (b - 1)) == 0) return a / b;
    T whole = (T)((double)a / (double)b), rest = a - whole * b;
    T more = (T)((double)rest / (double)b);
    whole += more;
    rest -= more * b;
    T step = (rest < 0) == (b < 0) ? 1 : -1, left = rest - step * b;
    bool is_off = (rest < 0) != (a < 0) || (left < 0) == (rest < 0) || left == 0;
    return whole + (is_off && rest != 0 ? step : 0);
}"""


_BITS = """\
FN I bits_of_X(T a) {
    union { T number; I bits; } u = {a};
    return u.bits;
}"""

_NUMBER = """\
FN T number_of_X(I a) {
    union { I bits; T number; } u = {a};
    return u.number;
}"""

_BOOLS = {
    "maximum_bool": "FN bool maximum_bool(bool a, bool b) { return a | b; }",
    "minimum_bool": "FN bool minimum_bool(bool a, bool b) { return a & b; }",
    "abs_bool": "FN bool abs_bool(bool a) { return a; }",
    "sign_bool": "FN bool sign_bool(bool a) { return a; }",
}


def _all() -> Mapping[str, str]:
    of_floats = {**_OF_FLOATS, "bits_of": _BITS, "number_of": _NUMBER}
    of_integers = {**_OF_INTEGERS, **_DIVISIONS, "quotient": _QUOTIENT.replace("REAL", "float")}
    of_int = {"quotient": _QUOTIENT.replace("REAL", "double")}
    of_types = {
        **dict.fromkeys(FLOATS, of_floats),
        **dict.fromkeys(_INTEGERS, of_integers),
        torch.int32: {**of_integers, **of_int},
        torch.int64: {**of_integers, "quotient": _QUOTIENT_OF_LONG},
        torch.uint8: {**of_integers, **_UNSIGNED},
    }
    made = dict(_BOOLS)
    for dtype, texts in of_types.items():
        made.update({f"{n}_{SUFFIXES[dtype]}": of_type(t, dtype) for n, t in texts.items()})
    return made


OF_TYPES: Mapping[str, str] = _all()
