"""Run a program in eager in spite of its `torch.compile`.

torch's stance `force_eager` does that, with one flaw: `torch.cond`, `while_loop`, `scan` and
`flex_attention` compile their functions in order to run them at all, and fail under it (torch
2.13). Their own compiles use the backend `eager`. Calls without `torch.compile` stay unchanged.
"""

# pyright: reportPrivateUsage=false

import contextlib
import importlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

import torch


@contextlib.contextmanager
def eager_stance() -> Generator[None]:
    """Let everything that the program has compiled run in eager inside the block.

    In torch: `torch._higher_order_ops.utils._set_compilation_env`, which is
    entered around each compile of a higher-order operator.
    """
    owner: Any = importlib.import_module("torch._higher_order_ops.utils")
    own: Callable[[], AbstractContextManager[object]] = owner._set_compilation_env

    @contextlib.contextmanager
    def compiling() -> Generator[None]:
        with torch.compiler.set_stance("default"), own():
            yield

    with torch.compiler.set_stance("force_eager"):
        owner._set_compilation_env = compiling
        try:
            yield
        finally:
            owner._set_compilation_env = own
