"""C functions of float32 and float64: exponentials, logarithms, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping

_LIBRARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "hypot", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
)  # fmt: skip
_TWO = frozenset(("hypot", "pow", "atan2"))

PHILOX = """\
FN int64_t philox(int64_t seed, int64_t offset, int64_t lane) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)((uint64_t)offset >> 32);
    uint32_t c2 = (uint32_t)(lane / 4), c3 = (uint32_t)((uint64_t)(lane / 4) >> 32);
    for (int round = 0; round < 10; ++round) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    int64_t word = lane % 4;
    return word < 2 ? (word == 0 ? c0 : c1) : (word == 2 ? c2 : c3);
}"""


def _library() -> dict[str, str]:
    made: dict[str, str] = {}
    for ctype, suffix, end in (("float", "f32", "f"), ("double", "f64", "")):
        for name in (*_LIBRARY, "pow", "atan2"):
            two = name in _TWO
            args = f"{ctype} a, {ctype} b" if two else f"{ctype} a"
            call = f"{name}{end}({'a, b' if two else 'a'})"
            made[f"{name}_{suffix}"] = f"FN {ctype} {name}_{suffix}({args}) {{ return {call}; }}"
        one = f"({ctype})1"
        made[f"rsqrt_{suffix}"] = (
            f"FN {ctype} rsqrt_{suffix}({ctype} a) {{ return {one} / sqrt{end}(a); }}"
        )
        made[f"sigmoid_{suffix}"] = (
            f"FN {ctype} sigmoid_{suffix}({ctype} a) "
            f"{{ return {one} / ({one} + exp_{suffix}(-a)); }}"
        )
    return made


FLOAT_FUNCTIONS: Mapping[str, str] = {**_library(), "philox": PHILOX}
