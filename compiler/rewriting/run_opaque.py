"""Run a pass that is a plain function, and split its effect into numbered rewrites afterwards.

The function is called once for each graph, sub-graphs first, like the passes of the tables. Each
change of any of the graphs is a rewrite; a veto rebuilds that graph without it.
"""

from torch.fx import Graph, GraphModule

from ctk.compiler.fx.adopt import adopt
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.diff import Pair, align_names
from ctk.compiler.fx.same import same_graph
from ctk.compiler.fx.walk import distinct_graphs, graphs_by_path
from ctk.compiler.observe import RewriteId
from ctk.compiler.rewriting.effect_split import Replacements, number_effect
from ctk.compiler.rewriting.numbering import PassRun
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.compiler.rewriting.verify import lint, put_in_order
from ctk.compiler.torch_compat.fx import graphs


def run_opaque(run: PassRun, step: FunctionPass, snapshot: GraphModule) -> None:
    """Apply a plain function to `run.root`; number its rewrites, and undo vetoed ones.

    Args:
        snapshot: A copy of the root as it is now, or the root without an observer.

    Raises:
        TypeError: The function returned neither None nor a graph.
        VerifyError: It left an ill-formed graph, or one whose nodes have no order.
    """
    counted = run.numbering.observer is not None or run.numbering.config.fuel is not None
    before = snapshot if snapshot is not run.root else copy_graph_module(run.root, lazy=True)
    changed = run.changed
    modules = distinct_graphs(run.root)
    for module in modules:
        run.prepare(module)
    run.changed = changed
    made = {module: _call(run, step, module) for module in modules}
    for module in distinct_graphs(run.root):
        put_in_order(run, module)
        lint(run, module)  # an ill-formed graph cannot even be copied
    if same_graph(before, run.root):
        return
    run.changed = True
    if counted:
        paths = graphs_by_path(run.root).items()
        _count(run, before, {path: made[m] for path, m in paths if m in made})


def _call(run: PassRun, step: FunctionPass, module: GraphModule) -> list[Pair]:
    """Call the function on one graph; return the substitutions that it made."""
    names = copy_graph_module(module, lazy=True)
    with graphs.record_replacements(module) as replacements:
        result = step.function(module.graph if step.takes == "graph" else module)
    if isinstance(result, Graph):
        result = module if result is module.graph else GraphModule(module, result)
    if isinstance(result, GraphModule) and result is not module:
        for graph in distinct_graphs(result):
            put_in_order(run, graph)  # an unordered graph cannot be copied
        adopt(module, result, renew=True)
        align_names(names, module)
    elif result is not None and not isinstance(result, (bool, int, GraphModule)):
        raise TypeError(
            f"pass {run.id} returned {type(result).__name__}; "
            "return None (changed in place), a GraphModule or a Graph"
        )
    return replacements


def _count(run: PassRun, before: GraphModule, replacements: Replacements) -> None:
    """Number each change; rebuild the graphs without the vetoed ones."""
    numbering, after = run.numbering, copy_graph_module(run.root, lazy=True)

    def ask(rule: str) -> tuple[RewriteId, bool]:
        rewrite = run.next_rewrite(rule)
        return rewrite, numbering.allow_rewrite(rewrite)

    observer = numbering.observer
    keep = observer is not None and observer.keep_rewrites
    records, allowed = number_effect(
        before, after, ask, keep_graphs=keep, replacements=replacements
    )
    run.rewrites += records
    if allowed is not after:
        adopt(run.root, allowed)
        run.changed = allowed is not before
