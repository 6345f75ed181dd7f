"""Edits: frozen descriptions of one change of a case; `apply` never asks an oracle."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from torch.fx import GraphModule, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.rebuild import Change, Inline, SameAs, Substitute
from ctk.compiler.fx.walk import by_name, fetch, output_leaves, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts, dead_calls, is_cuttable, is_number
from ctk.toolkit.reduce.eager_values import values_before
from ctk.toolkit.reduce.graph_changes import (
    as_inputs,
    change_graph,
    first_readers,
    outputs_without,
    size_symbol,
    without_grad,
)
from ctk.toolkit.reduce.reconnection import reconnect
from ctk.toolkit.reduce.subgraphs import operands_of

SHOWN = 4
"""Names per line."""


def listing(names: Iterable[str]) -> str:
    """Return names for a line: the first few, and the number of the others."""
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more


class Edit(Protocol):
    """One change of a case."""

    def apply(self, case: Case, facts: Facts) -> Case | None:
        """Return the changed case, or None if the edit does not apply."""
        ...

    def says(self) -> str:
        """Return a line that describes the edit, in the user's words: `without mul_5`."""
        ...


def of_units(edit: Callable[[tuple[str, ...]], Edit]) -> Callable[[Iterable[Iterable[str]]], Edit]:
    """Return the function from some units (`Facts.units`) to the edit of all their nodes."""
    return lambda units: edit(tuple(name for unit in units for name in unit))


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Remove nodes: their values that others read become inputs, the values that they read outputs.

    So the rest of the program computes the same as before: truncation, a cut to inputs and the
    removal of the middle are the same edit. Numbers become constants.
    """

    names: tuple[str, ...]

    def says(self) -> str:
        return f"inputs in place of {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        removed = frozenset(self.names)
        readers = first_readers(case.graph, removed)
        outputs = outputs_without(case.graph, removed, facts)
        if not outputs or not all(is_cuttable(facts.infos[name]) for name in readers):
            return None
        values = values_before(case, readers) if readers else {}
        substitutes: dict[str, Substitute] = {}
        inputs: dict[str, object] = {}
        for name, value in values.items():
            substitutes[name] = as_inputs(value, name, inputs)
        change = Change(substitutes, gone=removed - substitutes.keys(), outputs=outputs)
        return change_graph(case, change, without_grad(case.graph, removed, inputs))


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Remove nodes, and feed their readers from their ancestors (or `sources`, as pairs)."""

    names: tuple[str, ...]
    sources: tuple[tuple[str, str], ...] = ()

    def says(self) -> str:
        if self.sources:
            return ", ".join(f"{source} in place of {node}" for node, source in self.sources)
        return f"without {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return reconnect(case, facts, frozenset(self.names), dict(self.sources))


@dataclass(frozen=True, slots=True)
class Replace:
    """Read one value in place of another: pairs (gone, kept). The effects of the first go too."""

    pairs: tuple[tuple[str, str], ...]

    def says(self) -> str:
        return ", ".join(f"{kept} in place of {gone}" for gone, kept in self.pairs)

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return change_graph(case, Change({gone: SameAs(kept) for gone, kept in self.pairs}))


@dataclass(frozen=True, slots=True)
class DropOutputs:
    """Drop results by position; at least one must remain."""

    positions: tuple[int, ...]

    def says(self) -> str:
        return f"without result {listing(map(str, self.positions))}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        kept = [
            leaf.name
            for position, leaf in enumerate(output_leaves(case.graph))
            if position not in self.positions and isinstance(leaf, Node)
        ]
        return change_graph(case, Change(outputs=tuple(kept))) if kept else None


@dataclass(frozen=True, slots=True)
class DropUnused:
    """Drop dead calls with their readers, and unused inputs; operands stay unless named."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"without {listing(self.names)}, which nothing reads"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        dead = dead_calls(case.graph, facts.markers | facts.mutators)
        gone = {*self.names}
        for node in case.graph.graph.nodes:
            if node.name in dead and any(operand.name in gone for operand in node.all_input_nodes):
                gone.add(node.name)
        return change_graph(case, Change(gone=frozenset(gone), dead=dead - gone))


@dataclass(frozen=True, slots=True)
class DropEffects:
    """Drop nodes with an effect; readers of an in-place op read its changed argument instead."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"without the effect of {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        nodes = by_name(case.graph)
        substitutes = {
            name: SameAs(mutated_arguments(nodes[name])[0].name)
            for name in self.names
            if nodes[name].users and name in facts.mutators
        }
        return change_graph(
            case, Change(substitutes, gone=frozenset(self.names) - substitutes.keys())
        )


@dataclass(frozen=True, slots=True)
class FoldNumbers:
    """Replace number-valued nodes and inputs by their numbers."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"the number itself in place of {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        return change_graph(case, Change({name: facts.infos[name] for name in self.names}))


@dataclass(frozen=True, slots=True)
class FixSizes:
    """Make symbolic sizes static, by symbol: inputs that are such a size become constants."""

    symbols: tuple[str, ...]

    def says(self) -> str:
        return f"fixed sizes in place of {listing(self.symbols)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        static = {
            name: tuple(None if size in self.symbols else size for size in sizes)
            for name, sizes in case.dynamic.items()
        }
        case = dataclasses.replace(case, dynamic={n: s for n, s in static.items() if any(s)})
        names = [n.name for n in placeholders(case.graph) if size_symbol(n) in self.symbols]
        numbers = [name for name in names if is_number(facts.infos[name])]
        return change_graph(case, Change({name: facts.infos[name] for name in numbers}))


@dataclass(frozen=True, slots=True)
class InlineCall:
    """Replace a call of sub-graphs (`cond`, a loop, a checkpoint) by the nodes of one of them."""

    name: str
    target: str

    def says(self) -> str:
        return f"the nodes of {self.target} in place of {self.name}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        call = by_name(case.graph)[self.name]
        body = fetch(case.graph, self.target)
        if not isinstance(body, GraphModule):
            return None
        operands = operands_of(call, len(placeholders(body)))
        if operands is None:
            return None
        references = tuple(SameAs(o.name) if isinstance(o, Node) else o for o in operands)
        return change_graph(case, Change(inlines={self.name: Inline(body, references)}))
