"""Run a program in eager, whatever in it is compiled by `torch.compile`.

The stance `force_eager` of torch does that, with one flaw: `torch.cond`, `while_loop`, `scan` and
`flex_attention` compile what they are handed in order to run it at all, and fail (torch 2.13)
when nothing is compiled. What they compile for themselves is compiled with the backend `eager`.

What it does not do: change what a call without `torch.compile` gives.
"""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._higher_order_ops import utils


@contextlib.contextmanager
def eager_stance() -> Generator[None]:
    """Let everything that the program has compiled run in eager inside the block.

    Seen in torch 2.11 and 2.13: `torch._higher_order_ops.utils._set_compilation_env`, which is
    entered around each compile of a higher-order operator.
    """
    owner: Any = utils
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
