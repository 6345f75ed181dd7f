"""Sizes, strings and numbers as C."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ctk.compiler.codegen.c.types import index_code
from ctk.compiler.sizes.index import Index, as_index
from ctk.compiler.sizes.size_guards import symbols_of


def size_name(symbol: str) -> str:
    """Return the name of a size symbol in C."""
    return f"n_{symbol}"


def size_text(size: Index | int) -> str:
    """Return a size as C."""
    index = as_index(size)
    return index_code(index, {symbol: size_name(symbol.name) for symbol in symbols_of([index])})


def sizes_text(sizes: Sequence[Index | int]) -> str:
    """Return rank and sizes, as two arguments of a function."""
    return f"{len(sizes)}, {array_text(sizes)}"


def array_text(sizes: Sequence[Index | int]) -> str:
    """Return sizes as an array; no sizes as a null pointer."""
    if not sizes:
        return "NULL"
    return f"(const int64_t[]){{{', '.join(map(size_text, sizes))}}}"


def string_text(text: str) -> str:
    """Return a string literal, of bytes in UTF-8."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\"}
    # Octal, always three digits: C reads as many hexadecimal digits as there are.
    letters = (
        chr(byte).translate(plain) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{"".join(letters)}"'


def float_text(value: float) -> str:
    """Return a float64 literal of exactly this value."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return value.hex()


def int_text(value: int) -> str:
    """Return an int64 literal of exactly this value."""
    if value == -(2**63):
        return "INT64_MIN"
    return str(value) if abs(value) < 2**31 else f"{value}LL"
