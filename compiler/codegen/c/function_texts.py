"""Texts of C functions: one for both types of floats, polynomials, and rare slow cases."""

import re
from collections.abc import Mapping, Sequence

import torch

from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES
from ctk.compiler.lowering.ir import Dtype

FLOATS = (torch.float64, torch.float32)


def of_type(text: str, dtype: Dtype) -> str:
    """Write a text for a type.

    `T` is its C type, `X` the suffix of its functions, `F` of functions of C's library (`f` in
    float32); `U` and `I` are integers of the same width, and `WIDTH` its bits.
    """
    bits = dtype.itemsize * 8
    words = {
        "T": C_TYPES[dtype], "U": f"uint{bits}_t", "I": f"int{bits}_t", "WIDTH": str(bits),
    }  # fmt: skip
    text = re.sub(r"\b(T|U|I|WIDTH)\b", lambda match: words[match[0]], text)
    text = re.sub(r"\b(\w+)_X\b", rf"\1_{SUFFIXES[dtype]}", text)
    return re.sub(r"\b(\w+)F\(", rf"\1{'f' if dtype == torch.float32 else ''}(", text)


def of_floats(
    texts: Mapping[str, str], constants: Mapping[Dtype, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """Write texts for both types of floats, by the names of the functions.

    Args:
        texts: One for both types.
        constants: Words in it that stand for a number of each type.
    """
    made: dict[str, str] = {}
    for dtype in FLOATS:
        words = constants[dtype] if constants else {}
        for name, text in texts.items():
            for word, number in words.items():
                text = re.sub(rf"\b{word}\b", number, text)
            made[f"{name}_{SUFFIXES[dtype]}"] = of_type(text, dtype)
    return made


def with_polynomials(texts: Mapping[str, str]) -> dict[str, str]:
    """Write each `POLYNOMIAL(x, a, b, ...)`, the highest coefficient first.

    Numbers of float32 end with `f`. A `LONG_POLYNOMIAL` is the sum of one of even and one of odd
    powers: a chain of many operations, each of which waits for the one before, leaves the machine
    idle. It is less accurate.
    """

    def written(found: re.Match[str]) -> str:
        x, *numbers = re.split(r",\s+", found[2])
        if not found[1]:
            return _nested(x, numbers)
        even, odd = _nested(f"{x} * {x}", numbers[-1::-2][::-1]), numbers[-2::-2][::-1]
        return f"{_fma(numbers)}({_nested(f'{x} * {x}', odd)}, {x}, {even})"

    return {n: re.sub(r"(LONG_)?POLYNOMIAL\(([^)]*)\)", written, text) for n, text in texts.items()}


def _nested(x: str, numbers: Sequence[str]) -> str:
    """Write a polynomial by Horner's rule."""
    code, *others = numbers
    for number in others:
        code = f"{_fma(numbers)}({code}, {x}, {number})"
    return code


def _fma(numbers: Sequence[str]) -> str:
    return "fma_f32" if numbers[0].endswith("f") else "fma_f64"


def rare_case(name: str, dtype: Dtype, parameters: str, *, usual: str, slow: str) -> str:
    """Return a function `name(..., result)`: `slow` for rare arguments, for others the result.

    A loop that is vectorised cannot branch. GCC calls a vector function of a known name instead,
    and that one branches: for a whole vector none of whose numbers is rare. It would make one by
    itself, but with a branch for each number.

    Args:
        name: Of the function.
        dtype: Of all arguments.
        parameters: Names of the arguments before `result`.
        usual: One comparison of numbers and vectors alike that is false for the rare arguments;
            `ABS` is the absolute value.
        slow: The result for rare arguments.
    """
    ctype, names = C_TYPES[dtype], parameters.split(", ")
    given = ", ".join(f"{ctype} {each}" for each in (*names, "result"))
    single = "f" if dtype == torch.float32 else ""
    body = f"return {usual.replace('ABS', f'fabs{single}')} ? result : {slow};"
    vectors = "".join(
        f"\n#if {feature}\n{_of_vectors(name, dtype, names, letter, usual)}\n#endif"
        for letter, feature in _VECTORS
    )
    return f"""\
#pragma omp declare simd notinbranch
#if defined __x86_64__ && !defined __clang__
__attribute__((const)) {ctype} {name}({given});
static __attribute__((noinline, used)) {ctype} {name}_one({given}) __asm__("{name}");
static {ctype} {name}_one({given}) {{ {body} }}{vectors}
#else
static __attribute__((noinline)) {ctype} {name}({given}) {{ {body} }}
#endif"""


_VECTORS = (
    ("b", "defined __SSE2__"), ("c", "defined __AVX__ && !defined __AVX2__"),
    ("d", "defined __AVX2__"), ("e", "defined __AVX512F__"),
)  # fmt: skip
"""Letters of the x86 vector ABI, and where GCC calls functions with them."""

_SIZES = {"b": 16, "c": 32, "d": 32, "e": 64}


def _of_vectors(name: str, dtype: Dtype, names: list[str], letter: str, usual: str) -> str:
    ctype, bits = C_TYPES[dtype], dtype.itemsize * 8
    size, vector = _SIZES[letter], f"{name}_{letter}"
    lanes = size // dtype.itemsize
    given = ", ".join(f"{vector}_t {each}" for each in (*names, "result"))
    lists = ", ".join(f"{each}_of = {{{each}}}" for each in (*names, "result"))
    one = ", ".join(f"{each}_of.at[i]" for each in (*names, "result"))
    condition = re.sub(r"ABS\((\w+)\)", rf"({vector}_t)(({vector}_i)\1 & INT{bits}_MAX)", usual)
    return f"""\
typedef {ctype} {vector}_t __attribute__((vector_size({size})));
typedef int{bits}_t {vector}_i __attribute__((vector_size({size})));
static __attribute__((noinline, cold)) {vector}_t {vector}_rare({given}) {{
    union {{ {vector}_t vector; {ctype} at[{lanes}]; }} {lists};
    for (int i = 0; i < {lanes}; ++i) result_of.at[i] = {name}_one({one});
    return result_of.vector;
}}
static __attribute__((noinline, used)) {vector}_t {vector}({given})
    __asm__("_ZGV{letter}N{lanes}{"v" * (len(names) + 1)}_{name}");
static {vector}_t {vector}({given}) {{
    {vector}_i rare = ~({condition});
    if (__builtin_expect({_ANY[letter]}, 0)) return {vector}_rare({", ".join((*names, "result"))});
    return result;
}}"""


_ANY = {
    "b": "__builtin_ia32_pmovmskb128((char __attribute__((vector_size(16))))rare)",
    "c": "__builtin_ia32_movmskps256((float __attribute__((vector_size(32))))rare)",
    "d": "__builtin_ia32_pmovmskb256((char __attribute__((vector_size(32))))rare)",
    "e": "__builtin_ia32_ptestmd512((int __attribute__((vector_size(64))))rare, "
         "(int __attribute__((vector_size(64))))rare, -1)",
}  # fmt: skip
"""Whether a bit of a vector is set: GCC has no portable form of one instruction."""
