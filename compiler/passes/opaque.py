"""Run a pass that is a plain function, and split what it did into numbered rewrites afterwards."""

from collections.abc import Callable, Sequence
from functools import partial

from torch.fx import GraphModule

from compiler.graph_copy import copy_graph_module
from compiler.observe import RewriteRecord
from compiler.passes.base import PassRun
from compiler.passes.graph_diff import Hunk, apply_hunks, diff_hunks, same_graph
from compiler.torch_compat import recorded_replacements


def run_opaque(
    run: PassRun, function: Callable[[GraphModule], object], snapshot: GraphModule
) -> None:
    """Apply `function` to `run.root`; number its rewrites, and undo those that are not allowed.

    Args:
        run: The run of this pass.
        function: Changes the graph in place, or returns another graph module.
        snapshot: A copy of the root as it is now, when somebody watches.

    Raises:
        TypeError: The function returned something else than None or a GraphModule.
    """
    counted = run.fuel.observer is not None or run.fuel.config.fuel is not None
    before = snapshot if snapshot is not run.root else copy_graph_module(run.root, lazy=True)
    changed_before = run.changed
    _prepare_all(run)
    run.changed = changed_before
    with recorded_replacements(run.root) as replacements:
        result = function(run.root)
    if isinstance(result, GraphModule) and result is not run.root:
        adopt(run.root, result)
    elif result is not None and not isinstance(result, (bool, int, GraphModule)):
        raise TypeError(
            f"pass {run.id} returned {type(result).__name__}; "
            "return None (changed in place) or a GraphModule"
        )
    if same_graph(before, run.root):
        return
    run.changed = True
    if counted:
        _count(run, before, replacements)


def _prepare_all(run: PassRun) -> None:
    from compiler.passes.runner import nested_graphs

    for module in nested_graphs(run.root):
        run.prepare(module)


def _count(run: PassRun, before: GraphModule, replacements: Sequence[tuple[str, str]]) -> None:
    """Give each hunk its number; rebuild the graph from the allowed ones when some are vetoed."""
    after = copy_graph_module(run.root, lazy=True)
    hunks = diff_hunks(before, after, replacements)
    allowed: list[Hunk] = []
    vetoed = 0
    for hunk in hunks:
        rewrite_id = run.next_rewrite(_rule(hunk, before, after))
        if not run.fuel.allow_rewrite(rewrite_id):
            vetoed += 1
            run.record(rewrite_id, hunk.nodes, vetoed=True)
            continue
        allowed.append(hunk)
        kept = None
        if run.fuel.observer is not None and run.fuel.observer.keep_rewrites:
            kept = partial(apply_hunks, before, after, tuple(allowed), hunks)
        run.rewrites.append(RewriteRecord(rewrite_id, hunk.nodes, after=kept))
    if not hunks:
        vetoed += _count_whole(run, before, after)
    if vetoed:
        adopt(run.root, apply_hunks(before, after, allowed, hunks) if hunks else before)
        run.changed = bool(allowed)


def _count_whole(run: PassRun, before: GraphModule, after: GraphModule) -> int:
    """Count a change that no node shows (order, a sub-graph) as one rewrite; return how many vetoed."""
    rewrite_id = run.next_rewrite("reorder or sub-graph")
    allowed = run.fuel.allow_rewrite(rewrite_id)
    run.record(rewrite_id, (), vetoed=not allowed)
    return 0 if allowed else 1


def _rule(hunk: Hunk, before: GraphModule, after: GraphModule) -> str:
    """Return `a, b -> c`: the operators that went and those that came."""
    old = {n.name: n for n in before.graph.nodes}
    new = {n.name: n for n in after.graph.nodes}
    gone = [str(old[n].target) for n in (*hunk.redefined, *hunk.erased)]
    came = [str(new[n].target) for n in (*hunk.redefined, *hunk.created)]
    if not gone and not came:
        return "; ".join(f"use {b} for {a}" for a, b in hunk.substitutions)
    return f"{', '.join(gone) or 'nothing'} -> {', '.join(came) or 'nothing'}"


def adopt(root: GraphModule, other: GraphModule) -> None:
    """Make `root` the graph `other`, attributes and sub-graphs included; root stays itself."""
    source = copy_graph_module(other)
    for name, child in source.named_children():
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
