"""Run a pass that is a plain function, and split what it did into numbered rewrites afterwards.

The function is called once for each graph, sub-graphs first, as the passes of the tables are. Each
of its changes to any of the graphs is a rewrite; a veto rebuilds that graph without it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from torch.fx import Graph, GraphModule

from ctk.compiler.fx.align import align_names
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.diff import Hunk, Pair, apply_hunks, diff_hunks, same_graph
from ctk.compiler.observe import RewriteRecord
from ctk.compiler.rewriting.numbering import PassRun
from ctk.compiler.rewriting.user_passes import OpaquePass
from ctk.compiler.rewriting.verify import lint
from ctk.compiler.torch_compat import recorded_replacements


@dataclass(frozen=True, slots=True)
class Change:
    """A hunk of one graph of a module: `path` leads to the sub-graph, "" is the root."""

    path: str
    hunk: Hunk


def run_opaque(run: PassRun, step: OpaquePass, snapshot: GraphModule) -> None:
    """Apply a plain function to `run.root`; number its rewrites, and undo those not allowed.

    Args:
        run: The run of this pass.
        step: The function changes a graph in place, or returns another one.
        snapshot: A copy of the root as it is now, when somebody watches.

    Raises:
        TypeError: The function returned something else than None or a graph.
        VerifyError: It left an ill-formed graph.
    """
    counted = run.numbering.observer is not None or run.numbering.config.fuel is not None
    before = snapshot if snapshot is not run.root else copy_graph_module(run.root, lazy=True)
    changed = run.changed
    modules = graphs_by_path(run.root)
    for module in modules.values():
        run.prepare(module)
    run.changed = changed
    replacements = {path: _call(run, step, module) for path, module in reversed(modules.items())}
    for module in graphs_by_path(run.root).values():
        lint(run, module)  # an ill-formed graph cannot even be copied
    if same_graph(before, run.root):
        return
    run.changed = True
    if counted:
        _count(run, before, replacements)


def graphs_by_path(root: GraphModule) -> dict[str, GraphModule]:
    """Return the graphs of a module by the path of their sub-module, the root ("") first."""
    return {path: m for path, m in root.named_modules() if isinstance(m, GraphModule)}


def _call(run: PassRun, step: OpaquePass, module: GraphModule) -> list[Pair]:
    """Call the function on one graph; return the replacements that it made meanwhile."""
    names = copy_graph_module(module, lazy=True)
    with recorded_replacements(module) as replacements:
        result = step.function(module.graph if step.takes == "graph" else module)
    if isinstance(result, Graph):
        result = module if result is module.graph else GraphModule(module, result)
    if isinstance(result, GraphModule) and result is not module:
        adopt(module, result)
        align_names(names, module)
    elif result is not None and not isinstance(result, (bool, int, GraphModule)):
        raise TypeError(
            f"pass {run.id} returned {type(result).__name__}; "
            "return None (changed in place), a GraphModule or a Graph"
        )
    return replacements


def _count(run: PassRun, before: GraphModule, replacements: dict[str, list[Pair]]) -> None:
    """Number each change; rebuild the graphs from the allowed ones when some are vetoed."""
    after = copy_graph_module(run.root, lazy=True)
    changes = list(_changes(before, after, replacements))
    if not changes:
        _count_whole(run, before)
        return
    observer = run.numbering.observer
    allowed: list[Change] = []
    for change in changes:
        rewrite_id = run.next_rewrite(_rule(change, before, after))
        if not run.numbering.allow_rewrite(rewrite_id):
            run.record(rewrite_id, change.hunk.nodes, vetoed=True)
            continue
        allowed.append(change)
        kept = None
        if observer is not None and observer.keep_rewrites:
            kept = partial(with_changes, before, after, tuple(allowed), changes)
        run.rewrites.append(RewriteRecord(rewrite_id, change.hunk.nodes, after=kept))
    if len(allowed) < len(changes):
        adopt(run.root, with_changes(before, after, allowed, changes))
        run.changed = bool(allowed)


def _count_whole(run: PassRun, before: GraphModule) -> None:
    """A change that no node shows (an order, a sub-graph more or less) is one rewrite."""
    rewrite_id = run.next_rewrite("reorder")
    if run.numbering.allow_rewrite(rewrite_id):
        run.record(rewrite_id, ())
        return
    run.record(rewrite_id, (), vetoed=True)
    adopt(run.root, before)
    run.changed = False


def _changes(
    before: GraphModule, after: GraphModule, replacements: dict[str, list[Pair]]
) -> Iterator[Change]:
    """Yield what differs: the root's changes first, then those of each sub-graph."""
    olds, news = graphs_by_path(before), graphs_by_path(after)
    for path in olds:
        if path in news:
            hunks = diff_hunks(olds[path], news[path], replacements.get(path, []))
            yield from (Change(path, hunk) for hunk in hunks)


def with_changes(
    before: GraphModule, after: GraphModule, taken: Sequence[Change], changes: Sequence[Change]
) -> GraphModule:
    """Return `before` with only the taken ones of all `changes` that lead to `after`."""
    result = copy_graph_module(after, lazy=True)
    olds, news, mixed = graphs_by_path(before), graphs_by_path(after), graphs_by_path(result)
    for path in dict.fromkeys(change.path for change in changes):
        hunks = [c.hunk for c in changes if c.path == path]
        made = [c.hunk for c in taken if c.path == path]
        if len(made) < len(hunks):
            adopt(mixed[path], apply_hunks(olds[path], news[path], made, hunks), nested=False)
    return result


def _rule(change: Change, before: GraphModule, after: GraphModule) -> str:
    """Return `a, b -> c`: the operators that went and those that came."""
    old = {n.name: n for n in graphs_by_path(before)[change.path].graph.nodes}
    new = {n.name: n for n in graphs_by_path(after)[change.path].graph.nodes}
    hunk = change.hunk
    gone = [_called(old[n].target) for n in (*hunk.redefined, *hunk.erased)]
    came = [_called(new[n].target) for n in (*hunk.redefined, *hunk.created)]
    if not gone and not came:
        return "; ".join(f"use {b} for {a}" for a, b in hunk.substitutions)
    text = f"{', '.join(gone) or 'nothing'} -> {', '.join(came) or 'nothing'}"
    return f"{text} in {change.path}" if change.path else text


def _called(target: object) -> str:
    """Return the name of what a node calls, the same in every run (no addresses)."""
    text = str(target)
    return getattr(target, "__name__", type(target).__name__) if " at 0x" in text else text


def adopt(root: GraphModule, other: GraphModule, *, nested: bool = True) -> None:
    """Make `root` the graph `other`, attributes included; root stays itself.

    Args:
        root: Changed in place.
        other: Copied.
        nested: Take its sub-graphs too, where root has not the same ones.
    """
    source = copy_graph_module(other)
    for name, child in source.named_children():
        mine = getattr(root, name, None)
        if nested and isinstance(mine, GraphModule) and isinstance(child, GraphModule):
            adopt(mine, child)
        elif mine is None or nested:
            setattr(root, name, child)
    for name, value in source.named_parameters(recurse=False):
        setattr(root, name, value)
    for name, value in source.named_buffers(recurse=False):
        if not hasattr(root, name):
            root.register_buffer(name, value)
        else:
            setattr(root, name, value)
    root.graph = source.graph
    root.recompile()
