"""Flatten the results or the state of a user's program into leaves with readable names.

    {"a": x, "b": [y, 3]}   ->   .a: x    .b[0]: y    .b[1]: 3    and the form {a: Tensor, b: [...]}

Opened are tuples (named ones as well), lists, dicts, sets, dataclasses and other objects of classes
that are not torch's or Python's. A second occurrence of an object is the name of its first place,
so that sharing is compared as well. No method of the user's is called; an object of an unknown
class is compared by its type.
"""

import dataclasses
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import GeneratorType
from typing import Any, cast

import torch
from torch import Tensor

from ctk.repro_templates.graph.code_owner import is_foreign

PLAIN = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format, Enum,
)  # fmt: skip
"""Types compared by value."""

COMPARED_AS_THEY_ARE = bool | int | float | complex | str | None
"""Types compared as they are; other plain values are compared by their texts."""

REAL_KINDS = "biuf"
"""Kinds of numpy's dtypes that tensors of at most eight bytes an element have."""

NUMPY_NUMBER = "numpy."
"""Beginning of the type of a number of numpy in a form."""

MOST_LEAVES = 20_000
"""Limit of the leaves of one value; a program may hold all data that it has read."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value with its path: `.layers[0].weight`."""

    path: str
    value: object


Items = Callable[[Any], "list[tuple[str, object]] | None"]
"""Returns the items of a value, by name; None if it is not opened."""


def leaves_of(value: object, path: str = "", items: Items | None = None) -> Iterator[Leaf]:
    """Yield the leaves of a value in a fixed order; sharing and unknown types are texts.

    Args:
        items: Returns the items of a value; None: as for a result of a program.
    """
    seen: dict[int, tuple[str, object]] = {}
    todo = [Leaf(path, value)]
    told = 0
    while todo and told < MOST_LEAVES:
        leaf = todo.pop()
        is_plain = isinstance(leaf.value, PLAIN) or _is_single(leaf.value)
        inner = None if is_plain else _inner(leaf, seen, items or items_of)
        if inner is None:
            told += 1
            yield leaf
        else:
            todo += reversed(inner)


def _inner(leaf: Leaf, seen: dict[int, tuple[str, object]], items_of: Items) -> list[Leaf] | None:
    """Return the items of a value; None for a leaf; a text for a second occurrence."""
    value = leaf.value
    if id(value) in seen and not isinstance(value, tuple):
        return [Leaf(leaf.path, f"the same as {seen[id(value)][0]}")]
    seen[id(value)] = (leaf.path, value)  # held, so that no other value gets its id
    if isinstance(value, Tensor) or is_array(value):
        return None
    items = items_of(value)
    if items is None:
        return [Leaf(leaf.path, f"a {type(value).__qualname__}")]
    if not items and leaf.path:
        return [Leaf(leaf.path, f"an empty {type(value).__qualname__}")]
    return [Leaf(leaf.path + name, item) for name, item in items]


def items_of(value: Any) -> list[tuple[str, object]] | None:
    """Return the items of a value, by name; None if it is not opened."""
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return [(_key(key), item) for key, item in table.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = cast("Any", value)._fields
        return [(f".{name}", item) for name, item in zip(fields, value, strict=True)]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", item) for i, item in enumerate(cast("Sequence[object]", value))]
    if isinstance(value, set | frozenset):
        return [(f"[{i}]", item) for i, item in enumerate(_sort(cast("set[object]", value)))]
    if isinstance(value, slice | range):
        return [("", repr(value))]
    if isinstance(value, GeneratorType):
        return [("", f"a generator, {'ended' if value.gi_frame is None else 'at work'}")]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    if is_foreign(type(value).__module__) or isinstance(value, type) or callable(value):
        return None
    return attributes_of(value) if hasattr(value, "__dict__") or slots_of(value) else None


def attributes_of(value: object) -> list[tuple[str, object]]:
    """Return the attributes of an object, those in slots of its classes as well."""
    own = {name: getattr(value, name) for name in slots_of(value) if hasattr(value, name)}
    return [(f".{name}", item) for name, item in (own | getattr(value, "__dict__", {})).items()]


def slots_of(value: object) -> list[str]:
    """Return the names of the slots of an object's classes."""
    kinds = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    named = [(slots,) if isinstance(slots, str) else slots for slots in kinds]
    return [name for slots in named for name in slots if not name.startswith("__")]


def is_array(value: object) -> bool:
    """Return whether a value is an array of numpy, which may be missing."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_numpy_number(value: object) -> bool:
    """Return whether a value is a number of numpy with the dtype of a tensor."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and _has_tensor_dtype(value)


def _is_single(value: object) -> bool:
    """Return whether a value is a number of numpy, or an array without dimensions in its place."""
    return is_numpy_number(value) or (is_array(value) and cast("Any", value).ndim == 0)


def _has_tensor_dtype(value: object) -> bool:
    dtype = cast("Any", value).dtype
    is_real = dtype.kind in REAL_KINDS and dtype.itemsize <= 8
    return dtype.isnative and (is_real or (dtype.kind == "c" and dtype.itemsize <= 16))


def form_of(value: object, *, depth: int = 12) -> str:
    """Return the types of a nested value as one text: `(Tensor, {a: [Tensor, int]})`."""
    name = type(value).__qualname__
    if isinstance(value, Tensor):
        return name + _lies_where(value)
    if is_numpy_number(value):
        return NUMPY_NUMBER + name
    if isinstance(value, PLAIN) or is_array(value) or not depth:
        return name
    items = items_of(value)
    if items is None:
        return name
    parts = [
        f"{key.lstrip('.')}: " * key.startswith(".") + form_of(item, depth=depth - 1)
        for key, item in items
    ]
    told = ", ".join(parts)
    marks = {"tuple": f"({told})", "list": f"[{told}]", "dict": f"{{{told}}}"}
    return marks.get(name, f"{name}({told})")


def with_arrays(form: str) -> str:
    """Return a form with an array in the place of each number of numpy."""
    return re.sub(rf"\b{re.escape(NUMPY_NUMBER)}\w+", "ndarray", form)


def _key(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_name_form(key)}]"


def _name_form(key: object) -> str:
    return repr(key) if isinstance(key, PLAIN) else type(key).__qualname__


def _sort(items: set[object]) -> list[object]:
    return sorted(items, key=lambda item: (type(item).__qualname__, _name_form(item)))


def _lies_where(tensor: Tensor) -> str:
    """Return the layout and device of a tensor that is not dense, or not on the CPU."""
    layout = "" if tensor.layout is torch.strided else f" {tensor.layout}".replace("torch.", "")
    return layout + ("" if tensor.device.type == "cpu" else f" on {tensor.device}")


def as_value(leaf: object) -> object:
    """Return a leaf as it is compared: a tensor for an array, numbers, else a text."""
    if is_numpy_number(leaf):
        return torch.from_numpy(cast("Any", leaf).reshape(1).copy()).reshape(())
    if isinstance(leaf, Tensor | COMPARED_AS_THEY_ARE):
        return leaf
    if not is_array(leaf):
        return f"{type(leaf).__name__} {leaf!r}"
    return torch.from_numpy(cast("Any", leaf).copy()) if _has_tensor_dtype(leaf) else repr(leaf)
