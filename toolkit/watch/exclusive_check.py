"""Run a check while no other thread of the program compiles.

A compile and a check use the same process-wide state of torch: the metadata that FX notes while
AOTAutograd traces, the generators, which Dynamo puts back after tracing, Inductor's hooks. So a
check holds the lock under which Dynamo compiles, which is re-entrant, and no other lock: there is
no order of locks to get wrong. The backward pass that a check runs may be compiled at its first
call, under the same lock; autograd's own threads would wait for it forever, so autograd runs in
this thread.

    thread 1                                  thread 2
    first call: takes the lock                calls a compiled graph: runs on
      eager, compiled, backward (compiles)    meets a new graph: waits for the lock
    releases it, makes the program's call     compiles

It does not keep other threads from drawing random numbers or from running. So that these
never meet another default dtype, a float64 reference keeps it as it is while there are any.
"""

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import torch

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.execution.modes import default_dtype_kept


@contextmanager
def alone() -> Generator[None]:
    """Hold Dynamo's compile lock, with autograd in this thread, until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(inductor.compile_lock())
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        if threading.active_count() > 1:
            stack.enter_context(default_dtype_kept())
        yield
