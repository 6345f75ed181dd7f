"""Flatten what a user's program returns or holds into leaves with names that a person can read.

    {"a": x, "b": [y, 3]}   ->   .a: x    .b[0]: y    .b[1]: 3    and the form {a: Tensor, b: [...]}

Looked into: tuples (named ones too), lists, dicts, sets, dataclasses and other objects of classes
that are not torch's or Python's. An object that is met again is told by the name of its first
place, so that sharing is compared as well. What it does not do: call anything of the user's; an
object that it does not know is told by its type.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ctk.toolkit.run.python_state import is_foreign

PLAIN = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format, Enum,
)  # fmt: skip
"""What is compared by its value."""

_MOST = 20_000
"""So many leaves are told of one value; a program may hold all that it has read."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value with the way to it: `.layers[0].weight`."""

    path: str
    value: object


Items = Callable[[Any], list[tuple[str, object]] | None]
"""Says what a value holds, by name; None for one that is not looked into."""


def leaves_of(value: object, path: str = "", items: Items | None = None) -> Iterator[Leaf]:
    """Yield the leaves of a value in a fixed order; sharing and unknown types are texts.

    Args:
        value: Anything; only read.
        path: What the names begin with.
        items: What a value holds; None: what a result of a program holds.
    """
    seen: dict[int, tuple[str, object]] = {}
    todo = [Leaf(path, value)]
    told = 0
    while todo and told < _MOST:
        leaf = todo.pop()
        plain = isinstance(leaf.value, PLAIN)
        inner = None if plain else _inner(leaf, seen, items or items_of)
        if inner is None:
            told += 1
            yield leaf
        else:
            todo += reversed(inner)


def _inner(leaf: Leaf, seen: dict[int, tuple[str, object]], items_of: Items) -> list[Leaf] | None:
    """Return what a value holds; None for one that is a leaf. One that was met is a text."""
    value = leaf.value
    if id(value) in seen and not isinstance(value, tuple):
        return [Leaf(leaf.path, f"the same as {seen[id(value)][0]}")]
    seen[id(value)] = (leaf.path, value)  # held, so that no other value gets its id
    if isinstance(value, Tensor | np.ndarray):
        return None
    items = items_of(value)
    if items is None:
        return [Leaf(leaf.path, f"a {type(value).__qualname__}")]
    return [Leaf(leaf.path + name, item) for name, item in items]


def items_of(value: Any) -> list[tuple[str, object]] | None:
    """Return what a value holds, by name; None for one that is not looked into."""
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return [(_key(key), item) for key, item in table.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = cast("Any", value)._fields
        return [(f".{name}", item) for name, item in zip(fields, value, strict=True)]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", item) for i, item in enumerate(cast("Sequence[object]", value))]
    if isinstance(value, set | frozenset):
        return [(f"[{i}]", item) for i, item in enumerate(_sorted(cast("set[object]", value)))]
    if isinstance(value, slice | range):
        return [("", repr(value))]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    if is_foreign(type(value).__module__) or isinstance(value, type) or callable(value):
        return None
    return [(f".{name}", item) for name, item in vars(value).items()] if _has_dict(value) else None


def form_of(value: object, *, depth: int = 12) -> str:
    """Return the types of a nested value as one text: `(Tensor, {a: [Tensor, int]})`."""
    name = type(value).__qualname__
    if isinstance(value, (*PLAIN, Tensor, np.ndarray)) or not depth:
        return name
    items = items_of(value)
    if items is None:
        return name
    inner = [f"{key.lstrip('.')}: " * key.startswith(".") for key, _ in items]
    parts = [key + form_of(item, depth=depth - 1) for key, (_, item) in zip(inner, items)]  # noqa: B905  of equal length by construction
    told = ", ".join(parts)
    marks = {"tuple": f"({told})", "list": f"[{told}]", "dict": f"{{{told}}}"}
    return marks.get(name, f"{name}({told})")


def _key(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_named(key)}]"


def _named(key: object) -> str:
    return repr(key) if isinstance(key, PLAIN) else type(key).__qualname__


def _sorted(items: set[object]) -> list[object]:
    return sorted(items, key=lambda item: (type(item).__qualname__, _named(item)))


def _has_dict(value: object) -> bool:
    return hasattr(value, "__dict__")


def as_value(leaf: object) -> object:
    """Return what is compared of a leaf: a tensor for an array, itself for the rest."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    array = cast("np.ndarray[Any, np.dtype[Any]]", leaf)
    return torch.from_numpy(array.copy()) if array.dtype.kind in "biufc" else repr(array)
