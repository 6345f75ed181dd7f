"""Split the effect of a whole pass into changes that can be numbered and vetoed one by one.

For passes that do not announce their rewrites: users' plain functions and most of Inductor's. A
change is a hunk of `fx.diff` in one of the graphs, or a whole graph if only the order of its nodes
differs. Numbers and vetoes come from the caller's function.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from torch.fx import GraphModule, Node

from ctk.compiler.fx.adopt import assign
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.diff import Hunk, Pair, diff_hunks
from ctk.compiler.fx.mix import apply_hunks
from ctk.compiler.fx.same import definitions
from ctk.compiler.fx.walk import by_name, children, graphs_by_path
from ctk.compiler.observe import RewriteId, RewriteRecord

Replacements = Mapping[str, Sequence[Pair]]
"""The `replace_all_uses_with` that were recorded on each graph, by its path."""


@dataclass(frozen=True, slots=True)
class Change:
    """One independent change.

    Attributes:
        rule: `removed operators -> new operators`.
        hunk: The changed nodes; None for a new order of the same nodes.
    """

    path: str
    rule: str
    hunk: Hunk | None

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.hunk.nodes if self.hunk else ()


def split_effect(
    before: GraphModule, after: GraphModule, replacements: Replacements | None = None
) -> list[Change]:
    """Return the changes that lead from one graph to another: the root's first, then each child's.

    Args:
        after: The graph after, or a copy. A sub-graph that only one of the two has comes or goes
            with the node that refers to it.
    """
    olds, seen = graphs_by_path(before), set[GraphModule]()
    changes: list[Change] = []
    for path, new in graphs_by_path(after).items():
        if path in olds and new not in seen:
            changes += _split_graph(path, olds[path], new, (replacements or {}).get(path))
        seen.add(new)
    return changes


def _split_graph(
    path: str, before: GraphModule, after: GraphModule, replacements: Sequence[Pair] | None
) -> list[Change]:
    place = f" in {path}" if path else ""
    hunks = diff_hunks(before, after, replacements)
    if not hunks and definitions(before) != definitions(after):
        return [Change(path, f"new order{place}", None)]
    old, new = by_name(before), by_name(after)
    return [Change(path, _rule(hunk, old, new) + place, hunk) for hunk in hunks]


def _rule(hunk: Hunk, old: Mapping[str, Node], new: Mapping[str, Node]) -> str:
    """Return `a, b -> c`: the removed and the new operators."""
    gone = [_name_of(old[name].target) for name in (*hunk.redefined, *hunk.erased)]
    came = [_name_of(new[name].target) for name in (*hunk.redefined, *hunk.created)]
    if not gone and not came:
        return "; ".join(f"use {b} for {a}" for a, b in hunk.substitutions)
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(came) or 'nothing'}"


def _name_of(target: object) -> str:
    """Return the name of a callee, the same in every run (no addresses)."""
    text = str(target)
    return getattr(target, "__name__", type(target).__name__) if " at 0x" in text else text


def apply_changes(
    before: GraphModule,
    after: GraphModule,
    taken: Iterable[Change],
    changes: Sequence[Change],
) -> GraphModule:
    """Return a new graph: `before` with only some of the changes made.

    Raises:
        RuntimeError: The taken changes have no consistent order without the others.
    """
    done: dict[GraphModule, GraphModule] = {}
    chosen = frozenset(taken)

    def mix(path: str, old: GraphModule, new: GraphModule) -> GraphModule:
        if new not in done:
            done[new] = graph = _mix(old, new, path, chosen, changes)
            olds, news = children(old), children(new)
            for name in children(graph):
                if name in olds and name in news:
                    inner = f"{path}.{name}" if path else name
                    assign(graph, name, mix(inner, olds[name], news[name]))
        return done[new]

    return mix("", before, after)


def _mix(
    before: GraphModule,
    after: GraphModule,
    path: str,
    taken: Set[Change],
    changes: Sequence[Change],
) -> GraphModule:
    """Return one graph with some of its changes; sub-graphs do not count."""
    mine = [change for change in changes if change.path == path]
    kept = [change for change in mine if change in taken]
    if len(kept) == len(mine):
        return copy_graph_module(after, lazy=True)
    if not kept:
        return copy_graph_module(before, lazy=True)
    hunks = [change.hunk for change in mine if change.hunk]
    return apply_hunks(before, after, [c.hunk for c in kept if c.hunk], hunks)


def number_effect(
    before: GraphModule,
    after: GraphModule,
    ask: Callable[[str], tuple[RewriteId, bool]],
    *,
    keep_graphs: bool,
    replacements: Replacements | None = None,
) -> tuple[list[RewriteRecord], GraphModule]:
    """Number each change of a pass, and keep the allowed ones.

    Args:
        before: The graph before; must stay unchanged while the records live.
        after: The graph after; likewise.
        keep_graphs: Whether the records hold the graph after each change.

    Returns:
        A record of each change, and the graph with the allowed changes: `after` itself with all of
        them, `before` itself with none.
    """
    changes = split_effect(before, after, replacements)
    records: list[RewriteRecord] = []
    taken: list[Change] = []

    def with_first(count: int) -> GraphModule:
        return apply_changes(before, after, taken[:count], changes)

    for change in changes:
        rewrite, is_allowed = ask(change.rule)
        taken += [change] if is_allowed else []
        graph = partial(with_first, len(taken)) if is_allowed and keep_graphs else None
        records.append(RewriteRecord(rewrite, change.nodes, not is_allowed, graph))
    if len(taken) == len(changes):
        return records, after
    return records, with_first(len(taken)) if taken else before
