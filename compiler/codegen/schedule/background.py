"""Compile the kernels of a graph in a thread, and run the graph in eager until they are there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, no_data
from ctk.compiler.observe import first_line

log = logging.getLogger("ctk.codegen")

THREAD = "ctk-kernels"
"""What the threads are called. Python waits for them at its end, so no files are left."""


def in_background(
    stage: str, make: Callable[[], None], ready: BoxedCallable, meanwhile: BoxedCallable
) -> BoxedCallable:
    """Return a callable that runs `meanwhile` until `make` has returned, then `ready`.

    If `make` fails, which is logged once, it stays with `meanwhile`.

    Args:
        stage: Of the graph, for the log.
        make: Compiles what `ready` needs; called once, in a thread.
        ready: Runs the kernels.
        meanwhile: Runs the graph without them.
    """
    current = meanwhile

    def work() -> None:
        nonlocal current
        try:
            make()
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            log.warning("graph %s: no kernels: %s; it stays in eager", stage, reason)
        else:
            current = ready

    def run(args: list[Any]) -> Sequence[object]:
        return current(args)

    threading.Thread(target=work, name=THREAD).start()
    later = "kernels.background=true compiles kernels later than a graph is stored"
    return as_boxed(run, ready.ctk_source, lambda: no_data(later))
