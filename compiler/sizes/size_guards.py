"""Sizes of torch as index expressions, and back to Python.

torch has sizes as sympy expressions within a `SymInt`. An expression that an
`Index` cannot hold (fractions, conditions) raises `NotLowered`: the node stays a library call.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, cast

import torch

from ctk.compiler.sizes.index import (
    DIVIDE,
    ZERO,
    Atom,
    Division,
    Extreme,
    Index,
    Symbol,
    as_index,
    larger,
    product,
    smaller,
    symbol,
)
from ctk.compiler.torch_compat.fake import fake_tensors as fake


class NotLowered(Exception):
    """A node has no kernel, for the reason in the message. It becomes a library call."""


def size_of(value: int | torch.SymInt) -> Index:
    """Return a size as an index expression.

    Raises:
        NotLowered: It is made by arithmetic that index expressions do not have.
    """
    if not isinstance(value, torch.SymInt):
        return as_index(int(value))
    return size_of_expression(fake.size_expression(value), value)


def size_of_expression(expression: Any, like: torch.SymInt) -> Index:
    """Return an expression of sympy as an index expression.

    Raises:
        NotLowered: As `size_of`.
    """
    if expression.is_Integer:
        return as_index(int(expression))
    if expression.is_Symbol:
        return symbol(str(expression), fake.least_value(like, expression))
    kind = type(expression).__name__
    if kind == "Pow" and expression.exp.is_Integer and expression.exp > 0:
        base = size_of_expression(expression.base, like)
        return product([base] * int(expression.exp))
    make = _FUNCTIONS.get(kind)
    if make is None:
        raise NotLowered(f"its size {expression} is not a sum of products")
    return make([size_of_expression(arg, like) for arg in expression.args])


def sizes_of(values: Iterable[int | torch.SymInt]) -> tuple[Index, ...]:
    """Return sizes as index expressions.

    Raises:
        NotLowered: As `size_of`.
    """
    return tuple(map(size_of, values))


def symbols_of(indices: Iterable[Index]) -> list[Symbol]:
    """Return the symbols of some expressions, each once, by name."""
    found = {atom for index in indices for atom in index.atoms if isinstance(atom, Symbol)}
    return sorted(found, key=lambda each: each.name)


def mentioned_symbols(value: object) -> frozenset[str]:
    """Return the symbols that are sizes of a value: of a tensor, or the number itself."""
    if isinstance(value, (list, tuple)):
        return frozenset[str]().union(*map(mentioned_symbols, cast("Sequence[object]", value)))
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    found = (fake.size_expression(size) for size in sizes if isinstance(size, torch.SymInt))
    return frozenset(str(each) for each in found if each.is_Symbol)


def number_of(index: Index, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression of symbols, given theirs by name."""
    return sum(
        math.prod((_atom_number(atom, sizes) for atom in monomial), start=factor)
        for monomial, factor in index.terms
    )


def python_text(index: Index) -> str:
    """Return an expression of symbols as Python code."""
    parts = (
        "*".join((*map(_python_atom, monomial), str(factor))) for monomial, factor in index.terms
    )
    return " + ".join(parts) or "0"


def _atom_number(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes[atom.name]
    if isinstance(atom, Extreme):
        pair = number_of(atom.left, sizes), number_of(atom.right, sizes)
        return max(pair) if atom.kind == "max" else min(pair)
    if not isinstance(atom, Division):
        raise NotLowered(f"{atom} is not a size")
    return DIVIDE[atom.sign](number_of(atom.value, sizes), number_of(atom.divisor, sizes))


def _python_atom(atom: object) -> str:
    if isinstance(atom, Division):
        return f"(({python_text(atom.value)}) {atom.sign} ({python_text(atom.divisor)}))"
    if isinstance(atom, Extreme):
        return f"{atom.kind}({python_text(atom.left)}, {python_text(atom.right)})"
    return str(atom)


_FUNCTIONS: Mapping[str, Callable[[list[Index]], Index]] = {
    "Add": lambda parts: sum(parts, ZERO),
    "Mul": product,
    "FloorDiv": lambda parts: parts[0] // parts[1],
    "CleanDiv": lambda parts: parts[0] // parts[1],
    "Mod": lambda parts: parts[0] % parts[1],
    "PythonMod": lambda parts: parts[0] % parts[1],
    "ModularIndexing": lambda parts: (parts[0] // parts[1]) % parts[2],
    "Max": partial(reduce, larger),
    "Min": partial(reduce, smaller),
}
