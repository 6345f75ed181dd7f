"""Entries of tables: overloads that share a lowering, and the order of entries."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Lowering = TypeVar("Lowering", bound=Callable[..., Any])


def overloads(packet: Any, names: str, lowering: Lowering) -> dict[object, Lowering]:
    """Return a lowering by each overload: `overloads(aten.add, "Scalar Tensor", _add)`."""
    return {getattr(packet, name): lowering for name in names.split()}


def in_order(entries: Mapping[object, Lowering]) -> dict[object, Lowering]:
    """Return a table sorted by the names of its operators."""
    return dict(sorted(entries.items(), key=lambda entry: str(entry[0])))
