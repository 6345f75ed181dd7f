"""Stages and passes as regions of an observed compile: begun, timed, reported, or failed.

The wrapped functions are in `hooks`, `freezing` and `lowering_hooks`.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import ErrorRecord, PassId, RewriteId
from ctk.compiler.torch_compat.inductor.patch_sites import Site
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.snapshot import snapshot
from ctk.toolkit.targets.reporting import report

Function = Callable[..., Any]
Wrapper = Callable[[Any], Any]
Hook = tuple[Site, Wrapper]
Call = partial[Any]
"""A call of a wrapped function, with its arguments."""


def divert(find: Callable[[], object], region: Callable[[Any, Call], Any]) -> Wrapper:
    """Return the wrapper that diverts the calls about an observed graph to a region.

    Args:
        find: Returns the record or the lowering that a call is about; None: it goes straight
            through to the wrapped function.
        region: Gets that record or lowering, and the call to make, whose arguments are positional.
    """

    def wrap(original: Function) -> Function:
        def run(*args: Any, **kwargs: Any) -> Any:
            found, call = find(), partial(original, *args, **kwargs)
            return call() if found is None else region(found, call)

        return run

    return wrap


def example_values(gm: GraphModule) -> tuple[object, ...]:
    """Return the example values (fake tensors, symbolic ints) of a graph's placeholders."""
    return tuple(value_of(node) for node in placeholders(gm))


def begin_pass(compile_record: CompileRecord, frame: Frame, name: str) -> PassId:
    """Report unannounced changes before a pass, and number the pass."""
    compile_record.sync(frame, f"unannounced_before_{name}")
    return compile_record.numbering.pass_id(frame.stage, name)


@contextmanager
def time_pass(compile_record: CompileRecord, frame: Frame, pass_id: PassId) -> Generator[None]:
    """Report a pass at its end: its changes beyond the passes announced inside."""
    started, changes = time.perf_counter(), frame.changes
    with report_failure(compile_record, frame, pass_id):
        yield
    seconds = time.perf_counter() - started
    if not compile_record.end_pass(frame, pass_id, seconds=seconds) and frame.changes == changes:
        compile_record.report_unchanged(frame, pass_id, seconds)


@contextmanager
def failing_stage(compile_record: CompileRecord, frame: Frame) -> Generator[None]:
    """Report an exception that no pass accounted for, and leave the frame."""
    try:
        with report_failure(compile_record, frame):
            yield
    finally:
        compile_record.drop(frame)


@contextmanager
def report_failure(
    compile_record: CompileRecord, frame: Frame, pass_id: PassId | None = None
) -> Generator[None]:
    """Report an exception of the block."""
    try:
        yield
    except Exception as error:
        fail_pass(compile_record, frame, error, pass_id=pass_id)
        raise


def fail_pass(
    compile_record: CompileRecord,
    frame: Frame,
    error: BaseException,
    *,
    pass_id: PassId | None = None,
    rewrite: RewriteId | None = None,
    node: str | None = None,
) -> None:
    """Report an exception that left a pass, or a stage outside of any announced pass."""
    compile_record.end_run(frame)
    graph = snapshot(frame.root, frame.swaps)
    record = ErrorRecord(error, frame.stage, pass_id, rewrite, node=node, graph=graph)
    report(compile_record.observer, record)
