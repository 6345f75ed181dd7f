"""Listen to Inductor's own announcements for the time of one compile, and put everything back.

Functions of Inductor (`inductor.sites`) are wrapped under Dynamo's compile lock;
each wrapper passes calls of other threads, and calls that are not about the observed graph,
straight through. Nothing stays wrapped after the region, also not after an exception.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.fx import Graph, GraphModule

from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import PassId, Stage
from ctk.compiler.torch_compat import inductor
from ctk.toolkit.targets.inductor.errors import fail_pass
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.patterns import guarded
from ctk.toolkit.targets.inductor.session import Session

Function = Callable[..., Any]


@contextmanager
def installed(session: Session) -> Generator[None]:
    """Wrap Inductor's announcements for `session` until the region ends; its regions may nest."""
    with inductor.compile_lock(), session.attached() as is_outermost, ExitStack() as undo:
        if is_outermost:
            for site, wrap in _hooks(session):
                undo.enter_context(_wrapped(site, wrap))
        yield


@contextmanager
def _wrapped(site: inductor.Site, wrap: Callable[[Function], Function]) -> Generator[None]:
    original = vars(site.owner)[site.name]
    setattr(site.owner, site.name, wrap(original))
    try:
        yield
    finally:
        setattr(site.owner, site.name, original)


def _hooks(session: Session) -> Iterator[tuple[inductor.Site, Callable[[Function], Function]]]:
    sites = inductor.sites()
    yield sites.pre_grad, lambda f: _stage(session, "pre_grad", f)
    yield sites.joint, lambda f: _stage(session, "joint", f)
    yield sites.post_grad, lambda f: _post_grad(session, f)
    yield sites.freeze, lambda f: _freeze(session, f)
    yield sites.gm_pass, lambda f: _announced(session, f)
    yield sites.graph_pass, lambda f: _announced(session, f)
    yield from _region_hooks(session, sites)
    yield sites.pattern_pass, lambda f: _pattern_pass(session, f)
    for site in sites.pattern_setup:
        yield site, lambda f: _silent(session, f)


def _stage(session: Session, stage: Stage, original: Function) -> Function:
    """Wrap a stage function that returns its graph and calls itself for sub-graphs."""

    def run(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        frame = session.frame()
        if not session.is_watching():
            return original(gm, *args, **kwargs)
        if frame is not None and frame.stage == stage:
            return _nested(frame, gm, lambda: original(gm, *args, **kwargs))
        frame = session.open(stage, gm, args[0] if stage == "pre_grad" and args else _values(gm))
        with _failing(session, frame):
            result = original(gm, *args, **kwargs)
            session.close(frame, result)
        return result

    return run


def _post_grad(session: Session, original: Function) -> Function:
    """Wrap the post-grad stage, which works in place; after its root graph comes lowering."""

    def run(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        frame = session.frame()
        if frame is None or frame.stage not in ("forward", "backward"):
            return original(gm, *args, **kwargs)
        if len(frame.path) > 1 or gm is not frame.root:
            return _nested(frame, gm, lambda: original(gm, *args, **kwargs))
        session.sync(frame, "unannounced_before_post_grad")
        result = original(gm, *args, **kwargs)
        session.hand_over(frame)
        return result

    return run


def _freeze(session: Session, original: Function) -> Function:
    """Wrap freezing: `(dynamo_gm, gm, inputs) -> (gm, kept)`."""

    def run(dynamo_gm: GraphModule, gm: GraphModule, inputs: Any) -> Any:
        if not session.is_watching():
            return original(dynamo_gm, gm, inputs)
        frame = session.open("frozen", gm, inputs)
        with _failing(session, frame):
            result = original(dynamo_gm, gm, inputs)
            session.close(frame, result[0])
        return result

    return run


def _nested(frame: Frame, gm: GraphModule, call: Callable[[], Any]) -> Any:
    """Run a stage function on a sub-graph."""
    depth = len(frame.path)
    frame.path.append(gm)
    try:
        return call()
    finally:
        del frame.path[depth:]


@contextmanager
def _failing(session: Session, frame: Frame) -> Generator[None]:
    """Report an exception that no pass accounted for, and leave the frame."""
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error)
        raise
    finally:
        session.drop(frame)


def _announced(session: Session, original: Function) -> Function:
    """Wrap `GraphTransformObserver.apply_gm_pass` and `apply_graph_pass`."""

    def run(announcer: Any, pass_fn: Function) -> Any:
        if not session.is_watching():
            return original(announcer, pass_fn)
        frame = None if session.in_patterns else session.frame_of(announcer.gm)
        only_patterns = inductor.is_pattern_pass(getattr(pass_fn, "__self__", None))
        if frame is None or only_patterns:
            with session.skipping(announcer):
                return original(announcer, pass_fn)
        pass_id = _begin(session, frame, announcer.passname)
        if not session.numbering.allow_pass(pass_id):
            session.refuse(frame, pass_id)
            return None
        with session.skipping(announcer), _timed(session, frame, pass_id):
            return original(announcer, pass_fn)

    return run


def _begin(session: Session, frame: Frame, name: str) -> PassId:
    session.sync(frame, f"unannounced_before_{name}")
    return session.numbering.pass_id(frame.stage, name)


@contextmanager
def _timed(session: Session, frame: Frame, pass_id: PassId) -> Generator[None]:
    """Report a pass when it ends: what it did beyond the passes that it announced inside."""
    started, changes = time.perf_counter(), frame.changes
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error, pass_id=pass_id)
        raise
    seconds = time.perf_counter() - started
    if not session.end_pass(frame, pass_id, seconds=seconds) and frame.changes == changes:
        session.unchanged(frame, pass_id, seconds)


def _region_hooks(
    session: Session, sites: inductor.Sites
) -> Iterator[tuple[inductor.Site, Callable[[Function], Function]]]:
    """Wrap `with GraphTransformObserver(...)`; a vetoed region runs and is undone."""
    regions: dict[int, tuple[Frame, PassId, ExitStack]] = {}

    def wrap_enter(original: Function) -> Function:
        def enter(announcer: Any) -> Any:
            frame = None
            if session.is_watching() and not session.is_covered(announcer):
                frame = session.frame_of(announcer.gm)
            if frame is not None:
                pass_id = _begin(session, frame, announcer.passname)
                stack = ExitStack()
                if session.numbering.allow_pass(pass_id):
                    stack.enter_context(_timed(session, frame, pass_id))
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


def _pattern_pass(session: Session, original: Function) -> Function:
    """Wrap `PatternMatcherPass.apply`: a match is a rewrite, except on a pattern's own trace."""

    def apply(table: Any, gm: GraphModule | Graph) -> Any:
        if not session.is_watching():
            return original(table, gm)
        if session.in_patterns:
            with session.muted():
                return original(table, gm)
        frame = session.frame_of(gm.owning_module if isinstance(gm, Graph) else gm)
        if frame is None:
            return original(table, gm)
        with session.matching(), guarded(session, frame, table), _failing_table(session, frame):
            return original(table, gm)

    return apply


@contextmanager
def _failing_table(session: Session, frame: Frame) -> Generator[None]:
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error)
        raise
    session.end_run(frame)


def _silent(session: Session, original: Function) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not session.is_watching():
            return original(*args, **kwargs)
        with session.muted():
            return original(*args, **kwargs)

    return run


def _values(gm: GraphModule) -> tuple[object, ...]:
    """Return the example values (fake tensors, symbolic ints) of a graph's placeholders."""
    return tuple(value_of(node) for node in placeholders(gm))
