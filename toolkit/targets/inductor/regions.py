"""Stages and passes as regions of an observed compile: begun, timed, reported, or failed.

The wrappers are in `hooks` and `freezing`.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ctk.compiler.observe import PassId
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.errors import fail_pass
from ctk.toolkit.targets.inductor.frames import Frame

Function = Callable[..., Any]


def begin_pass(session: CompileRecord, frame: Frame, name: str) -> PassId:
    """Report unannounced changes before a pass, and number the pass."""
    session.sync(frame, f"unannounced_before_{name}")
    return session.numbering.pass_id(frame.stage, name)


@contextmanager
def time_pass(session: CompileRecord, frame: Frame, pass_id: PassId) -> Generator[None]:
    """Report a pass at its end: its changes beyond the passes announced inside."""
    started, changes = time.perf_counter(), frame.changes
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error, pass_id=pass_id)
        raise
    seconds = time.perf_counter() - started
    if not session.end_pass(frame, pass_id, seconds=seconds) and frame.changes == changes:
        session.report_unchanged(frame, pass_id, seconds)


@contextmanager
def failing_stage(session: CompileRecord, frame: Frame) -> Generator[None]:
    """Report an exception that no pass accounted for, and leave the frame."""
    try:
        yield
    except Exception as error:
        fail_pass(session, frame, error)
        raise
    finally:
        session.drop(frame)
