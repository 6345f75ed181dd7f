"""Edits of the arguments of calls: left out for their defaults, simpler numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch.fx import Node

from ctk.compiler.fx.rebuild import Change
from ctk.compiler.fx.walk import by_name, flat
from ctk.compiler.torch_compat.fx.arguments import Parameter, parameters_of
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.form_edits import rewritten
from ctk.toolkit.reduce.graph_changes import change_graph
from ctk.toolkit.reduce.validity import reject_invalid

Key = int | str
"""An argument: its position, or its name."""


@dataclass(frozen=True, slots=True)
class UseDefaults:
    """Leave out arguments that have defaults: pairs (node, position or name).

    An argument before others gets the value of its default; a required one may become None.
    """

    places: tuple[tuple[str, Key], ...]

    def says(self) -> str:
        return ", ".join(f"the default of argument {key} of {node}" for node, key in self.places)

    def apply(self, case: Case, facts: Facts) -> Case | None:
        keys: dict[str, list[Key]] = {}
        for name, key in self.places:
            keys.setdefault(name, []).append(key)
        unread = change_graph(case, Change(edges=self._edges(case)))

        def change(node: Node) -> None:
            for key in keys.get(node.name, ()):
                found = parameter(node, key)
                if found is not None and may_go(node, key):
                    _set(node, key, found)
            if node.name in keys:
                _trim(node)

        return reject_invalid(unread and rewritten(unread, {}, change, inside=False), case, facts)

    def _edges(self, case: Case) -> dict[tuple[str, str], object]:
        """Return the values that calls read in place of arguments that other nodes compute."""
        nodes = by_name(case.graph)
        edges: dict[tuple[str, str], object] = {}
        for name, key in self.places:
            value, found = dict(_arguments(nodes[name]))[key], parameter(nodes[name], key)
            others = [v for k, v in _arguments(nodes[name]) if (name, k) not in self.places]
            is_read = any(leaf is value for other in others for leaf in flat(other))
            if isinstance(value, Node) and found is not None and not is_read:
                edges[name, value.name] = found.default
        return edges


@dataclass(frozen=True, slots=True)
class DropItems:
    """Shorten the lists of values that calls read, by some positions: pairs (node, position).

    All lists of a call with the same length are shortened together (`_foreach_add`).
    """

    places: tuple[tuple[str, int], ...]

    def says(self) -> str:
        return ", ".join(
            f"without item {place} of the list of {node}" for node, place in self.places
        )

    def apply(self, case: Case, facts: Facts) -> Case | None:
        gone: dict[str, set[int]] = {}
        for name, place in self.places:
            gone.setdefault(name, set()).add(place)

        def change(node: Node) -> None:
            length, places = items_of(node), gone.get(node.name, ())

            def shorter(value: Any) -> Any:
                if not isinstance(value, (list, tuple)) or len(value) != length:
                    return value
                return type(value)(item for i, item in enumerate(value) if i not in places)

            if places:
                node.args = tuple(map(shorter, node.args))
                node.kwargs = {name: shorter(value) for name, value in node.kwargs.items()}

        return reject_invalid(rewritten(case, {}, change, inside=False), case, facts)


@dataclass(frozen=True, slots=True)
class SetArgument:
    """Give a call another number."""

    node: str
    key: Key
    before: float
    value: float

    def says(self) -> str:
        return f"argument {self.key} of {self.node}: {self.before!r} -> {self.value!r}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        def change(node: Node) -> None:
            if node.name == self.node and isinstance(self.key, int):
                node.update_arg(self.key, self.value)
            elif node.name == self.node:
                node.kwargs = {**node.kwargs, str(self.key): self.value}

        return reject_invalid(rewritten(case, {}, change, inside=False), case, facts)


def literals(node: Node) -> Iterator[tuple[Key, object]]:
    """Yield the literal arguments of a call."""
    for key, value in _arguments(node):
        if not any(isinstance(leaf, Node) for leaf in flat(value)):
            yield key, value


def optional(node: Node) -> Iterator[Key]:
    """Yield the computed arguments of a call that may be left out."""
    for key, value in _arguments(node):
        if isinstance(value, Node) and may_go(node, key):
            yield key


def may_go(node: Node, key: Key) -> bool:
    """Return whether an argument is known to have a default, or may be None."""
    found = parameter(node, key)
    return found is not None and (found.has_default or found.type.startswith("Optional["))


def items_of(node: Node) -> int:
    """Return the length of the first list of computed values that a call reads, or 0."""
    for _, value in _arguments(node):
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[object]", value)
            if any(isinstance(item, Node) for item in items):
                return len(items)
    return 0


def parameter(node: Node, key: Key) -> Parameter | None:
    """Return the parameter of an argument, by the first overload that takes such a call."""
    for overload in parameters_of(node.op, node.target):
        names = {each.name for each in overload}
        positional = [each for each in overload if each.is_positional]
        if len(node.args) > len(positional) or not node.kwargs.keys() <= names | {"input"}:
            continue
        if isinstance(key, int):
            return positional[key]
        return next((each for each in overload if each.name == key), None)
    return None


def _arguments(node: Node) -> list[tuple[Key, object]]:
    return [*enumerate(node.args), *node.kwargs.items()]


def _set(node: Node, key: Key, found: Parameter) -> None:
    if isinstance(key, int):
        node.update_arg(key, found.default)
    elif not found.has_default:
        node.update_kwarg(key, None)
    else:
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != key}


def _trim(node: Node) -> None:
    """Drop trailing arguments that equal their defaults."""
    while node.args and not isinstance(node.args[-1], Node):
        found = parameter(node, len(node.args) - 1)
        last = node.args[-1]
        if found is None or not found.has_default or not _is_same(found.default, last):
            return
        node.args = node.args[:-1]


def _is_same(default: object, value: object) -> bool:
    return type(default) is type(value) and bool(default == value)
