"""Places of sizes in a case: dimensions of inputs and constants, number inputs, literals.

x: f32[2, 8]               dimension 1 of input x: SizePlace("input", "", "x", (1,))
view = x.view(2, 2, 4)     argument 2 of view: SizePlace("literal", "", "view", (0, 2))
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from torch.fx import Node

from ctk.compiler.fx.walk import fetch, graphs_by_path, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.triton_kernels import is_kernel_call

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
        where: The dimension, empty for a tensor as a whole; for literals the path into
            `(args..., kwargs by name...)`.
    """

    kind: Kind
    graph: str
    name: str
    where: Path = ()

    def at(self, dim: int) -> "SizePlace":
        """Return the place of a dimension of this tensor."""
        return replace(self, where=(dim,))

    def __str__(self) -> str:
        name = f"{self.graph}.{self.name}" if self.graph else self.name
        if self.kind == "number":
            return f"number {name}"
        if self.kind == "literal":
            return f"argument {'.'.join(map(str, self.where))} of {name}"
        return f"dimension {self.where[0]} of {name}"


def place_of_input(name: str, value: object) -> SizePlace:
    """Return the place of an input: of a number, or of a tensor as a whole."""
    return SizePlace("number" if type(value) is int else "input", "", name)


def placed_values(case: Case) -> Iterator[tuple[SizePlace, object]]:
    """Yield the inputs, then the constants of all graphs, each with its place as a whole."""
    for node, value in zip(placeholders(case.graph), case.inputs, strict=True):
        yield place_of_input(node.name, value), value
    for path, graph in graphs_by_path(case.graph).items():
        for node in graph.graph.find_nodes(op="get_attr"):
            yield SizePlace("constant", path, str(node.target)), fetch(graph, node.target)


def map_arguments(
    node: Node, path: str, change: Callable[[int, SizePlace], object], least: int = 2
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a node of the graph at `path` with each literal replaced.

    A Triton kernel keeps its own: its grid and sizes fit together by its code.
    """
    if is_kernel_call(node.target):
        return node.args, node.kwargs

    def new(number: int, where: Path) -> object:
        return change(number, SizePlace("literal", path, node.name, where))

    args = tuple(map_literals(each, new, (i,), least) for i, each in enumerate(node.args))
    return args, {key: map_literals(each, new, (key,), least) for key, each in node.kwargs.items()}


def literals_of(node: Node, path: str, least: int = 2) -> list[tuple[SizePlace, int]]:
    """Return the literals of a node of the graph at `path`, in order."""
    found: list[tuple[SizePlace, int]] = []
    map_arguments(node, path, lambda number, place: found.append((place, number)), least)
    return found


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
