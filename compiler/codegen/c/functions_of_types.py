"""C functions that exist for each type alike: extremes, divisions, shifts, signs, reductions.

In the texts, `T` stands for the C type and `X` for its suffix.
"""

import re
from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES
from ctk.compiler.lowering.ir import Dtype

_FLOATS = (torch.float64, torch.float32)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)

_OF_FLOATS = {
    "abs": "FN T abs_X(T a) { return fabsF(a); }",
    "maximum": "FN T maximum_X(T a, T b) { return a > b || a != a ? a : b; }",
    "minimum": "FN T minimum_X(T a, T b) { return a < b || a != a ? a : b; }",
    "sign": "FN T sign_X(T a) { return (T)((a > 0) - (a < 0)); }",
    "isnan": "FN bool isnan_X(T a) { return a != a; }",
    "isinf": "FN bool isinf_X(T a) { return fabsF(a) == INFINITY; }",
    "signbit": "FN bool signbit_X(T a) { return bits_of_X(a) < 0; }",
    "truncdiv": "FN T truncdiv_X(T a, T b) { return truncF(a / b); }",
    "fmod": "FN T fmod_X(T a, T b) { return fmodF(a, b); }",
    "mod": """\
FN T mod_X(T a, T b) {
    T rest = fmodF(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    "floordiv": """\
FN T floordiv_X(T a, T b) {
    T rest = fmodF(a, b);
    T whole = (a - rest) / b;
    whole = rest != 0 && (b < 0) != (rest < 0) ? whole - 1 : whole;
    T down = floorF(whole);
    down = whole - down > (T)0.5 ? down + 1 : down;
    down = whole == 0 ? copysignF((T)0, a / b) : down;
    return b == 0 ? a / b : down;
}""",
}
"""`F` ends the name of a function of C's library: `f` in float32."""

_OF_INTEGERS = {
    "abs": "FN T abs_X(T a) { return (T)(a < 0 ? -a : a); }",
    "maximum": "FN T maximum_X(T a, T b) { return a > b ? a : b; }",
    "minimum": "FN T minimum_X(T a, T b) { return a < b ? a : b; }",
    "sign": "FN T sign_X(T a) { return (T)((a > 0) - (a < 0)); }",
    "truncdiv": """\
FN T truncdiv_X(T a, T b) {
    if (b == 0) return 0;
    return (T)(b == (T)-1 ? (T)-a : a / b);
}""",
    "fmod": "FN T fmod_X(T a, T b) { return b == 0 || b == (T)-1 ? 0 : (T)(a % b); }",
    "mod": """\
FN T mod_X(T a, T b) {
    T rest = b == 0 || b == (T)-1 ? 0 : (T)(a % b);
    return (T)(rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest);
}""",
    "floordiv": """\
FN T floordiv_X(T a, T b) {
    if (b == 0) return 0;
    if (b == (T)-1) return (T)-a;
    T whole = (T)(a / b);
    return (T)(whole - (a % b != 0 && (a < 0) != (b < 0)));
}""",
    "shl": "FN T shl_X(T a, T b) { return (T)(b < 0 || b >= WIDTH ? 0 : (U)a << b); }",
    "shr": "FN T shr_X(T a, T b) { return (T)(a >> (b < 0 || b >= WIDTH ? WIDTH - 1 : b)); }",
}
"""`U` is the unsigned type of the same width, `WIDTH` its bits."""

_UNSIGNED = {
    "abs": "FN T abs_X(T a) { return a; }",
    "truncdiv": "FN T truncdiv_X(T a, T b) { return (T)(b == 0 ? 0 : a / b); }",
    "fmod": "FN T fmod_X(T a, T b) { return (T)(b == 0 ? 0 : a % b); }",
    "mod": "FN T mod_X(T a, T b) { return (T)(b == 0 ? 0 : a % b); }",
    "floordiv": "FN T floordiv_X(T a, T b) { return (T)(b == 0 ? 0 : a / b); }",
    "sign": "FN T sign_X(T a) { return a != 0; }",
    "shl": "FN T shl_X(T a, T b) { return (T)(b >= WIDTH ? 0 : a << b); }",
    "shr": "FN T shr_X(T a, T b) { return (T)(b >= WIDTH ? 0 : a >> b); }",
}

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


_REDUCTIONS = {
    "largest": """\
#pragma omp declare reduction(largest_X : T : omp_out = maximum_X(omp_out, omp_in)) \\
    initializer(omp_priv = -INFINITY)""",
    "smallest": """\
#pragma omp declare reduction(smallest_X : T : omp_out = minimum_X(omp_out, omp_in)) \\
    initializer(omp_priv = INFINITY)""",
}
"""Extremes of floats, of which NaN is the largest and the smallest."""


def _made(text: str, dtype: Dtype) -> str:
    bits = dtype.itemsize * 8
    words = {
        "T": C_TYPES[dtype], "U": f"uint{bits}_t", "I": f"int{bits}_t", "WIDTH": str(bits),
    }  # fmt: skip
    text = re.sub(r"\b(T|U|I|WIDTH)\b", lambda match: words[match[0]], text)
    text = re.sub(r"\b(\w+)_X\b", rf"\1_{SUFFIXES[dtype]}", text)
    return re.sub(r"\b(\w+)F\(", rf"\1{'f' if dtype == torch.float32 else ''}(", text)


def _all() -> Mapping[str, str]:
    of_floats = {**_OF_FLOATS, **_REDUCTIONS, "bits_of": _BITS, "number_of": _NUMBER}
    of_types = {
        **dict.fromkeys(_FLOATS, of_floats),
        **dict.fromkeys(_INTEGERS, _OF_INTEGERS),
        torch.uint8: {**_OF_INTEGERS, **_UNSIGNED},
    }
    made = dict(_BOOLS)
    for dtype, texts in of_types.items():
        made.update({f"{n}_{SUFFIXES[dtype]}": _made(t, dtype) for n, t in texts.items()})
    return made


OF_TYPES: Mapping[str, str] = _all()
