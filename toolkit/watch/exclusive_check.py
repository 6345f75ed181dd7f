"""Run a check while no other thread of the program compiles.

A compile and a check use the same process-wide state of torch: the metadata that FX records while
AOTAutograd traces, the generators, which Dynamo restores after tracing, Inductor's hooks. So a
check holds the re-entrant lock under which Dynamo compiles, and no other lock, so that no order of
locks can be wrong. The backward pass of a check may be compiled at its first call, under the same
lock; threads of autograd would wait for it forever, so autograd runs in this thread.

    thread 1                                  thread 2
    first call: takes the lock                calls a compiled graph: runs on
      eager, compiled, backward (compiles)    meets a new graph: waits for the lock
    releases it, makes the program's call     compiles

Other threads may still run and draw random numbers. While there are any, a float64 reference keeps
the default dtype, which they share.
"""

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import torch

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.execution.modes import keep_default_dtype


@contextmanager
def hold_compile_lock() -> Generator[None]:
    """Hold Dynamo's compile lock, with autograd in this thread, until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(inductor.compile_lock())
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        if threading.active_count() > 1:
            stack.enter_context(keep_default_dtype())
        yield
