"""Plain values as text: equal texts mean equal values, in every process.

    (1, True, -0.0, torch.float32)  ->  (1,True,-0.0,torch.float32)

Cases: 1. None, bools, numbers, strings, bytes by `repr`; 2. lists, tuples, sizes, slices, ranges,
sets and dicts of such values, in their order, sets sorted; 3. torch's dtypes, devices, layouts,
memory formats, and members of enumerations; 4. values that the caller can write (`other`). Other
values have no text: the `repr` of an object may hold its address.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import cast

import torch

Other = Callable[[object], str | None]
"""Returns the text of a value that is not plain; None if it has none."""

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...))
_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.device)


class NoText(Exception):
    """A value has no text; the message gives its type."""


def text_of(value: object, other: Other | None = None) -> str:
    """Return the text of a value.

    Raises:
        NoText: The value or a part of it is not plain, and `other` has no text for it.
    """
    kind = type(value)
    if kind in _ATOMS:
        return repr(value)
    if isinstance(value, _NAMED):
        return str(value) if kind is not torch.device else f"device({value})"
    if isinstance(value, list | tuple):
        items = _join(cast("Iterable[object]", value), other)
        return f"{_name(kind)}[{items}]" if isinstance(value, list) else f"{_name(kind)}({items})"
    if isinstance(value, slice | range):
        parts = (value.start, value.stop, value.step)
        return f"{kind.__name__}({_join(parts, other)})"
    if isinstance(value, set | frozenset):
        members = cast("Iterable[object]", value)
        return f"{{{','.join(sorted(text_of(member, other) for member in members))}}}"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        items = ",".join(f"{text_of(key, other)}:{text_of(each, other)}" for key, each in pairs)
        return f"{_name(kind)}{{{items}}}"
    if isinstance(value, Enum):
        return f"{_name(kind)}.{value.name}"
    known = None if other is None else other(value)
    if known is None:
        raise NoText(f"a {kind.__module__}.{kind.__qualname__}")
    return known


def _name(kind: type) -> str:
    """Return the name of a class; none for plain containers and their FX counterparts."""
    if (
        kind in (list, tuple, dict, torch.Size)
        or kind.__module__ == "torch.fx.immutable_collections"
    ):
        return ""
    return f"{kind.__module__}.{kind.__qualname__}"


def _join(values: Iterable[object], other: Other | None) -> str:
    return ",".join(text_of(value, other) for value in values)
