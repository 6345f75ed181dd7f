"""Listen to Inductor's own announcements for the time of one compile, and put everything back.

Functions of Inductor (`inductor.sites`) are wrapped under Dynamo's compile lock;
each wrapper passes calls of other threads, and calls that are not about the observed graph,
straight through. Nothing stays wrapped after the region, also not after an exception.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch.fx import Graph, GraphModule

from ctk.compiler.observe import PassId, Stage
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor.patch_sites import wrap_site
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.freezing import freezing_hooks
from ctk.toolkit.targets.inductor.lowering_hooks import lowering_hooks
from ctk.toolkit.targets.inductor.patterns import guard_table
from ctk.toolkit.targets.inductor.regions import (
    Call,
    Function,
    Hook,
    begin_pass,
    divert,
    example_values,
    failing_stage,
    report_failure,
    time_pass,
)
from ctk.toolkit.targets.inductor.steps import step_hooks


@contextmanager
def install_hooks(compile_record: CompileRecord) -> Generator[None]:
    """Wrap Inductor's announcements until the region ends; its regions may nest."""
    with inductor.compile_lock(), compile_record.attach() as is_outermost, ExitStack() as undo:
        if is_outermost:
            for site, wrap in _hooks(compile_record):
                undo.enter_context(wrap_site(site, wrap))
            undo.enter_context(compile_record.decompositions.hook())
            undo.enter_context(compile_record.fake_kernels.hook())
        yield


def _hooks(compile_record: CompileRecord) -> Iterator[Hook]:
    sites, watching = inductor.sites(), compile_record.watching
    yield sites.pre_grad, divert(watching, partial(_run_stage, "pre_grad"))
    yield sites.joint, divert(watching, partial(_run_stage, "joint"))
    yield sites.partition, divert(watching, _run_partition)
    yield sites.post_grad, divert(watching, _run_post_grad)
    yield from freezing_hooks(compile_record)
    yield from step_hooks(compile_record)
    yield sites.gm_pass, divert(watching, _run_announced)
    yield sites.graph_pass, divert(watching, _run_announced)
    yield from _region_hooks(compile_record, sites)
    yield sites.pattern_pass, divert(watching, _apply_table)
    for site in sites.pattern_setup:
        yield site, divert(watching, _run_muted)
    yield from lowering_hooks(compile_record)


def _run_stage(stage: Stage, compile_record: CompileRecord, call: Call) -> Any:
    """Run a stage function that returns its graph and calls itself for sub-graphs."""
    gm, *more = call.args
    frame = compile_record.frame()
    if frame is not None and frame.stage == stage:
        return _run_nested(frame, gm, call)
    frame = compile_record.open(
        stage, gm, more[0] if stage == "pre_grad" and more else example_values(gm)
    )
    with failing_stage(compile_record, frame):
        result = call()
        compile_record.close(frame, result)
    return result


def _run_partition(compile_record: CompileRecord, call: Call) -> Any:
    """Run the min-cut partitioner; a veto keeps exactly the values that backward needs."""
    is_of_pattern = bool(compile_record.frames)  # a pattern's own trace
    if is_of_pattern or compile_record.numbering.allow_pass(PassId("joint", "partition")):
        return call()
    joint, joint_inputs = call.args
    return aot.plain_partition(joint, joint_inputs, call.keywords)


def _run_post_grad(compile_record: CompileRecord, call: Call) -> Any:
    """Run the post-grad stage, which works in place; after its root graph comes lowering."""
    frame, gm = compile_record.frame(), call.args[0]
    if frame is None or frame.stage not in ("forward", "backward"):
        return call()
    if frame.lowering is not None:
        return None  # the graph is being lowered once more: its passes have run
    if len(frame.path) > 1 or gm is not frame.root:
        return _run_nested(frame, gm, call)
    compile_record.sync(frame, "unannounced_before_post_grad")
    result = call()
    compile_record.hand_over(frame)
    return result


def _run_nested(frame: Frame, gm: GraphModule, call: Call) -> Any:
    """Run a stage function on a sub-graph."""
    depth = len(frame.path)
    frame.path.append(gm)
    try:
        return call()
    finally:
        del frame.path[depth:]


def _run_announced(compile_record: CompileRecord, call: Call) -> Any:
    """Run `GraphTransformObserver.apply_gm_pass` or `apply_graph_pass`."""
    announcer, pass_fn = call.args
    frame = None if compile_record.in_patterns else compile_record.frame_of(announcer.gm)
    only_patterns = inductor.is_pattern_pass(getattr(pass_fn, "__self__", None))
    if frame is None or only_patterns:
        with compile_record.skipping(announcer):
            return call()
    pass_id = begin_pass(compile_record, frame, announcer.passname)
    if not compile_record.numbering.allow_pass(pass_id):
        compile_record.refuse(frame, pass_id)
        return None
    with compile_record.skipping(announcer), time_pass(compile_record, frame, pass_id):
        return call()


def _region_hooks(compile_record: CompileRecord, sites: inductor.Sites) -> Iterator[Hook]:
    """Wrap `with GraphTransformObserver(...)`; a vetoed region runs and is undone."""
    regions: dict[int, ExitStack] = {}

    def enter(compile_record: CompileRecord, call: Call) -> Any:
        announcer = call.args[0]
        frame = (
            None if compile_record.is_covered(announcer) else compile_record.frame_of(announcer.gm)
        )
        if frame is not None:
            pass_id = begin_pass(compile_record, frame, announcer.passname)
            stack = regions[id(announcer)] = ExitStack()
            if compile_record.numbering.allow_pass(pass_id):
                stack.enter_context(time_pass(compile_record, frame, pass_id))
            else:
                stack.callback(compile_record.undo, frame, pass_id)
        return call()

    def wrap_exit(original: Function) -> Function:
        def leave(announcer: Any, *exception: Any) -> Any:
            result = original(announcer, *exception)
            region = regions.pop(id(announcer), None)
            if region is not None:
                region.__exit__(*exception)
            return result

        return leave

    yield sites.enter, divert(compile_record.watching, enter)
    yield sites.exit, wrap_exit


def _apply_table(compile_record: CompileRecord, call: Call) -> Any:
    """Run `PatternMatcherPass.apply`: a match is a rewrite, except on a pattern's own trace."""
    if compile_record.in_patterns:
        return _run_muted(compile_record, call)
    table, gm = call.args
    frame = compile_record.frame_of(gm.owning_module if isinstance(gm, Graph) else gm)
    if frame is None:
        return call()
    with (
        compile_record.matching(),
        guard_table(compile_record, frame, table),
        _failing_table(compile_record, frame),
    ):
        return call()


@contextmanager
def _failing_table(compile_record: CompileRecord, frame: Frame) -> Generator[None]:
    with report_failure(compile_record, frame):
        yield
    compile_record.end_run(frame)


def _run_muted(compile_record: CompileRecord, call: Call) -> Any:
    with compile_record.mute():
        return call()
