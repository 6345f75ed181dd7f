"""Bound the size of Python's own numbers and lists in a graph before it runs.

Torch's numbers have 64 bits; Python's grow until the memory is full, and a graph may compute sizes
with them. So each value that may be such a number gets an upper bound of its bits, in order:

    n = x.size(0)          64    a size
    a = operator.mul(n, n) 128   as many as both factors together
    b = operator.pow(a, 9) 1152  as many as the base, nine times
    c = operator.lshift(b, 10**12)   refused

Inputs of sub-graphs count as tensors, and tensors have no bound: `torch.zeros(size)` raises if it
runs out of memory.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from torch.fx import Graph, Node

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.limits import INT_BITS, SEQUENCE
from ctk.toolkit.case.graphs.allow_list import function_name

_WORD = 64
_DUNDER = re.compile(r"__(r?)(pow|lshift|mul|imul|add|sub)__")
_SIZES = frozenset(("size", "dim", "numel", "stride", "storage_offset", "nelement", "item", "ndim"))
_ATTRIBUTES = frozenset(("shape", "ndim", "nbytes", "itemsize", "start", "stop", "step"))
_COUNTS = frozenset(("builtins.int", "builtins.len", "builtins.round"))
"""Functions that make a number of an unbounded value (a text, a tensor)."""

_REPEATS = frozenset(("operator.mul", "operator.imul"))


def check_numbers(graph: Graph, where: str) -> None:
    """Raise `CaseError` if a number or list of a graph can grow beyond `INT_BITS` or `SEQUENCE`."""
    bits: dict[Node, int] = {}
    for node in graph.nodes:
        name, values = _function_and_arguments(node)
        place = f"{where}: node {node.name}"
        if name in _REPEATS:
            _check_repeat(values, place)
        if name == "builtins.range":
            _check_range(values, place)
        found = _bits_of(node, name, values, bits)
        if found is not None and found > INT_BITS:
            raise CaseError(
                f"{place}: {name} can give a number of {_format_bits(found)} bits, more than the "
                f"{INT_BITS:,} that ctk computes with"
            )
        if found is not None:
            bits[node] = found


def _function_and_arguments(node: Node) -> tuple[str | None, tuple[Any, ...]]:
    """Return the function that a node calls, and its arguments.

    `a.__rpow__(b)` is `operator.pow(b, a)`; keyword arguments are sorted: `base` before `exp`.
    """
    values = (*node.args, *(node.kwargs[key] for key in sorted(node.kwargs)))
    if node.op == "call_function":
        return function_name(node.target), values
    found = _DUNDER.fullmatch(str(node.target)) if node.op == "call_method" else None
    if found is None:
        return None, values
    return f"operator.{found[2]}", values[::-1] if found[1] else values


def _bits_of(
    node: Node, name: str | None, values: tuple[Any, ...], bits: Mapping[Node, int]
) -> int | None:
    """Return the largest number of bits of a node's value if it is a Python number, else None."""
    if node.op == "call_method" and name is None:
        return _WORD if str(node.target) in _SIZES else None
    if name is None:
        return None
    if name == "builtins.getattr":
        return _WORD if len(node.args) > 1 and node.args[1] in _ATTRIBUTES else None
    if not name.startswith(("operator.", "math.", "builtins.")):
        return _WORD if name.startswith("torch.sym_") else None
    known = [_bits(value, bits) for value in values]
    if any(each is None for each in known) or not known:
        return _WORD if name in _COUNTS else None
    return _after(name.partition(".")[2], cast("list[int]", known), values)


def _bits(value: object, bits: Mapping[Node, int]) -> int | None:
    if isinstance(value, int):
        return value.bit_length() + 1
    if isinstance(value, tuple | list):
        parts = [_bits(part, bits) for part in cast("list[object]", value)]
        return max((part for part in parts if part is not None), default=None)
    return bits.get(value) if isinstance(value, Node) else None


def _after(name: str, known: list[int], args: tuple[Any, ...]) -> int:
    """Return the bits of an operator's result: mostly the largest of its arguments."""
    if name in ("add", "sub", "iadd", "isub"):
        return max(known) + 1
    if name in ("mul", "imul", "lcm", "prod", "sumprod"):
        return sum(known) if len(known) > 1 else known[0] * _WORD
    if name in ("pow", "ipow", "lshift", "ilshift") and len(known) > 1:
        exponent = _largest(args[1], known[1])
        return known[0] * exponent if "pow" in name else known[0] + exponent
    return max(known) + (_WORD if name == "sum" else 0)


def _largest(value: object, bits: int) -> int:
    """Return the largest value of an exponent: a literal, or the largest of so many bits."""
    return abs(value) if isinstance(value, int) else 1 << min(bits, _WORD)


def _check_range(values: tuple[Any, ...], where: str) -> None:
    """Refuse a range of too many numbers; a range with computed ends is short in practice."""
    if any(isinstance(value, int) and abs(value) > SEQUENCE for value in values):
        raise CaseError(f"{where}: a range of more than {SEQUENCE:,} numbers")


def _check_repeat(values: tuple[Any, ...], where: str) -> None:
    """Refuse a list, tuple or text times a number that is large or not a literal."""
    parts = [value for value in values if isinstance(value, tuple | list | str)]
    counts = [value for value in values if isinstance(value, int)]
    if parts and (
        len(parts) + len(counts) < 2 or len(parts[0]) * max(counts, default=0) > SEQUENCE
    ):
        raise CaseError(
            f"{where}: repeats a list more than {SEQUENCE:,} times, or an unknown number of times"
        )


def _format_bits(bits: int) -> str:
    return f"{bits:,}" if bits < 10**15 else "more than 10**15"
