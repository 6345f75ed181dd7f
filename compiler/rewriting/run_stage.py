"""Run a stage's passes over a graph, in order, one by one: veto, run, verify, announce."""

import time
from collections.abc import Callable, Sequence

from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import distinct_graphs
from ctk.compiler.observe import PassId, PassRecord, Stage, StageRecord
from ctk.compiler.phases import phase
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.numbering import Numbering, PassRun
from ctk.compiler.rewriting.rewriter import Rewriter, report
from ctk.compiler.rewriting.run_opaque import run_opaque
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.compiler.rewriting.verify import put_in_order, verify

COPY, RECOMPILE = "copies for the observer", "code of the graph"
"""The phases of a stage besides its passes."""


def run_stage(
    root: GraphModule,
    stage: Stage,
    passes: Sequence[Pass | FunctionPass],
    numbering: Numbering,
    *,
    inputs: Sequence[object] = (),
) -> None:
    """Run `passes` over `root` and its sub-graphs, in place.

    Args:
        passes: The stage's table, then the user's own.

    Raises:
        VerifyError: A pass left an ill-formed graph. Other exceptions of passes keep their type and
            get a note that names stage, pass, rewrite and node.
    """
    snapshot = enter_stage(root, stage, numbering, inputs)
    earlier: list[PassId] = []
    for step in passes:
        run = PassRun(root, numbering.pass_id(stage, step.name), numbering, tuple(earlier))
        with phase(stage, step.name):
            snapshot, vetoed = _run_pass(run, step, snapshot)
        earlier += [] if vetoed else [run.id]
    with phase(stage, RECOMPILE):
        root.recompile()


def enter_stage(
    root: GraphModule, stage: Stage, numbering: Numbering, inputs: Sequence[object] = ()
) -> GraphModule:
    """Announce a stage; return the copy in the event, or the graph itself without an observer."""
    if numbering.observer is None:
        return root
    with phase(stage, COPY):
        copy = copy_graph_module(root, lazy=True)
    numbering.observer.on_stage(StageRecord(stage, copy, tuple(inputs)))
    return copy


def _run_pass(
    run: PassRun, step: Pass | FunctionPass, snapshot: GraphModule
) -> tuple[GraphModule, bool]:
    """Run one pass, if allowed; return a copy of the graph (or `snapshot`), and whether vetoed."""
    numbering = run.numbering
    started = time.perf_counter()
    vetoed = not numbering.allow_pass(run.id)
    if not vetoed:
        _report_errors(run, lambda: _apply(step, run, snapshot))
        if run.changed and numbering.config.verify:
            _report_errors(run, lambda: verify(run))
    if numbering.observer is None:
        return snapshot, vetoed
    after = copy_graph_module(run.root, lazy=True) if run.changed else snapshot
    seconds = time.perf_counter() - started
    numbering.observer.on_pass(
        PassRecord(
            run.id,
            step.numerics,
            snapshot,
            after,
            tuple(run.rewrites),
            vetoed,
            seconds,
            notes=tuple(run.notes),
        )
    )
    return after, vetoed


def _apply(step: Pass | FunctionPass, run: PassRun, snapshot: GraphModule) -> None:
    if isinstance(step, FunctionPass) and step.takes != "rewriter":
        run_opaque(run, step, snapshot)
        return
    function = step.function if isinstance(step, FunctionPass) else step.run
    for module in distinct_graphs(run.root):
        function(Rewriter(run, module))
    for module in run.states:
        put_in_order(run, module)


def _report_errors(run: PassRun, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        report(error, run)
        raise
