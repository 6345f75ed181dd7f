"""What an edit is about: the names of nodes, inputs and options that it takes away or changes.

    RemoveNodes(("mul", "relu"))                  mul, relu
    Replace((("mul", "x"),))                      mul             what stands first goes, x stays
    Inside(Focus(("true_0",)), RemoveNodes(...))  true_0.relu

For a list of refused edits, node by node. What it does not do: look whether there are such nodes.
"""

import dataclasses
from collections.abc import Iterator

from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.subgraph_edits import Inside


def names_of(edit: Edit) -> tuple[str, ...]:
    """Return the names in the fields of an edit; of one inside a sub-graph, with its path."""
    if isinstance(edit, Inside):
        path = ".".join(edit.focus.path)
        return tuple(f"{path}.{name}" for name in names_of(edit.edit))
    if not dataclasses.is_dataclass(edit):
        return ()
    found = (name for each in dataclasses.fields(edit) for name in _names(getattr(edit, each.name)))
    return tuple(dict.fromkeys(found))


def _names(value: object) -> Iterator[str]:
    """Yield the texts of a field: itself, those of a tuple, the first of each part of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]  # a tuple of anything
            yield from _first(part)


def _first(part: object) -> Iterator[str]:
    """Yield the first text in one part: the node of a pair, the input of a nested description."""
    if isinstance(part, str):
        yield part
    elif dataclasses.is_dataclass(part):
        values = (getattr(part, each.name) for each in dataclasses.fields(part))
        yield from [value for value in values if isinstance(value, str)][:1]
    elif isinstance(part, tuple):
        yield from [value for value in part if isinstance(value, str)][:1]  # pyright: ignore[reportUnknownVariableType]  # a tuple of anything
