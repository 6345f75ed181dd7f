"""Read the rewrites of a pass off its effect, and build the graph that has only some of them.

A change is a hunk of `ctk.compiler.fx.diff` in one graph, or, where no node tells (a new
order), that graph as a whole. It numbers nothing and asks nobody; `inductor_session` does.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch.fx import GraphModule

from ctk.compiler.fx.diff import Hunk, apply_hunks, diff_hunks
from ctk.toolkit.targets.inductor.snapshot import fingerprint, snapshot, subgraphs


@dataclass(frozen=True, slots=True)
class Change:
    """One independent change.

    Attributes:
        graph: Path of the sub-graph from the root, `""` for the root.
        rule: `operators that went -> operators that came`.
        hunk: What changed; None for a new order of the same nodes.
    """

    graph: str
    rule: str
    hunk: Hunk | None

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.hunk.nodes if self.hunk else ()


def changes(before: GraphModule, after: GraphModule, path: str = "") -> list[Change]:
    """Return the independent changes between snapshots, in Inductor's order: sub-graphs first."""
    found = [
        change
        for name, old, new in _shared(before, after)
        for change in changes(old, new, f"{path}{name}.")
    ]
    place = f" in {path.rstrip('.')}" if path else ""
    hunks = diff_hunks(before, after)
    found += [Change(path, _rule(hunk, before, after) + place, hunk) for hunk in hunks]
    if not hunks and _nodes(before) != _nodes(after):
        found.append(Change(path, f"new order{place}", None))
    return found


def with_changes(
    before: GraphModule, after: GraphModule, kept: Collection[Change], path: str = ""
) -> GraphModule:
    """Return a new graph: `before` with only those of `changes(before, after)` that are `kept`.

    Raises:
        RuntimeError: These changes have no consistent order without the others.
    """
    hunks = diff_hunks(before, after)
    taken = [change.hunk for change in kept if change.graph == path]
    if len(taken) == max(len(hunks), 1):
        graph = snapshot(after)
    else:
        wanted = [hunk for hunk in taken if hunk is not None]
        graph = apply_hunks(before, after, wanted) if wanted else snapshot(before)
    present = {name for name, _ in subgraphs(graph)}
    for name, old, new in _shared(before, after):
        if name in present:
            graph.set_submodule(name, with_changes(old, new, kept, f"{path}{name}."))
    return graph


def _shared(
    before: GraphModule, after: GraphModule
) -> Iterator[tuple[str, GraphModule, GraphModule]]:
    """Yield the sub-graphs that both have, by name."""
    children = dict(subgraphs(before))
    for name, new in subgraphs(after):
        if name in children:
            yield name, children[name], new


def _nodes(gm: GraphModule) -> object:
    return fingerprint(gm)[0]


def _rule(hunk: Hunk, before: GraphModule, after: GraphModule) -> str:
    old = {n.name: str(n.target) for n in before.graph.nodes}
    new = {n.name: str(n.target) for n in after.graph.nodes}
    gone = [old[name] for name in (*hunk.redefined, *hunk.erased)]
    came = [new[name] for name in (*hunk.redefined, *hunk.created)]
    if not gone and not came:
        return "; ".join(f"use {b} for {a}" for a, b in hunk.substitutions)
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(came) or 'nothing'}"
