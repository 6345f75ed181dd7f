"""A schedule as a boxed callable: at once, or once its kernels are compiled in a thread."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, check_count, no_data
from ctk.compiler.codegen.eager_nodes import constants_data
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator
from ctk.compiler.fx.walk import fetch
from ctk.compiler.observe import first_line
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.python_code import PythonCode
from ctk.compiler.runtime.steps import Schedule

log = logging.getLogger("ctk.codegen")

THREAD = "ctk-kernels"
"""The name of the threads. Python joins them at its end, so that no files are left."""

_THREADS = 8


def box_schedule(
    schedule: Schedule, gm: GraphModule, generator: Generator, compiled: Sequence[CompiledKernel]
) -> tuple[BoxedCallable, Callable[[Sequence[Callable[..., None]]], None]]:
    """Return a schedule as a boxed callable, and the function that binds its kernels."""
    constants = {name: fetch(gm, name) for name in schedule.constants.values()}
    code = PythonCode(schedule, "forward", constants, generator.takes)
    forward, count = code.function, len(schedule.inputs)

    def run(args: list[Any]) -> Sequence[object]:
        if len(args) != count:
            check_count(args, count)
        return forward(args)

    def data() -> CompiledGraph:
        codes = [each.code for each in compiled if each.code is not None]
        with ThreadPoolExecutor(_THREADS) as pool:  # `stored` compiles a kernel that is not yet
            stored = [] if codes else list(pool.map(lambda each: each.stored(), compiled))
        values = constants_data(gm, schedule)
        return CompiledGraph(schedule, values, generator.name, stored, codes)

    return as_boxed(run, lambda: code.text, data), code.bind


def in_background(
    stage: str, make: Callable[[], None], ready: BoxedCallable, meanwhile: BoxedCallable
) -> BoxedCallable:
    """Return a callable that runs `meanwhile` until `make` has returned, then `ready`.

    `make` is called once, in a thread. If it fails, which is logged once, `meanwhile` stays.
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
