"""Listen to Inductor's own announcements for the time of one compile, and put everything back.

Functions of Inductor (`inductor.sites`) are wrapped under Dynamo's compile lock;
each wrapper passes calls of other threads, and calls that are not about the observed graph,
straight through. Nothing stays wrapped after the region, also not after an exception.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.fx import Graph, GraphModule

from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import PassId, Stage
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.errors import fail_pass
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.freezing import freezing_hooks
from ctk.toolkit.targets.inductor.lowering_hooks import lowering_hooks
from ctk.toolkit.targets.inductor.patterns import guard_table
from ctk.toolkit.targets.inductor.regions import Function, begin_pass, failing_stage, time_pass


@contextmanager
def install_hooks(session: CompileRecord) -> Generator[None]:
    """Wrap Inductor's announcements for `session` until the region ends; its regions may nest."""
    with inductor.compile_lock(), session.attach() as is_outermost, ExitStack() as undo:
        if is_outermost:
            for site, wrap in _hooks(session):
                undo.enter_context(wrap_site(site, wrap))
            undo.enter_context(session.decompositions.hook())
            undo.enter_context(session.fake_kernels.hook())
        yield


def _hooks(session: CompileRecord) -> Iterator[tuple[Site, Callable[[Function], Function]]]:
    sites = inductor.sites()
    yield sites.pre_grad, lambda f: _stage(session, "pre_grad", f)
    yield sites.joint, lambda f: _stage(session, "joint", f)
    yield sites.partition, lambda f: _partition(session, f)
    yield sites.post_grad, lambda f: _post_grad(session, f)
    yield from freezing_hooks(session)
    yield sites.gm_pass, lambda f: _wrap_announcements(session, f)
    yield sites.graph_pass, lambda f: _wrap_announcements(session, f)
    yield from _region_hooks(session, sites)
    yield sites.pattern_pass, lambda f: _pattern_pass(session, f)
    for site in sites.pattern_setup:
        yield site, lambda f: _silent(session, f)
    yield from lowering_hooks(session)


def _stage(session: CompileRecord, stage: Stage, original: Function) -> Function:
    """Wrap a stage function that returns its graph and calls itself for sub-graphs."""

    def run(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        frame = session.frame()
        if not session.is_watching():
            return original(gm, *args, **kwargs)
        if frame is not None and frame.stage == stage:
            return _run_nested(frame, gm, lambda: original(gm, *args, **kwargs))
        frame = session.open(stage, gm, args[0] if stage == "pre_grad" and args else _values(gm))
        with failing_stage(session, frame):
            result = original(gm, *args, **kwargs)
            session.close(frame, result)
        return result

    return run


def _partition(session: CompileRecord, original: Function) -> Function:
    """Wrap the min-cut partitioner; a veto keeps exactly the values that backward needs."""

    def run(joint: GraphModule, joint_inputs: object, **kwargs: Any) -> Any:
        is_ours = session.is_watching() and not session.frames  # in a frame: a pattern's own trace
        if not is_ours or session.numbering.allow_pass(PassId("joint", "partition")):
            return original(joint, joint_inputs, **kwargs)
        return aot.plain_partition(joint, joint_inputs, kwargs)

    return run


def _post_grad(session: CompileRecord, original: Function) -> Function:
    """Wrap the post-grad stage, which works in place; after its root graph comes lowering."""

    def run(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        frame = session.frame()
        if frame is None or frame.stage not in ("forward", "backward"):
            return original(gm, *args, **kwargs)
        if frame.lowering is not None:
            return None  # the graph is being lowered once more: its passes have run
        if len(frame.path) > 1 or gm is not frame.root:
            return _run_nested(frame, gm, lambda: original(gm, *args, **kwargs))
        session.sync(frame, "unannounced_before_post_grad")
        result = original(gm, *args, **kwargs)
        session.hand_over(frame)
        return result

    return run


def _run_nested(frame: Frame, gm: GraphModule, call: Callable[[], Any]) -> Any:
    """Run a stage function on a sub-graph."""
    depth = len(frame.path)
    frame.path.append(gm)
    try:
        return call()
    finally:
        del frame.path[depth:]


def _wrap_announcements(session: CompileRecord, original: Function) -> Function:
    """Wrap `GraphTransformObserver.apply_gm_pass` and `apply_graph_pass`."""

    def run(announcer: Any, pass_fn: Function) -> Any:
        if not session.is_watching():
            return original(announcer, pass_fn)
        frame = None if session.in_patterns else session.frame_of(announcer.gm)
        only_patterns = inductor.is_pattern_pass(getattr(pass_fn, "__self__", None))
        if frame is None or only_patterns:
            with session.skipping(announcer):
                return original(announcer, pass_fn)
        pass_id = begin_pass(session, frame, announcer.passname)
        if not session.numbering.allow_pass(pass_id):
            session.refuse(frame, pass_id)
            return None
        with session.skipping(announcer), time_pass(session, frame, pass_id):
            return original(announcer, pass_fn)

    return run


def _region_hooks(
    session: CompileRecord, sites: inductor.Sites
) -> Iterator[tuple[Site, Callable[[Function], Function]]]:
    """Wrap `with GraphTransformObserver(...)`; a vetoed region runs and is undone."""
    regions: dict[int, tuple[Frame, PassId, ExitStack]] = {}

    def wrap_enter(original: Function) -> Function:
        def enter(announcer: Any) -> Any:
            frame = None
            if session.is_watching() and not session.is_covered(announcer):
                frame = session.frame_of(announcer.gm)
            if frame is not None:
                pass_id = begin_pass(session, frame, announcer.passname)
                stack = ExitStack()
                if session.numbering.allow_pass(pass_id):
                    stack.enter_context(time_pass(session, frame, pass_id))
                else:
                    stack.callback(session.undo, frame, pass_id)
                regions[id(announcer)] = (frame, pass_id, stack)
            return original(announcer)

        return enter

    def wrap_exit(original: Function) -> Function:
        def leave(announcer: Any, *exception: Any) -> Any:
            result = original(announcer, *exception)
            region = regions.pop(id(announcer), None)
            if region is not None:
                region[2].__exit__(*exception)
            return result

        return leave

    yield sites.enter, wrap_enter
    yield sites.exit, wrap_exit


def _pattern_pass(session: CompileRecord, original: Function) -> Function:
    """Wrap `PatternMatcherPass.apply`: a match is a rewrite, except on a pattern's own trace."""

    def apply(table: Any, gm: GraphModule | Graph) -> Any:
        if not session.is_watching():
            return original(table, gm)
        if session.in_patterns:
            with session.mute():
                return original(table, gm)
        frame = session.frame_of(gm.owning_module if isinstance(gm, Graph) else gm)
        if frame is None:
            return original(table, gm)
        with session.matching(), guard_table(session, frame, table), _failing_table(session, frame):
            return original(table, gm)

    return apply


@contextmanager
def _failing_table(session: CompileRecord, frame: Frame) -> Generator[None]:
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error)
        raise
    session.end_run(frame)


def _silent(session: CompileRecord, original: Function) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not session.is_watching():
            return original(*args, **kwargs)
        with session.mute():
            return original(*args, **kwargs)

    return run


def _values(gm: GraphModule) -> tuple[object, ...]:
    """Return the example values (fake tensors, symbolic ints) of a graph's placeholders."""
    return tuple(value_of(node) for node in placeholders(gm))
