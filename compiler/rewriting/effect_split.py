"""Split what a whole pass did into changes that can be numbered and refused one by one.

For passes that say nothing of their rewrites: users' plain functions and most of Inductor's. A
change is a hunk of `fx.diff` in one of the graphs, or, where no node tells (a new order), that
graph as a whole. Nothing is numbered here, and nobody but the caller's function is asked.
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
        path: Leads to the sub-graph; `""` is the root.
        rule: `operators that went -> operators that came`.
        hunk: What changed; None for a new order of the same nodes.
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
        before: A copy of the graph before.
        after: The graph after, or a copy. A sub-graph that only one of the two has comes or goes
            with the node that refers to it.
        replacements: What is known of them (`diff_hunks`).
    """
    olds, seen = graphs_by_path(before), set[GraphModule]()
    found: list[Change] = []
    for path, new in graphs_by_path(after).items():
        if path in olds and new not in seen:
            found += _split_graph(path, olds[path], new, (replacements or {}).get(path))
        seen.add(new)
    return found


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
    """Return `a, b -> c`: the operators that went and those that came."""
    gone = [_called(old[name].target) for name in (*hunk.redefined, *hunk.erased)]
    came = [_called(new[name].target) for name in (*hunk.redefined, *hunk.created)]
    if not gone and not came:
        return "; ".join(f"use {b} for {a}" for a, b in hunk.substitutions)
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(came) or 'nothing'}"


def _called(target: object) -> str:
    """Return the name of what a node calls, the same in every run (no addresses)."""
    text = str(target)
    return getattr(target, "__name__", type(target).__name__) if " at 0x" in text else text


def with_changes(
    before: GraphModule,
    after: GraphModule,
    taken: Iterable[Change],
    changes: Sequence[Change],
) -> GraphModule:
    """Return a new graph: `before` with only some of the changes made.

    Args:
        before: The graph before.
        after: The graph after.
        taken: Those of `changes` to make.
        changes: What `split_effect` returned for the two.

    Raises:
        RuntimeError: The taken changes have no consistent order without the others.
    """
    done: dict[GraphModule, GraphModule] = {}
    chosen = frozenset(taken)

    def mixed(path: str, old: GraphModule, new: GraphModule) -> GraphModule:
        if new not in done:
            done[new] = graph = _mixed(old, new, path, chosen, changes)
            olds, news = children(old), children(new)
            for name in children(graph):
                if name in olds and name in news:
                    inner = f"{path}.{name}" if path else name
                    assign(graph, name, mixed(inner, olds[name], news[name]))
        return done[new]

    return mixed("", before, after)


def _mixed(
    before: GraphModule,
    after: GraphModule,
    path: str,
    taken: Set[Change],
    changes: Sequence[Change],
) -> GraphModule:
    """Return one graph with some of its changes; its sub-graphs are of no account."""
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
    """Number each change that a pass made, and ask whether it may stay.

    Args:
        before: The graph before; kept as it is while the records live.
        after: The graph after; likewise.
        ask: Gives a rule its number, and says whether that rewrite is allowed.
        keep_graphs: Whether the records shall tell the graph after each change.
        replacements: As for `split_effect`.

    Returns:
        A record of each change, and the graph with those that are allowed: `after` itself with all
        of them, `before` itself with none.
    """
    changes = split_effect(before, after, replacements)
    records: list[RewriteRecord] = []
    taken: list[Change] = []

    def with_first(count: int) -> GraphModule:
        return with_changes(before, after, taken[:count], changes)

    for change in changes:
        rewrite, is_allowed = ask(change.rule)
        taken += [change] if is_allowed else []
        graph = partial(with_first, len(taken)) if is_allowed and keep_graphs else None
        records.append(RewriteRecord(rewrite, change.nodes, not is_allowed, graph))
    if len(taken) == len(changes):
        return records, after
    return records, with_first(len(taken)) if taken else before
