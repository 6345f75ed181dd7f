"""Places of sizes in a case: dimensions of inputs and constants, number inputs, literals.

x: f32[2, 8]               dimension 1 of input x: SizePlace("input", "", "x", (1,))
view = x.view(2, 2, 4)     argument 2 of view: SizePlace("literal", "", "view", (0, 2))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

Kind = Literal["input", "constant", "number", "literal"]
Path = tuple[int | str, ...]


@dataclass(frozen=True, slots=True, order=True)
class SizePlace:
    """One place of a size.

    Attributes:
        kind: A dimension of an input or of a constant that a graph holds, an input that is a
            number, or a number among the arguments of a node.
        graph: Path of the graph (`graphs_by_path`); the outermost has the empty one.
        name: The input or node by name; the constant by its target.
        where: The dimension; for literals the path into `(args..., kwargs by name...)`.
    """

    kind: Kind
    graph: str
    name: str
    where: Path = ()

    def __str__(self) -> str:
        name = f"{self.graph}.{self.name}" if self.graph else self.name
        if self.kind == "number":
            return f"number {name}"
        if self.kind == "literal":
            return f"argument {'.'.join(map(str, self.where))} of {name}"
        return f"dimension {self.where[0]} of {name}"


def map_literals(
    value: Any, change: Callable[[int, Path], object], path: Path = (), least: int = 2
) -> Any:
    """Return nested arguments with each integer from `least` on replaced.

    Args:
        value: Arguments: tuples, lists, dicts and slices are traversed, nodes kept.
        change: Takes a number and its path, returns its replacement.
        least: Smaller numbers are rarely sizes: 0 and 1 are flags, -1 means "the rest".
    """
    if type(value) is int:
        return change(value, path) if value >= least else value
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*map_literals(parts, change, path, least))
    if isinstance(value, (tuple, list)):
        items = [
            map_literals(item, change, (*path, index), least)
            for index, item in enumerate(cast("tuple[object, ...]", value))
        ]
        kind = cast("Any", type(value))
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return {key: map_literals(item, change, (*path, key), least) for key, item in pairs}
    return value
