"""Types, numbers and names of the loop IR, as C has them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from ctk.compiler.lowering.ir import Const, Dtype
from ctk.compiler.sizes.index import (
    Extreme,
    Index,
    Indirect,
    Quotient,
    Remainder,
    is_nonnegative,
)

SUFFIXES: Mapping[Dtype, str] = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
"""How a type is called in the names of functions; also the C types of narrow floats."""

C_TYPES: Mapping[Dtype, str] = {
    torch.float64: "double", torch.float32: "float", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "int64_t", torch.int32: "int32_t", torch.int16: "int16_t", torch.int8: "int8_t",
    torch.uint8: "uint8_t", torch.bool: "bool",
}  # fmt: skip

_KEYWORDS = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while", "bool", "true", "false", "asm", "typeof",
    "linux", "unix", "main", "f16", "bf16", "fault", "fault_t", "last_fault", "FN", "NAN",
    "INFINITY", "INT64_MAX", "INT64_MIN", "note_fault", "finish", "read_last_fault",
))  # fmt: skip

LIBRARY = ("floor", "ceil", "trunc", "rint", "copysign", "sqrt")
"""Functions of C's mathematics that kernels call; those of float32 end with `f`."""

_RESERVED = _KEYWORDS.union(LIBRARY, (f"{name}f" for name in LIBRARY))


def memory_type(dtype: Dtype) -> str:
    """Return the C type of a buffer's elements: bytes for bools, which gcc makes SIMD of."""
    return "uint8_t" if dtype == torch.bool else C_TYPES[dtype]


def is_narrow(dtype: Dtype) -> bool:
    """Return whether a type is a float of 16 bits, which C does not compute in."""
    return dtype.is_floating_point and dtype.itemsize < 4


def literal(const: Const) -> str:
    """Return a number as a C literal that has exactly its value in its type."""
    value, dtype = const.value, const.dtype
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        return _integer(int(value))
    if is_narrow(dtype):
        bits = int(torch.tensor(value, dtype=dtype).view(torch.int16).item())
        return f"({C_TYPES[dtype]})0x{bits & 0xFFFF:04x}"
    return _float(float(value), single=dtype == torch.float32)


def _integer(value: int) -> str:
    if value == -(2**63):
        return "INT64_MIN"
    return str(value) if abs(value) < 2**31 else f"{value}LL"


def _float(value: float, *, single: bool) -> str:
    if single:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(value) if not single else str(np.float32(value))
    text = text if any(mark in text for mark in ".e") else f"{text}.0"
    return f"{text}f" if single else text


@dataclass(slots=True)
class Names:
    """C identifiers for names of the graph: each its own, none a word of C or of a function."""

    reserved: frozenset[str] = frozenset()
    _taken: set[str] = field(default_factory=set[str])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def of(self, name: str) -> str:
        """Return the identifier of a name, the same each time."""
        if name not in self._names:
            self._names[name] = self.new(name)
        return self._names[name]

    def new(self, name: str) -> str:
        """Return an identifier like this name that is not taken."""
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        if plain[0].isdigit():
            plain = f"_{plain}"
        found, count = plain, 0
        while found in self._taken or found in self.reserved or found in _RESERVED:
            count += 1
            found = f"{plain}_{count}"
        self._taken.add(found)
        return found

    @property
    def taken(self) -> frozenset[str]:
        """Return the identifiers that were given."""
        return frozenset(self._taken)


def index_code(index: Index, names: Mapping[object, str]) -> str:
    """Return an index expression as C of int64_t."""
    last_first = [term for term in index.terms if term[0]]
    constant = [term for term in index.terms if not term[0]]
    terms = [_term(*term, names) for term in (*reversed(last_first), *constant)]
    text = terms[0] if terms else "0"
    for term in terms[1:]:
        text += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return text


def grouped(text: str) -> str:
    """Return C code that can be an operand of any operator."""
    is_whole = re.fullmatch(r"[\w.]+(e-\d+f?)?|\w+\([^()]*\)|\w+\[[^\[\]]*\]", text)
    return text if is_whole else f"({text})"


def _term(monomial: tuple[object, ...], factor: int, names: Mapping[object, str]) -> str:
    parts = [_atom(atom, names) for atom in monomial]
    if abs(factor) != 1 or not parts:
        parts.append(_integer(abs(factor)))
    return ("-" if factor < 0 else "") + "*".join(parts)


def _atom(atom: object, names: Mapping[object, str]) -> str:
    if isinstance(atom, (Quotient, Remainder)):
        value, divisor = index_code(atom.value, names), grouped(index_code(atom.divisor, names))
        sign, function = ("/", "floordiv") if isinstance(atom, Quotient) else ("%", "mod")
        if is_nonnegative(atom.value):
            return f"({grouped(value)} {sign} {divisor})"
        return f"{function}_i64({value}, {divisor})"
    if isinstance(atom, Extreme):
        left, right = index_code(atom.left, names), index_code(atom.right, names)
        return f"{atom.kind}imum_i64({left}, {right})"
    assert isinstance(atom, Indirect) or atom in names, f"no name for {atom}"
    return names[atom]
